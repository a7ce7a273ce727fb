"""All ranks on one timeline: many traces in, one Chrome trace for Perfetto out.

Each trace is read twice and never held as a whole: once for its clock, once to be written.
"""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import msgspec
import numpy as np

from autoprof.analysis.clocks import UNKNOWN, Alignment, CollectiveKey, align, collective_ends
from autoprof.analysis.errors import AnalysisError, Losses, TraceError
from autoprof.analysis.inputs import TraceInput, newest_per_rank, with_rank
from autoprof.analysis.output import check_output, is_same, replacing
from autoprof.analysis.pieces import Event, Outside, read_events
from autoprof.analysis.reader import lane, read_trace
from autoprof.analysis.source import read_blocks
from autoprof.analysis.table import EventTable, Int64s
from autoprof.analysis.times import usable_ns, with_exact

SUFFIXES = (".json", ".json.gz")

_EVENTS = msgspec.json.Decoder(list[dict[str, Any]])
# A rank's processes sort as rank * this + place; a rank has fewer processes and devices than that.
_PLACES = 1000
_DEVICE_PLACE = 500
_OTHER_PLACE = 900


@dataclass
class Survey:
    """What must be known of a trace before any is written. Times are Unix nanoseconds by its own clock."""

    given: TraceInput
    rank: int
    host: str | None
    base_ns: int
    first_ns: int
    last_correlation: int
    collectives: dict[CollectiveKey, Int64s]
    process_names: dict[int | str, str]
    process_labels: dict[int | str, str]
    devices: set[int | str]
    alignment: Alignment = UNKNOWN


@dataclass
class Merged:
    """What became of a merge: rows for a person, and what to tell them besides."""

    surveys: list[Survey]
    events: int = 0
    added_rows: int = 0
    notes: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def merge(inputs: list[TraceInput], output: Path) -> Merged:
    """Write all traces of ``inputs`` to ``output`` as one; gzip where its name ends in ``.gz``.

    Traces that cannot be read are left out and listed in the result.

    Raises:
        AnalysisError: no trace can be read, a trace has no rank, or ``output`` cannot be a trace's name.
        OSError: ``output`` cannot be written.
    """
    check_output(output, SUFFIXES, inputs)
    merged = Merged([])
    inputs = [one for one in inputs if not is_same(one.path, output)]
    surveys = _survey_all(newest_per_rank(inputs, merged.notes.append), merged)
    _align(surveys)
    merged.surveys = surveys
    with (
        replacing(output) as temporary,
        _open(temporary, compress=output.name.endswith(".gz")) as file,
    ):
        _write(file, merged)
    return merged


def _survey_all(inputs: list[TraceInput], merged: Merged) -> list[Survey]:
    surveys = []
    for one in inputs:
        try:
            table = read_trace(one.path)
        except TraceError as error:
            merged.unreadable.append(str(error))
            continue
        if "merged" in table.header.autoprof:
            merged.notes.append(f"{one.path.name} is itself a merged trace: left out")
            continue
        surveys.append(_survey(one, table))
        merged.notes += [f"{one.path.name}: {line}" for line in table.losses.lines()]
    kept = newest_per_rank((survey.given for survey in surveys), merged.notes.append)
    by_path = {survey.given.path: survey for survey in surveys}
    if not kept:
        because = f": {merged.unreadable[0]}" if merged.unreadable else ""
        raise AnalysisError(f"none of the {len(inputs)} traces can be merged{because}")
    return [by_path[one.path] for one in kept]


