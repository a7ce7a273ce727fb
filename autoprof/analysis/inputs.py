"""Which traces a person means when they name a run, a capture, any folder of Chrome traces, or one file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from autoprof.analysis.errors import AnalysisError
from autoprof.run import layout

_TRACE_NAME = re.compile(r"(?!\.).+\.json(\.gz|\.zst)?")
_NOT_TRACES = frozenset({layout.MANIFEST})
_TIME_IN_NAME = re.compile(r"\.(\d{19})\.")


@dataclass(frozen=True)
class TraceInput:
    """One trace to read.

    ``capture`` is the first step of its capture and ``rank`` the rank in its name; both are None where only
    the file itself may know. ``time_ns`` (Unix time) tells which of two is newer.
    """

    path: Path
    capture: int | None
    rank: int | None
    time_ns: int


def find_inputs(place: Path, capture: int | None = None) -> list[TraceInput]:
    """List the traces at ``place``, those of one capture only where one is named.

    Raises:
        AnalysisError: there are none, or it is not clear which run is meant.
    """
    if place.is_file():
        return [_input(place)]
    if not place.is_dir():
        raise AnalysisError(f"{place} is neither a folder nor a file; name a run or traces")
    traces = layout.find_traces(place)
    if not traces:
        return _in_any_folder(place, capture)
    captures = sorted({trace.first_step for trace in traces})
    if capture is not None and capture not in captures:
        known = ", ".join(map(str, captures))
        raise AnalysisError(f"no capture from step {capture} in {place}; there are {known}")
    return [
        TraceInput(trace.path, trace.first_step, trace.rank, trace.time_ns)
        for trace in traces
        if capture in (None, trace.first_step)
    ]


def _in_any_folder(folder: Path, capture: int | None) -> list[TraceInput]:
    runs = [run for run in layout.find_runs(folder) if run != folder]
    if len(runs) == 1:
        return find_inputs(runs[0], capture)
    if runs:
        names = ", ".join(run.name for run in runs[-3:])
        raise AnalysisError(f"{folder} holds {len(runs)} runs; name one of them, the latest are: {names}")
    files = [
        path
        for path in sorted(folder.iterdir())
        if _TRACE_NAME.fullmatch(path.name) and path.name not in _NOT_TRACES and path.is_file()
    ]
    if not files:
        raise AnalysisError(f"no trace in {folder}; traces are called *.json, *.json.gz or *.json.zst")
    if capture is not None:
        raise AnalysisError(f"{folder} is not a run of autoprof, so it has no capture from step {capture}")
    return [_input(path) for path in files]


def _input(path: Path) -> TraceInput:
    times = _TIME_IN_NAME.findall(path.name)
    return TraceInput(path, None, None, int(times[-1]) if times else path.stat().st_mtime_ns)


def newest_per_rank(inputs: Iterable[TraceInput], note: Callable[[str], None]) -> list[TraceInput]:
    """Keep one trace per capture and rank, the newest, and pass a line to ``note`` for each one left out.

    Traces of unknown rank are all kept.
    """
    kept: dict[object, TraceInput] = {}
    for one in sorted(inputs, key=lambda given: (given.time_ns, given.path)):
        key = one.path if one.rank is None else (one.capture, one.rank)
        if key in kept:
            older = kept[key].path.name
            note(f"two traces of rank {one.rank}: {one.path.name} is newer and used, {older} is not")
        kept[key] = one
    return sorted(
        kept.values(),
        key=lambda one: (one.capture or 0, one.rank if one.rank is not None else 2**63, one.path),
    )


def with_rank(one: TraceInput, rank: int | None) -> TraceInput:
    """Return ``one`` with the rank that the file itself names, unless its name in a run says it."""
    return one if one.rank is not None else replace(one, rank=rank)
