"""``autoprof device`` and ``summary`` agree with HolisticTraceAnalysis about the devices of real traces.

Where the two differ by design, the comparison says how:

- It takes nanosecond traces as whole microseconds, starts rounded up and ends down: up to 2 us per event.
- Its shortest idle gaps are those below its 30, which are microseconds, though it documents nanoseconds.
- Gaps between events that overlap count as negative idle time there and as none here.
- Its bandwidths are as the exporter wrote them, from times that old exporters then rounded to microseconds.
- It leaves out device events whose launch is not in the trace (``v100_vs_a100/test``, compared elsewhere).
- Its queue and launch statistics know some names of launching calls; here every call with work counts.
- What happens within one microsecond of an old trace has no order there, so queues differ by a little.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from traces import SHARED

from autoprof.analysis.copies import copy_uses
from autoprof.analysis.device import device_rows
from autoprof.analysis.reader import read_trace

pytestmark = pytest.mark.readers

AGREE = ("a100_two_ranks", "v100_single", "v100_vs_a100/control", "amd_mi250", "old_categories")
IT_RAISES = ("cpu_gloo", "no_rank")


@pytest.fixture(scope="module")
def theirs(open_with: Any) -> Any:
    folders = [SHARED / "traces" / name for name in (*AGREE, *IT_RAISES)]
    if not all(folder.is_dir() for folder in folders):
        pytest.skip(f"no {SHARED / 'traces'}")
    found = open_with("open_hta_device.py", *folders)
    return {name: found[str(folder)] for name, folder in zip((*AGREE, *IT_RAISES), folders, strict=True)}


@pytest.fixture(scope="module")
def ours() -> Any:
    def told(name: str) -> dict[int, Any]:
        command = "import sys; from autoprof.cli import main; sys.exit(main(sys.argv[1:]))"
        arguments = ["summary", str(SHARED / "traces" / name), "--json", "--top", "100000"]
        out = subprocess.check_output([sys.executable, "-c", command, *arguments], text=True)
        # What names no rank is rank 0 there.
        return {trace["rank"] or 0: trace for trace in json.loads(out)["traces"]}

    return {name: told(name) for name in (*AGREE, *IT_RAISES)}


def tolerance_us(trace: dict[str, Any], events: int) -> float:
    """Return by how much whole microseconds may move a sum over so many events."""
    exact = all(float(stream["busy_us"]).is_integer() for stream in trace["streams"])
    return 0.001 if exact else 2.0 * events


def each(theirs: Any, ours: Any, question: str) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return trace by trace: the folder, a row of theirs, and our trace of that rank."""
    return [(name, row, ours[name][row.get("rank", 0)]) for name in AGREE for row in theirs[name][question]]


def test_temporal_breakdown(theirs: Any, ours: Any) -> None:
    for name, row, trace in each(theirs, ours, "temporal"):
        events = sum(stream["events"] for stream in trace["streams"])
        device, within = trace["device"], tolerance_us(trace, events)
        rest_us = device["busy_us"] - device["computation_us"]
        assert device["idle_us"] == pytest.approx(row["idle_time(us)"], abs=within), name
        assert device["computation_us"] == pytest.approx(row["compute_time(us)"], abs=within), name
        assert rest_us == pytest.approx(row["non_compute_time(us)"], abs=within), name


def test_communication_and_computation_overlap(theirs: Any, ours: Any) -> None:
    compared = 0
    for name, row, trace in each(theirs, ours, "overlap"):
        device = trace["device"]
        if row["comp_comm_overlap_pctg"] is None:  # not a number there: nothing communicated
            assert device["communication_us"] == 0, name
            continue
        compared += 1
        share = 100 * device["overlap_us"] / device["communication_us"]
        assert share == pytest.approx(row["comp_comm_overlap_pctg"], abs=0.0051), name
    assert compared == 3


