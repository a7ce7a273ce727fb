"""A run on two ranks leaves one capture directory with one trace per rank."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest


def text(path: Path) -> str:
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")


def test_one_capture_directory_holds_both_ranks_and_nothing_else(
    two_rank_run: Path, traces: dict[int, Path]
) -> None:
    (capture,) = two_rank_run.glob("step_*")

    assert capture.name == "step_00000007"
    assert sorted(traces) == [0, 1]
    assert sorted(capture.iterdir()) == sorted(traces.values())


@pytest.mark.parametrize("rank", [0, 1])
def test_a_trace_carries_its_rank_in_name_and_metadata(traces: dict[int, Path], rank: int) -> None:
    trace = json.loads(text(traces[rank]))

    assert traces[rank].name.startswith(f"rank{rank:05d}.")
    assert trace["distributedInfo"]["rank"] == rank
    assert trace["distributedInfo"]["world_size"] == 2
