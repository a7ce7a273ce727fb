"""Trace file to event table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from autoprof.analysis import times as times_
from autoprof.analysis.errors import Losses, TraceError
from autoprof.analysis.pieces import NotATrace, Outside, metadata, read_events
from autoprof.analysis.source import read_blocks
from autoprof.analysis.table import Collective, EventTable, Header, Int64s

_INT64_MAX = 2**63 - 1


class _Args(
    msgspec.Struct,
    gc=False,
    rename={
        "external_id": "External id",
        "old_external_id": "external id",
        "collective": "Collective name",
        "elements": "In msg nelems",
        "group": "Process Group Name",
        "members": "Process Group Ranks",
    },
):
    """The arguments that an analysis asks for. torch and vendors disagree on their types, so any will do."""

    correlation: Any = None
    stream: Any = None
    device: Any = None
    external_id: Any = None
    old_external_id: Any = None
    bytes: Any = None
    collective: Any = None
    elements: Any = None
    dtype: Any = None
    group: Any = None
    members: Any = None
    name: Any = None
    labels: Any = None


class _Event(msgspec.Struct, gc=False):
    """One event as nearly every exporter writes it."""

    ph: str = ""
    name: str = ""
    cat: str | None = None
    ts: float | None = None
    dur: float | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    args: _Args | None = None


_EVENTS = msgspec.json.Decoder(list[_Event])
_NO_ARGS = _Args()
_ARGUMENTS = {field.encode_name: field.name for field in msgspec.structs.fields(_Args)}


def read_trace(path: Path) -> EventTable:
    """Read one Chrome trace into columns.

    ``.json``, gzip and zstd are told apart by their first bytes; the object form and the bare list form are
    taken. What is damaged is repaired or left out and listed in the table's ``losses``.

    Raises:
        TraceError: nothing of the file can be kept.
    """
    losses = Losses()
    outside = Outside()
    columns = _Columns(losses)
    try:
        for events in read_events(read_blocks(path, losses), _decode, outside, losses):
            columns.add(events)
    except NotATrace as error:
        because = f" ({'; '.join(losses.lines())})" if losses else ""
        raise TraceError(path, f"{error}{because}", error.byte) from None
    about = metadata(outside, losses)
    table = columns.table(path, Header.of(about, path))
    if losses and not len(table) and not table.other_events:
        raise TraceError(path, f"no event could be read: {'; '.join(losses.lines())}")
    return table


def _decode(text: bytes) -> list[_Event]:
    events = _EVENTS.decode(text)
    times = [event.ts for event in events]
    exact = times_.with_exact(text, times)
    if exact is not times:
        for event, time in zip(events, exact, strict=True):
            event.ts = time
    return events


class _Ids(dict[Any, int]):
    """Numbers values in the order in which they are first met."""

    def __missing__(self, value: Any) -> int:
        number = self[value] = len(self)
        return number


_INT64_COLUMNS = ("correlation", "stream", "device", "external_id", "size_bytes")
_INT32_COLUMNS = ("name", "category", "pid", "tid", "collective")


class _Columns:
    """Collects events of one trace as columns."""

    def __init__(self, losses: Losses) -> None:
        self.losses = losses
        self.pieces: dict[str, list[Any]] = {
            name: [] for name in ("ts_ns", "dur_ns", *_INT64_COLUMNS, *_INT32_COLUMNS)
        }
        self.names, self.categories, self.pids, self.tids = _Ids(), _Ids(), _Ids(), _Ids()
        self.collectives = _Ids()
        self.process_names: dict[int | str, str] = {}
        self.process_labels: dict[int | str, str] = {}
        self.thread_names: dict[tuple[int | str, int | str], str] = {}
        self.others: Counter[str] = Counter()
        self.begun: list[_Event] = []

    def add(self, given: list[Any]) -> None:
        """Take a list of typed events, or of plain ones from the tolerant path."""
        events = [event if type(event) is _Event else _event(event) for event in given]
        complete = [event for event in events if event.ph == "X"]
        if len(complete) < len(events):
            for event in events:
                if event.ph in ("B", "E"):
                    self.begun.append(event)
                elif event.ph != "X":
                    self.others[event.ph[:1]] += 1
                    if event.ph == "M":
                        self._describe(event)
        complete, start_ns = self._usable(complete)
        dur_us = np.array([event.dur for event in complete], dtype=np.float64)
        usable = np.abs(dur_us) < times_.LIMIT_US  # not a number is not usable either
        self.losses.add("event without a usable duration, taken as 0", count=int(np.count_nonzero(~usable)))
        negative = usable & (dur_us < 0)
        self.losses.add("negative duration, taken as 0", count=int(np.count_nonzero(negative)))
        self._append(complete, start_ns, times_.durations(np.where(usable & ~negative, dur_us, 0.0)))

    def _usable(self, events: list[_Event]) -> tuple[list[_Event], Int64s]:
        """Return the events that have a time, and their times."""
        ts_us = np.array([event.ts for event in events], dtype=np.float64)
        usable = np.abs(ts_us) < times_.LIMIT_US
        if not usable.all():
            self.losses.add("event without a usable time", count=int(np.count_nonzero(~usable)))
            events = [event for event, keep in zip(events, usable.tolist(), strict=True) if keep]
        return events, times_.nanoseconds([event.ts or 0.0 for event in events])

    def _append(self, events: list[_Event], start_ns: Int64s, dur_ns: Int64s) -> None:
        args = [event.args or _NO_ARGS for event in events]
        rows: dict[str, Any] = {
            "ts_ns": start_ns,
            "dur_ns": dur_ns,
            "name": list(map(self.names.__getitem__, [event.name for event in events])),
            "category": list(map(self.categories.__getitem__, [event.cat or "" for event in events])),
            "pid": _lanes([event.pid for event in events], self.pids),
            "tid": _lanes([event.tid for event in events], self.tids),
            "correlation": _numbers([arg.correlation for arg in args]),
            "stream": _numbers([arg.stream for arg in args]),
            "device": _numbers([arg.device for arg in args]),
            "external_id": _numbers(
                [arg.old_external_id if arg.external_id is None else arg.external_id for arg in args]
            ),
            "size_bytes": _numbers([arg.bytes for arg in args]),
            "collective": [self._collective(arg) for arg in args],
        }
        for name, column in rows.items():
            self.pieces[name].append(np.array(column, dtype=np.int32 if name in _INT32_COLUMNS else np.int64))

    def _collective(self, args: _Args) -> int:
        if args.collective is None and args.group is None:
            return -1
        elements = _number(args.elements)
        group = _text(args.group)
        return self.collectives[
            Collective(
                _text(args.collective),
                None if group is None else f"{group} {_text(args.members) or ''}".strip(),
                elements if elements >= 0 else None,
                _text(args.dtype),
            )
        ]

    def _describe(self, event: _Event) -> None:
        args = event.args or _NO_ARGS
        pid = lane(event.pid)
        if event.name == "process_name":
            self.process_names[pid] = _text(args.name) or ""
        elif event.name == "process_labels":
            self.process_labels[pid] = _text(args.labels) or ""
        elif event.name == "thread_name":
            self.thread_names[pid, lane(event.tid)] = _text(args.name) or ""

    def _pair(self) -> None:
        """Turn begin and end events into complete ones: of a thread, what began last ends first."""
        events, times = self._usable(self.begun)
        open_rows: dict[tuple[int | str, int | str], list[int]] = {}
        begins, ends = [], []
        for row in np.argsort(times, kind="stable").tolist():
            event = events[row]
            stack = open_rows.setdefault((lane(event.pid), lane(event.tid)), [])
            if event.ph == "B":
                stack.append(row)
            elif stack:
                begins.append(stack.pop())
                ends.append(row)
            else:
                self.losses.add("end without a beginning")
        self.losses.add("beginning without an end", count=sum(len(stack) for stack in open_rows.values()))
        self._append([events[row] for row in begins], times[begins], times[ends] - times[begins])

    def table(self, path: Path, header: Header) -> EventTable:
        """Return all that was added, sorted."""
        self._pair()
        columns = {name: np.concatenate(pieces) for name, pieces in self.pieces.items()}
        order = np.lexsort((-columns["dur_ns"], columns["ts_ns"]))
        return EventTable(
            path=path,
            header=header,
            **{name: column[order] for name, column in columns.items()},
            names=list(self.names),
            categories=list(self.categories),
            pids=list(self.pids),
            tids=list(self.tids),
            collectives=list(self.collectives),
            process_names=self.process_names,
            process_labels=self.process_labels,
            thread_names=self.thread_names,
            other_events=dict(self.others),
            losses=self.losses,
        )


def _lanes(values: list[Any], ids: _Ids) -> list[int]:
    known = set(map(type, values)) <= {int, str}
    return list(map(ids.__getitem__, values if known else map(lane, values)))


def _numbers(values: list[Any]) -> list[int]:
    if set(map(type, values)) <= {int, type(None)}:
        values = [-1 if value is None else value for value in values]
        if not values or (max(values) <= _INT64_MAX and min(values) >= -1):
            return values
    return [_number(value) for value in values]


def _event(given: dict[str, Any]) -> _Event:
    """Return a typed event from a decoded object of any types."""
    args = given.get("args")
    known = {}
    if isinstance(args, dict):
        known = {name: args[key] for key, name in _ARGUMENTS.items() if key in args}
    return _Event(
        ph=_text(given.get("ph")) or "",
        name=_text(given.get("name")) or "",
        cat=_text(given.get("cat")),
        ts=times_.microseconds(given.get("ts")),
        dur=times_.microseconds(given.get("dur")),
        pid=lane(given.get("pid")),
        tid=lane(given.get("tid")),
        args=_Args(**known) if known else None,
    )


def _text(value: Any) -> str | None:
    if isinstance(value, str) or value is None:
        return value
    try:
        return str(value)[:1000]
    except (ValueError, RecursionError):  # an endless number, a bottomless list
        return ""


def lane(value: Any) -> int | str:
    """Return a process, a thread or an id as a number or a text, whatever type it was written as."""
    if isinstance(value, int | str):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return _text(value) or ""


def _number(value: Any) -> int:
    """Return a whole number that fits a column, or -1; ROCm writes streams such as ``0x0``."""
    if type(value) is int:
        return value if -1 <= value <= _INT64_MAX else -1
    if isinstance(value, str):
        try:
            value = int(value, 0)
        except ValueError:
            return -1
        return value if -1 <= value <= _INT64_MAX else -1
    if isinstance(value, float) and value.is_integer():
        return _number(int(value))
    return -1