def _survey(one: TraceInput, table: EventTable) -> Survey:
    one = with_rank(one, table.header.rank)
    if one.rank is None:
        raise AnalysisError(
            f"{one.path} names no rank: neither distributedInfo.rank in it nor rank<number> in its name"
        )
    on_device = table.on_device()
    devices = {table.pids[row] for row in np.unique(table.pid[on_device]).tolist()}
    devices |= {pid for pid, label in table.process_labels.items() if label.startswith("GPU")}
    return Survey(
        given=one,
        rank=one.rank,
        host=table.header.host,
        base_ns=table.header.base_ns,
        first_ns=int(table.ts_ns.min(initial=2**62)) + table.header.base_ns if len(table) else 2**62,
        last_correlation=int(table.correlation.max(initial=0)),
        collectives=collective_ends(table),
        process_names=table.process_names,
        process_labels=table.process_labels,
        devices=devices,
    )


def _align(surveys: list[Survey]) -> None:
    """Align the ranks within each capture with its lowest rank; captures follow each other by base time."""
    for capture in dict.fromkeys(survey.given.capture for survey in surveys):
        together = [survey for survey in surveys if survey.given.capture == capture]
        for survey, alignment in zip(
            together, align([survey.collectives for survey in together]), strict=True
        ):
            survey.alignment = alignment
            survey.collectives = {}


def _open(path: Path, *, compress: bool) -> IO[bytes]:
    if not compress:
        return open(path, "wb")
    try:
        from isal import igzip

        return cast(IO[bytes], igzip.open(path, "wb", compresslevel=2))
    except ImportError:
        return cast(IO[bytes], gzip.open(path, "wb", compresslevel=4))


def _write(file: IO[bytes], merged: Merged) -> None:
    starts = [
        survey.first_ns - survey.alignment.shift_ns for survey in merged.surveys if survey.first_ns < 2**62
    ]
    # Small times keep their nanoseconds in a double; whole seconds are easier on the eye.
    origin_ns = min(starts, default=0) // 10**9 * 10**9
    head = {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": max(origin_ns, 0),
        "autoprof": {"merged": [_described(survey) for survey in merged.surveys]},
    }
    file.write(msgspec.json.encode(head)[:-1] + b',"traceEvents":[')
    numbers = _Numbers()
    separator = b"\n"
    for survey in merged.surveys:
        rewriter = _Rewriter(survey, origin_ns, numbers)
        for events in rewriter.pieces():
            file.write(separator + b",\n".join(map(msgspec.json.encode, events)))
            separator = b",\n"
        numbers.last_correlation += survey.last_correlation
        merged.events += rewriter.written
        merged.added_rows += rewriter.added
        merged.notes += [f"{survey.given.path.name}: {line}" for line in rewriter.losses.lines()]
    file.write(b"\n]}\n")


def _described(survey: Survey) -> dict[str, Any]:
    alignment = survey.alignment
    return {
        "rank": survey.rank,
        "host": survey.host,
        "capture_first_step": survey.given.capture,
        "file": survey.given.path.name,
        "shift_ns": alignment.shift_ns,
        "collectives_matched": alignment.matched,
        "residual_skew_median_ns": alignment.residual_median_ns,
        "residual_skew_max_ns": alignment.residual_max_ns,
    }


class _Numbers:
    """Numbers that no two ranks share, dealt out one after another so that none can clash with another."""

    def __init__(self) -> None:
        self.pids: dict[tuple[int, int | str], int] = {}
        self.last_id = 0
        self.last_correlation = 0

    def pid(self, rank: int, pid: int | str) -> int:
        """Return the number of a rank's process, from 1: viewers take process 0 for the idle one."""
        return self.pids.setdefault((rank, pid), len(self.pids) + 1)

    def new_id(self) -> int:
        """Return an id for a flow or an asynchronous event."""
        self.last_id += 1
        return self.last_id