def test_idle_breakdown(theirs: Any, ours: Any) -> None:
    causes = {
        "host_wait": lambda stream: stream["host_wait_us"],
        "kernel_wait": lambda stream: stream["start_us"],
        "other": lambda stream: stream["communication_wait_us"] + stream["other_us"],
    }
    compared = 0
    for name in AGREE:
        by_stream: dict[tuple[int, str], dict[str, float]] = {}
        for row in theirs[name]["idle"]:
            by_stream.setdefault((row["rank"], str(row["stream"])), {})[row["idle_category"]] = row[
                "idle_time"
            ]
        for (rank, number), idle in by_stream.items():
            trace = ours[name][rank]
            (stream,) = (one for one in trace["streams"] if one["stream"].split(":")[1] == number)
            for cause, here in causes.items():
                within = tolerance_us(trace, stream["events"])
                assert here(stream) == pytest.approx(idle.get(cause, 0.0), abs=within), (name, number, cause)
                compared += 1
    assert compared == 3 * 17


def test_kernel_breakdown(theirs: Any, ours: Any) -> None:
    for name in AGREE:
        for rank, trace in ours[name].items():
            kernels = {one["name"]: one for one in trace["kernels"]}
            rows = [row for row in theirs[name]["kernels"]["each"] if row["rank"] == rank]
            assert {row["name"] for row in rows} == set(kernels), name
            for row in rows:
                kernel = kernels[row["name"]]
                within = tolerance_us(trace, kernel["calls"])
                assert kernel["total_us"] == pytest.approx(row["sum (us)"], abs=within), (name, row["name"])


def test_memory_bandwidth(theirs: Any) -> None:
    compared = 0
    for name in AGREE:
        for path in sorted((SHARED / "traces" / name).iterdir()):
            table = read_trace(path)
            device = device_rows(table)
            rank = table.header.rank or 0
            rows = {row["name"]: row for row in theirs[name]["bandwidth"] if row["rank"] == rank}
            for use in copy_uses(table, device):
                if use.mean_gb_per_s is None:
                    assert use.kind not in rows, name
                    continue
                chosen = np.flatnonzero(
                    [table.names[at].startswith(use.kind) for at in table.name[device.rows].tolist()]
                )
                sizes, times = table.size_bytes[device.rows[chosen]], device.dur_ns[chosen]
                slowest = (sizes / (times + 1000)).mean()
                fastest = (sizes / np.maximum(times - 1000, 1)).mean()
                assert slowest <= rows[use.kind]["mean"] <= fastest, (name, use.kind)
                assert slowest <= use.mean_gb_per_s <= fastest, (name, use.kind)
                compared += 1
    assert compared == 14


def test_queue_length(theirs: Any, ours: Any) -> None:
    compared = 0
    for name, row, trace in each(theirs, ours, "queue"):
        (stream,) = (one for one in trace["streams"] if one["stream"].split(":")[1] == str(row["stream"]))
        assert stream["queue_longest"] == row["max"], (name, row)
        assert stream["queue_mean_at_changes"] == pytest.approx(row["mean"], rel=0.01), (name, row)
        compared += 1
    assert compared == 17


def test_launch_statistics(theirs: Any, ours: Any) -> None:
    compared = 0
    for name, row, trace in each(theirs, ours, "launches"):
        if not row["count"]:  # the names of AMD's calls are not among those it asks for
            assert name == "amd_mi250"
            continue
        made, within = trace["launches"], tolerance_us(trace, row["count"])
        assert (made["calls"], made["pieces"]) == (row["count"], row["count"]), name
        assert made["call"]["total_us"] == pytest.approx(row["call_us"], abs=within), name
        assert made["work"]["total_us"] == pytest.approx(row["work_us"], abs=within), name
        assert made["delay"]["total_us"] == pytest.approx(row["delay_us"], abs=2 * within), name
        assert made["short"] == pytest.approx(row["short"], abs=0.01 * row["count"] if within > 1 else 0), (
            name
        )
        compared += 1
    assert compared == 5


@pytest.mark.parametrize("name", IT_RAISES)
def test_where_it_raises_there_are_answers(theirs: Any, ours: Any, name: str) -> None:
    assert "raised" in theirs[name]
    (trace,) = ours[name].values()
    assert trace["steps"]
    assert trace["phases_median"]["other_us"] is not None
    assert Path(trace["file"]).parent.name == name
