"""Call stacks of a trace: Python frames, ranges, operators and runtime calls by what they ran inside.

torch's own ``export_stacks`` leaves an empty file unless it was asked for verbose stacks; these come from the
events themselves, so that a trace without Python frames has stacks too, of operators and ranges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from autoprof.analysis.nesting import NESTED_CATEGORIES, by_thread
from autoprof.analysis.table import EventTable, Int64s

PYTHON_CATEGORIES = frozenset({"python_function"})

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def has_python_frames(table: EventTable) -> bool:
    """Say whether Python's stacks were recorded."""
    return bool(table.in_categories(PYTHON_CATEGORIES).any())


def collapsed(table: EventTable, prefix: str) -> Counter[str]:
    """Return self time in nanoseconds by stack, ``prefix;thread;outer;inner``, of those with any."""
    found: Counter[str] = Counter()
    for thread, events in _threads(table):
        path = [_frame(part) for part in (prefix, thread)]
        before_ns = 0
        for opens, name, at_ns in events:
            if len(path) > 2 and at_ns > before_ns:
                found[";".join(path)] += at_ns - before_ns
            before_ns = at_ns
            if opens:
                path.append(_frame(name))
            else:
                path.pop()
    return found


def speedscope_profiles(table: EventTable, prefix: str, frames: dict[str, int]) -> list[dict[str, Any]]:
    """Return an evented profile, as speedscope has them, per thread; ``frames`` numbers frames by name."""
    profiles = []
    for thread, events in _threads(table):
        written = [
            {"type": "O" if opens else "C", "frame": frames.setdefault(name, len(frames)), "at": at_ns}
            for opens, name, at_ns in events
        ]
        profiles.append(
            {
                "type": "evented",
                "name": f"{prefix}, {thread}",
                "unit": "nanoseconds",
                "startValue": written[0]["at"],
                "endValue": written[-1]["at"],
                "events": written,
            }
        )
    return profiles


def _threads(table: EventTable) -> Iterator[tuple[str, list[tuple[bool, str, int]]]]:
    """Yield each thread with its frames as they open and close, in order of time and nested.

    What outlasts the frame that it began in is closed with it.
    """
    rows = np.flatnonzero(table.in_categories(NESTED_CATEGORIES | PYTHON_CATEGORIES))
    for lane in by_thread(table, rows):
        if len(lane):
            pid, tid = table.pids[table.pid[lane[0]]], table.tids[table.tid[lane[0]]]
            yield f"process {pid} thread {tid}", _nested(table, lane)


def _nested(table: EventTable, lane: Int64s) -> list[tuple[bool, str, int]]:
    events: list[tuple[bool, str, int]] = []
    under_way: list[tuple[str, int]] = []
    for row, start_ns, end_ns in zip(
        lane.tolist(), table.ts_ns[lane].tolist(), table.end_ns[lane].tolist(), strict=True
    ):
        while under_way and under_way[-1][1] <= start_ns:
            events.append((False, *under_way.pop()))
        name = table.names[table.name[row]]
        events.append((True, name, start_ns))
        under_way.append((name, min(end_ns, under_way[-1][1]) if under_way else end_ns))
    while under_way:
        events.append((False, *under_way.pop()))
    return events


def _frame(name: str) -> str:
    return " ".join(name.replace(";", ":").split()) or "?"