class _Rewriter:
    """One trace's events as they stand in the merged one."""

    def __init__(self, survey: Survey, origin_ns: int, numbers: _Numbers) -> None:
        self.losses = Losses()
        self.written = 0
        self.added = 0
        self._survey = survey
        self._numbers = numbers
        self._move_ns = survey.base_ns - (survey.alignment.shift_ns) - origin_ns
        self._first_correlation = numbers.last_correlation
        self._ids: dict[int | str, int] = {}
        self._met: dict[int | str, None] = {}
        self._described: set[tuple[str, int | str]] = set()

    def pieces(self) -> Iterator[list[Event]]:
        """Yield the rewritten events, then rows for processes that the trace does not name or sort."""
        path = self._survey.given.path
        ignored = Losses()  # the survey has said them
        for events in read_events(read_blocks(path, ignored), _decode, Outside(), ignored):
            rewritten = [event for event in map(self._rewrite, events) if event is not None]
            self.written += len(rewritten)
            if rewritten:
                yield rewritten
        rows = [
            self._row(kind, pid)
            for pid in self._met
            for kind in ("process_name", "process_sort_index")
            if (kind, pid) not in self._described
        ]
        self.added = len(rows)
        if rows:
            yield rows

    def _rewrite(self, event: Event) -> Event | None:
        phase = event.get("ph")
        if not isinstance(phase, str):
            self.losses.add("event that does not say of what kind it is: left out")
            return None
        time_ns = usable_ns(event.get("ts"))
        if time_ns is not None:
            event["ts"] = (time_ns + self._move_ns) / 1000
        elif phase == "M":
            event.pop("ts", None)
        else:
            self.losses.add("event without a usable time: left out")
            return None
        if phase == "X" and (usable_ns(event.get("dur")) or -1) < 0:
            event["dur"] = 0
        pid = lane(event.get("pid"))
        self._met.setdefault(pid)
        event["pid"] = self._numbers.pid(self._survey.rank, pid)
        if phase == "M" and event.get("name") in ("process_name", "process_sort_index"):
            kind = event["name"]
            self._described.add((kind, pid))
            event["args"] = self._row(kind, pid, event.get("args"))["args"]
        for key in ("id", "bind_id"):
            if key in event:
                event[key] = self._id(event[key])
        if isinstance(event.get("id2"), dict):
            event["id2"] = {scope: self._id(value) for scope, value in event["id2"].items()}
        args = event.get("args")
        if isinstance(args, dict) and type(number := args.get("correlation")) is int and number > 0:
            args["correlation"] = number + self._first_correlation
        return event

    def _id(self, value: Any) -> int:
        value = lane(value)
        if isinstance(value, str) and value.startswith("0x"):
            with contextlib.suppress(ValueError):
                value = int(value, 16)
        number = self._ids.get(value)
        if number is None:
            number = self._ids[value] = self._numbers.new_id()
        return number

    def _row(self, kind: str, pid: int | str, args: Any = None) -> Event:
        survey = self._survey
        row = {"ph": "M", "name": kind, "pid": self._numbers.pid(survey.rank, pid), "tid": 0}
        if kind == "process_sort_index":
            return row | {"args": {"sort_index": survey.rank * _PLACES + self._place(pid)}}
        name = args.get("name") if isinstance(args, dict) else survey.process_names.get(pid)
        label = survey.process_labels.get(pid, "")
        if not name:
            name = label or str(pid) or "other"
        elif label not in ("", "CPU", name):
            name = f"{name} ({label})"
        return row | {"args": {"name": f"rank {survey.rank}: {name}"}}

    def _place(self, pid: int | str) -> int:
        """Return where a process stands in its rank: CPU, devices, then the profiler's own."""
        if isinstance(pid, str):
            return _OTHER_PLACE
        if pid not in self._survey.devices:
            return 0
        return _DEVICE_PLACE + max(0, min(pid, _OTHER_PLACE - _DEVICE_PLACE - 1))


def _decode(text: bytes) -> list[Event]:
    events: list[Event] = _EVENTS.decode(text)
    times = [event.get("ts") for event in events]
    if all(time is None or type(time) in (int, float) for time in times):
        exact = with_exact(text, times)
        if exact is not times:
            for event, time in zip(events, exact, strict=True):
                event["ts"] = time
    return events
