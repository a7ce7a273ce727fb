"""TensorBoard's PyTorch profiler plugin opens a run, and a folder of runs, as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.readers


def worker(trace: Path) -> str:
    """What the plugin calls a trace: its name up to the time."""
    return ".".join(trace.name.split(".")[:2])


@pytest.fixture(scope="module")
def workers(open_with: Any, two_rank_run: Path) -> Any:
    found = open_with("open_tensorboard.py", two_rank_run, 1)
    assert list(found) == ["step_00000007"]
    return found["step_00000007"]["workers"]


def test_tensorboard_lists_both_ranks_as_workers(workers: Any, traces: dict[int, Path]) -> None:
    assert list(workers) == [worker(traces[0]), worker(traces[1])]
    assert [about["trace_rank"] for about in workers.values()] == [0, 1]


def test_tensorboard_serves_the_overview_of_each_rank(workers: Any) -> None:
    for about in workers.values():
        assert about["steps"] == ["7", "8", "9"]
        assert about["environments"]["Number of Worker(s)"] == "2"


def test_tensorboard_lists_the_operators_of_each_rank(workers: Any) -> None:
    for about in workers.values():
        assert {"aten::addmm", "c10d::allreduce_"} <= set(about["operators"])


def test_tensorboard_opens_the_folder_of_runs(
    open_with: Any, two_rank_run: Path, traces: dict[int, Path]
) -> None:
    found = open_with("open_tensorboard.py", two_rank_run.parent, 1)

    assert list(found) == [f"{two_rank_run.name}/step_00000007"]
    assert len(found[f"{two_rank_run.name}/step_00000007"]["workers"]) == 2
