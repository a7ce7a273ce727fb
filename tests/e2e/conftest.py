"""One job on two ranks, and the readers that its traces are opened with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs import REPOSITORY, run_job

from autoprof.run import layout

READERS = Path(__file__).parent / "readers"

Reader = Callable[..., Any]


@pytest.fixture(scope="session", params=["gzip", "none"])
def two_rank_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of an unmodified script on two ranks, its traces compressed and not."""
    outcome = run_job(
        tmp_path_factory.mktemp("job"),
        REPOSITORY / "examples/train.py",
        ranks=2,
        by="accelerate",
        env={"ACCELPROF_COMPRESS": request.param},
    )
    assert outcome.status == 0, outcome.stderr
    return outcome.run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep these tests on one worker: they share the two runs above."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.xdist_group("readers"))


@pytest.fixture(scope="session")
def traces(two_rank_run: Path) -> dict[int, Path]:
    """The trace of each rank."""
    found = layout.find_traces(two_rank_run)
    assert len({trace.rank for trace in found}) == len(found)
    return {trace.rank: trace.path for trace in found}


@pytest.fixture(scope="session")
def open_with() -> Reader:
    """Open something in a reader: run a script of ``readers/`` there and return what it printed."""
    default = REPOSITORY / ".venv-readers/bin/python"
    python = os.environ.get("AUTOPROF_READERS_PYTHON") or str(default)
    if not shutil.which(python):
        absent(f"the readers are not installed: no {python}; `make readers` makes it")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(script: str, *arguments: object) -> Any:
        finished = subprocess.run(
            [python, READERS / script, *map(str, arguments)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr
        return json.loads(finished.stdout)

    return run


@pytest.fixture(scope="session")
def browser() -> str:
    """The path of a Chromium."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return absent("the Perfetto UI needs a chromium on the PATH")


def absent(reason: str) -> Any:
    """Skip, but not where a check that is left out would go unseen."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
