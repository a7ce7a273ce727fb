from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs import Outcome, run_job


@pytest.fixture
def launch(tmp_path: Path) -> Callable[..., Outcome]:
    """Run a job to its end, each in an empty folder of its own."""
    numbers = itertools.count(1)

    def run(*command: Any, **options: Any) -> Outcome:
        folder = tmp_path / f"job{next(numbers)}"
        folder.mkdir()
        return run_job(folder, *command, **options)

    return run
