"""The events of all ranks as one table for other tools."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from autoprof.analysis import stacks
from autoprof.analysis.errors import AnalysisError, TraceError
from autoprof.analysis.inputs import TraceInput, newest_per_rank, with_rank
from autoprof.analysis.nesting import self_ns
from autoprof.analysis.output import check_output, replacing
from autoprof.analysis.reader import read_trace
from autoprof.analysis.table import EventTable

# Column and whether it holds text. Times of start are Unix time by the rank's own clock; an event without a
# step, stream, device, correlation, external id or size has no value there.
COLUMNS = {
    "rank": False,
    "capture_first_step": False,
    "step": False,
    "name": True,
    "category": True,
    "process": True,
    "thread": True,
    "start_unix_ns": False,
    "duration_ns": False,
    "self_ns": False,
    "device": False,
    "stream": False,
    "correlation": False,
    "external_id": False,
    "size_bytes": False,
}

Rows = dict[str, list[Any]]


@dataclass
class Exported:
    """What was written: events, traces, and lines for a person."""

    events: int = 0
    traces: int = 0
    without_python: int = 0
    """Traces in which no Python frame was recorded."""
    notes: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def export_csv(inputs: list[TraceInput], output: Path) -> Exported:
    """Write one row per event, with a heading.

    Raises:
        AnalysisError: no trace can be read, or ``output`` cannot be written.
    """
    check_output(inputs=inputs, output=output, suffixes=(".csv",))
    with replacing(output) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        return _each(
            inputs, lambda one, table: writer.writerows(zip(*_rows(one, table).values(), strict=True))
        )


def export_parquet(inputs: list[TraceInput], output: Path) -> Exported:
    """Write one row group per trace.

    Raises:
        AnalysisError: pyarrow is not installed, no trace can be read, or ``output`` cannot be written.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise AnalysisError("writing Parquet needs pyarrow: pip install pyarrow") from None
    check_output(inputs=inputs, output=output, suffixes=(".parquet",))
    text = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    schema = pyarrow.schema(
        [(name, text if is_text else pyarrow.int64()) for name, is_text in COLUMNS.items()]
    )
    with replacing(output) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
        return _each(
            inputs, lambda one, table: writer.write_table(pyarrow.table(_rows(one, table), schema=schema))
        )


def export_collapsed(inputs: list[TraceInput], output: Path) -> Exported:
    """Write one line per call stack with its self time in nanoseconds, as flame graph tools read it.

    Raises:
        AnalysisError: no trace can be read or holds a stack, or ``output`` cannot be written.
    """
    check_output(inputs=inputs, output=output, suffixes=(".txt", ".collapsed"))
    found: Counter[str] = Counter()
    exported = _each(inputs, lambda one, table: found.update(stacks.collapsed(table, _title(one))))
    _check_stacks(exported, bool(found))
    with replacing(output) as temporary:
        text = "".join(f"{stack} {self_ns}\n" for stack, self_ns in sorted(found.items()))
        temporary.write_text(text, encoding="utf-8")
    return exported


def export_speedscope(inputs: list[TraceInput], output: Path) -> Exported:
    """Write one file for <https://www.speedscope.app>, a profile per rank and thread.

    Raises:
        AnalysisError: no trace can be read or holds a stack, or ``output`` cannot be written.
    """
    check_output(inputs=inputs, output=output, suffixes=(".json",))
    frames: dict[str, int] = {}
    profiles: list[dict[str, Any]] = []

    def add(one: TraceInput, table: EventTable) -> None:
        profiles.extend(stacks.speedscope_profiles(table, _title(one), frames))

    exported = _each(inputs, add)
    _check_stacks(exported, bool(profiles))
    document = {
        "$schema": stacks.SCHEMA,
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": profiles,
        "name": output.name,
        "activeProfileIndex": 0,
        "exporter": "autoprof",
    }
    with replacing(output) as temporary:
        temporary.write_bytes(msgspec.json.encode(document))
    return exported


def _title(one: TraceInput) -> str:
    capture = "" if one.capture is None else f" capture {one.capture}"
    return f"rank {'?' if one.rank is None else one.rank}{capture}"


def _check_stacks(exported: Exported, any_found: bool) -> None:
    if not any_found:
        raise AnalysisError("there are no stacks to export: no operator, range or Python frame was recorded")
    if exported.without_python:
        exported.notes.append(
            f"{exported.without_python} of {exported.traces} traces hold no Python frames, their stacks "
            "are of operators and ranges: record with ACCELPROF_WITH_STACK=1"
        )


def _each(inputs: list[TraceInput], write: Callable[[TraceInput, EventTable], Any]) -> Exported:
    exported = Exported()
    chosen = newest_per_rank(inputs, exported.notes.append)
    seen: dict[tuple[int | None, int], Path] = {}
    # Where only the file knows its rank, the newest of a rank must come first.
    for one in sorted(chosen, key=lambda given: -given.time_ns if given.rank is None else 0):
        try:
            table = read_trace(one.path)
        except TraceError as error:
            exported.unreadable.append(str(error))
            continue
        known = with_rank(one, table.header.rank)
        if "merged" in table.header.autoprof:
            exported.notes.append(f"{one.path.name} is itself a merged trace: left out")
            continue
        if known.rank is not None:
            newer = seen.setdefault((known.capture, known.rank), one.path)
            if newer != one.path:
                exported.notes.append(
                    f"two traces of rank {known.rank}: {newer.name} is newer and used, {one.path.name} is not"
                )
                continue
        write(known, table)
        exported.without_python += not stacks.has_python_frames(table)
        exported.traces += 1
        exported.events += len(table)
        exported.notes += [f"{one.path.name}: {line}" for line in table.losses.lines()]
    if not exported.traces:
        because = f": {exported.unreadable[0]}" if exported.unreadable else ""
        raise AnalysisError(f"none of the {len(inputs)} traces can be exported{because}")
    return exported


def _rows(one: TraceInput, table: EventTable) -> Rows:
    count = len(table)

    def known(column: Any) -> list[int | None]:
        return [None if value < 0 else value for value in column.tolist()]

    def text(column: Any, values: list[Any]) -> list[str]:
        words = [str(value) for value in values]
        return [words[row] for row in column.tolist()]

    steps = table.steps
    numbers = np.array([-1, *(step.number for step in steps)], dtype=np.int64)
    at = np.searchsorted(np.array([step.start_ns for step in steps], dtype=np.int64), table.ts_ns, "right")
    inside = table.ts_ns < np.array([0, *(step.end_ns for step in steps)], dtype=np.int64)[at]
    return {
        "rank": [one.rank] * count,
        "capture_first_step": [one.capture] * count,
        "step": known(np.where(inside, numbers[at], -1)),
        "name": text(table.name, table.names),
        "category": text(table.category, table.categories),
        "process": text(table.pid, table.pids),
        "thread": text(table.tid, table.tids),
        "start_unix_ns": (table.ts_ns + table.header.base_ns).tolist(),
        "duration_ns": table.dur_ns.tolist(),
        "self_ns": self_ns(table).tolist(),
        "device": known(table.device),
        "stream": known(table.stream),
        "correlation": known(table.correlation),
        "external_id": known(table.external_id),
        "size_bytes": known(table.size_bytes),
    }
