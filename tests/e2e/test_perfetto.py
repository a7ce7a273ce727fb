"""The Perfetto UI opens a trace as it is, in a browser."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.readers

STEPS = ["ProfilerStep#7", "ProfilerStep#8", "ProfilerStep#9"]


@pytest.fixture(scope="module")
def shown(open_with: Any, browser: str, traces: dict[int, Path]) -> dict[int, Any]:
    """What Perfetto shows of each rank's trace."""
    found = open_with("open_perfetto.py", browser, *traces.values())
    return {rank: found[path.name] for rank, path in traces.items()}


@pytest.mark.parametrize("rank", [0, 1])
def test_perfetto_shows_the_steps(shown: dict[int, Any], rank: int) -> None:
    assert [name for name, _ in shown[rank]["steps"]] == STEPS
    assert all(duration_ns > 0 for _, duration_ns in shown[rank]["steps"])


@pytest.mark.parametrize("rank", [0, 1])
def test_perfetto_nests_backward_and_optimizer_in_their_step(shown: dict[int, Any], rank: int) -> None:
    parts = ["Accelerator.backward", "AcceleratedOptimizer.step"]

    assert shown[rank]["nested"] == [[step, part] for step in STEPS for part in parts]


@pytest.mark.parametrize("rank", [0, 1])
def test_perfetto_drops_nothing(shown: dict[int, Any], traces: dict[int, Path], rank: int) -> None:
    raw = traces[rank].read_bytes()
    events = json.loads(gzip.decompress(raw) if traces[rank].suffix == ".gz" else raw)["traceEvents"]
    slices = [event for event in events if event.get("ph") == "X" and event["dur"] > 0]

    assert shown[rank]["lost"] == []
    assert shown[rank]["slices"] == len(slices) > 0
