from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from sandbox import (
    FAKE_ACCELERATE,
    FAKE_HOOKS,
    REPOSITORY,
    STARTUP_FILES,
    Sandbox,
    make_venv,
    pythons,
    write_files,
)


@pytest.fixture(scope="session", params=list(pythons()))
def armed_venv(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """An interpreter of each version whose site-packages holds what the wheel would put there."""
    python, site_packages = make_venv(tmp_path_factory.mktemp("venv"), pythons()[request.param])
    for name in STARTUP_FILES:
        target = site_packages / name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / name, target)
    write_files(site_packages / "autoprof/agent", {"__init__.py": "", "hooks.py": FAKE_HOOKS})
    return python, site_packages


@pytest.fixture
def sandbox(armed_venv: tuple[str, Path], tmp_path: Path) -> Sandbox:
    write_files(tmp_path / "packages/accelerate", FAKE_ACCELERATE)
    return Sandbox(*armed_venv, tmp_path)


@pytest.fixture
def write(tmp_path):
    """Write a trace (an object, text or bytes) and return its path; gzip where the name says so."""

    def write_(content: Any, name: str = "trace.json") -> Path:
        if not isinstance(content, str | bytes):
            content = json.dumps(content)
        data = content.encode() if isinstance(content, str) else content
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write_
