"""What every step cost: the file that each rank writes without any profiler, its format and its reader.

A file is one line of JSON about the rank, then records of :data:`RECORD_BYTES` bytes each, in order of their
steps. A file of which only the beginning is there, cut anywhere after that line, is read up to its last whole
record. A record stands for one step or, in the older part of a long job, for several that were added up.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

from autoprof.run.layout import short_host

FOLDER = "steps"
_NAME = re.compile(r"rank(?P<rank>\d+)\.(?P<host>.+)_(?P<pid>\d+)\.(?P<time_ns>\d+)\.steps")
_FORMAT = "autoprof steps"
_SCHEMA = 1
_LONGEST_HEADER = 65536
_RECORD = struct.Struct("<QQIIIIfffff")
RECORD_BYTES = _RECORD.size

Row = tuple[Any, ...]
"""The fields of a :class:`StepRecord`."""


class StepFileError(ValueError):
    """A file of step records cannot be used; the message names it and says why, in one line."""


class StepRecord(NamedTuple):
    """What one step cost, or several together. Counts and seconds are sums over its steps."""

    first_step: int
    slowest_step: int
    """The step that took longest; one without a profiler where there is one."""
    steps: int
    """How many steps the record stands for."""
    micro_steps: int
    skipped: int
    """Steps whose update a gradient scaler skipped."""
    profiled: int
    """Steps during which torch's profiler was started, run or stopped by the agent."""
    wall_s: float
    wait_s: float
    """Seconds spent waiting for batches."""
    optimizer_s: float
    """Seconds inside the optimizers' ``step``."""
    one_wall_s: float
    """Wall seconds of one of its steps, drawn at random: a sum has no spread, a sample has."""
    slowest_wall_s: float

    @property
    def slowed(self) -> bool:
        """Whether the agent's own profiler was at work in most of its steps."""
        return 2 * self.profiled >= self.steps


@dataclass(frozen=True)
class StepFile:
    """One rank's step records."""

    path: Path
    rank: int
    host: str
    accelerator: str
    """Kind of the accelerator that was present (``cuda``); empty where there was none."""
    records: list[StepRecord]
    cut_off: bool
    """Whether the file ends in the middle of a record."""


def file_name(rank: int, host: str, pid: int, time_ns: int) -> str:
    """Return the name of one rank's file in :data:`FOLDER`; ``time_ns`` is Unix time in nanoseconds."""
    return f"rank{rank:05d}.{short_host(host)}_{pid}.{time_ns}.steps"


def header(**about: Any) -> bytes:
    """Return the first line of a file. ``about`` holds ``rank``, ``host``, ``accelerator`` and more."""
    line = {"format": _FORMAT, "schema": _SCHEMA, "record": _RECORD.format, "fields": StepRecord._fields}
    return json.dumps({**line, **about}).encode() + b"\n"


def pack(records: Iterable[Row]) -> bytes:
    """Return records as they stand in a file. Seconds keep seven digits."""
    return b"".join(starmap(_RECORD.pack, records))


def unpack(data: bytes) -> list[StepRecord]:
    """Return the whole records that ``data`` holds; the inverse of :func:`pack`."""
    return list(map(StepRecord._make, rows(data[: len(data) - len(data) % RECORD_BYTES])))


def rows(data: bytes) -> list[Row]:
    """Return records as plain tuples, for who handles many; ``data`` holds whole ones."""
    return list(_RECORD.iter_unpack(data))


def read(path: Path) -> StepFile:
    """Read one rank's file.

    Raises:
        OSError: the file cannot be read.
        StepFileError: it is not such a file, or its content is damaged and not just cut off.
    """
    data = path.read_bytes()
    end = data.find(b"\n", 0, _LONGEST_HEADER)
    try:
        about = json.loads(data[:end]) if end >= 0 else None
    except (ValueError, RecursionError):
        about = None
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise StepFileError(f"{path}: not a file of step records, or cut off in its first line")
    if about.get("schema") != _SCHEMA or about.get("record") != _RECORD.format:
        raise StepFileError(
            f"{path}: step records of schema {about.get('schema')!r}; this version reads schema {_SCHEMA}"
        )
    rank, host, accelerator = about.get("rank"), about.get("host"), about.get("accelerator")
    if type(rank) is not int or rank < 0 or not isinstance(host, str) or not isinstance(accelerator, str):
        raise StepFileError(f"{path}: its first line lacks rank, host or accelerator")
    records = unpack(data[end + 1 :])
    reached = 0
    for number, record in enumerate(records):
        if why := _damage(record, reached):
            raise StepFileError(f"{path}: record {number} is damaged: {why}")
        reached = record.first_step + record.steps
    cut_off = (len(data) - end - 1) % RECORD_BYTES != 0
    return StepFile(path, rank, host, accelerator, records, cut_off)


def _damage(record: StepRecord, reached: int) -> str:
    if record.steps < 1:
        return "it stands for no step"
    if record.first_step < reached:
        return f"it begins at step {record.first_step}, but the one before it reaches step {reached - 1}"
    if record.slowest_step < record.first_step:
        return f"its slowest step is {record.slowest_step}, before its first, {record.first_step}"
    if max(record.skipped, record.profiled) > record.steps:
        return f"it stands for {record.steps} steps and counts more of them than that"
    if not all(math.isfinite(seconds) and seconds >= 0 for seconds in record[6:]):
        return "a time is not a number of seconds"
    return ""


def find(run: Path) -> tuple[list[Path], int]:
    """List the newest file of each rank of a run by rank, and count older ones of the same ranks.

    Older ones are of an earlier attempt of the job, or of another run under the same id.
    """
    newest: dict[int, tuple[int, Path]] = {}
    older = 0
    folder = run / FOLDER
    for path in folder.iterdir() if folder.is_dir() else ():
        if match := _NAME.fullmatch(path.name):
            rank, time_ns = int(match["rank"]), int(match["time_ns"])
            older += rank in newest
            newest[rank] = max(newest.get(rank, (0, path)), (time_ns, path))
    return [newest[rank][1] for rank in sorted(newest)], older
