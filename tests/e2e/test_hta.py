"""HolisticTraceAnalysis opens a capture's directory as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.readers


@pytest.fixture(scope="module")
def found(open_with: Any, traces: dict[int, Path]) -> Any:
    return open_with("open_hta.py", traces[0].parent)


def test_hta_tells_the_ranks_apart_by_itself(found: Any, traces: dict[int, Path]) -> None:
    files = {int(rank): about["file"] for rank, about in found["ranks"].items()}

    assert files == {rank: path.name for rank, path in traces.items()}
    assert [about["distributed_info"]["rank"] for about in found["ranks"].values()] == [0, 1]
    assert found["about_ranks"] == []  # it warns when it has to make one up


def test_hta_finds_the_recorded_steps(found: Any) -> None:
    assert found["steps"] == [7, 8, 9]


def test_hta_finds_the_backward_pass_of_every_step(found: Any) -> None:
    assert [about["backward"] for about in found["ranks"].values()] == [3, 3]


def test_hta_compares_the_ranks(found: Any) -> None:
    """Most of its analyses need kernels of a GPU and raise without; this one has a row for each rank."""
    assert found["overlap_ranks"] == [0, 1]
