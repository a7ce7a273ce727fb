"""What every step cost, always: one record per step, with no profiler running.

The training thread leaves a tuple per step; the finisher makes records of them now and then. In a long job
older steps are thinned: neighbours are added up, and each record says how many steps it stands for.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from time import perf_counter

from autoprof.agent.finisher import Finisher
from autoprof.agent.guard import entry
from autoprof.run import store
from autoprof.run.steps import RECORD_BYTES, Row, StepRecord, pack, rows, unpack

Parts = tuple[int, int, float, float, float, int, bool]
"""The fields of ``StepParts`` as a plain tuple."""

_NEWEST = 2048
_GROUPS = 4096
_MOST = 8192
"""Records in a file at most: the newest stay one by one, older ones are joined into groups."""
_FIRST_GROUP = 16
"""Steps of a group at first: smaller ones would cost more to make than they tell."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
"""Between writes: soon at first, so that a short job that is killed leaves something too."""
_MOST_PENDING = 4096
_LIMIT_PENDING = 32768
"""Steps that wait for a finisher that is busy; more of them push the oldest out."""

_STEPS, _PROFILED = StepRecord._fields.index("steps"), StepRecord._fields.index("profiled")
_slowest_wall_s = itemgetter(StepRecord._fields.index("slowest_wall_s"))
_draw = random.Random()
"""Our own: the script's draws stay what they are."""


class StepRecords:
    """The records of one rank, in memory and in the file at ``path``.

    ``failed`` is called on the finisher with an ``OSError`` the first time that the file cannot be written,
    ``written`` with no arguments each time that it has been. ``whole`` has the file replaced rather than
    appended to.
    """

    def __init__(
        self,
        path: Path,
        header: bytes,
        finisher: Finisher,
        *,
        failed: Callable[[OSError], None],
        written: Callable[[], None],
        whole: bool = False,
    ) -> None:
        self.path = path
        self._header = header
        self._finisher = finisher
        self._failed = failed
        self._written = written
        self._whole = whole
        self._pending: deque[Parts | None] = deque(maxlen=_LIMIT_PENDING)
        self._profiled: deque[int] = deque(maxlen=_LIMIT_PENDING)
        self._due_at = 0.0  # the first step is written at once
        self._due_count = _MOST_PENDING
        self._pause_s = _FIRST_PAUSE_S
        self._kept = Kept()
        self._reached = 0  # the step after the last one that is kept
        self._on_disk = 0  # bytes of the file; 0 where it has to be written anew
        self._has_failed = False

    # On the training thread.

    def add(self, parts: Parts, now: float) -> None:
        """Take a step that has ended ``now``, by ``time.perf_counter``."""
        pending = self._pending
        pending.append(parts)
        if now >= self._due_at or len(pending) >= self._due_count:
            self._due_at, self._due_count = float("inf"), _LIMIT_PENDING + 1  # until it is done
            self._finisher.submit(self.flush)

    def note_profiled(self, step: int) -> None:
        """Note that the agent's profiler is at work in ``step``, which is under way."""
        self._profiled.append(step)

    def start_over(self) -> None:
        """Drop everything: what has been counted were no steps."""
        self._profiled.clear()
        self._pending.append(None)

    # On the finisher.

    @property
    def kept(self) -> list[StepRecord]:
        """The records, oldest first."""
        return unpack(bytes(self._kept.data))

    def _forget(self) -> None:
        self._kept, self._on_disk, self._reached = Kept(), 0, 0
        with suppress(OSError):
            self.path.unlink()

    @entry
    def flush(self) -> None:
        """Write what has come since the last time."""
        fresh: list[Parts] = []
        for _ in range(len(self._pending)):
            parts = self._pending.popleft()
            if parts is None:
                fresh.clear()
                self._forget()
            else:
                fresh.append(parts)
        fresh.sort()  # where two threads train, one may be overtaken
        while fresh and fresh[0][0] < self._reached:
            del fresh[0]
        if fresh:
            self._reached = fresh[-1][0] + fresh[-1][1]
            if self._kept.add(self._packed(fresh)):
                self._on_disk = 0
            self._write()
        elif self._has_failed:
            self._write()
        self._pause_s = min(1.5 * self._pause_s, _LONGEST_PAUSE_S)
        self._due_at, self._due_count = perf_counter() + self._pause_s, _MOST_PENDING

    def _packed(self, fresh: list[Parts]) -> bytes:
        profiled = set()
        while self._profiled and self._profiled[0] < self._reached:
            profiled.add(self._profiled.popleft())
        return packed(fresh, profiled)

    def _write(self) -> None:
        size = len(self._header) + len(self._kept.data)
        try:
            if not self._appended(size):
                store.write_bytes(self.path, self._header + self._kept.data)
        except OSError as error:
            self._on_disk = 0
            if not self._has_failed:
                self._has_failed = True
                self._failed(error)
            return
        self._on_disk, self._has_failed = size, False
        self._written()

    def _appended(self, size: int) -> bool:
        """Append what the file lacks, where it is as it was left."""
        if self._whole or not self._on_disk:
            return False
        try:
            with open(self.path, "r+b", buffering=0) as file:
                if file.seek(0, os.SEEK_END) != self._on_disk:
                    return False
                lacking = bytes(self._kept.data[self._on_disk - size :])
                return not lacking or file.write(lacking) == len(lacking)
        except FileNotFoundError:  # somebody has removed it
            return False


class Kept:
    """At most :data:`_MOST` records, as bytes, however many steps there have been."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._grouped = 0  # bytes at the beginning that are groups of about `_group_steps`
        self._group_steps = _FIRST_GROUP

    def add(self, fresh: bytes) -> bool:
        """Take records that follow those there are; returns whether older ones were thinned for it."""
        self.data += fresh
        if len(self.data) <= _MOST * RECORD_BYTES:
            return False
        border = len(self.data) - _NEWEST * RECORD_BYTES
        grouped = bytes(self.data[: self._grouped])
        grouped += pack(joined(rows(bytes(self.data[self._grouped : border])), self._group_steps))
        while len(grouped) > _GROUPS * RECORD_BYTES:
            self._group_steps *= 2
            grouped = pack(joined(rows(grouped), self._group_steps))
        self.data[:border] = grouped
        self._grouped = len(grouped)
        return True


def packed(fresh: Iterable[Parts], profiled: Collection[int]) -> bytes:
    """Return the records of what the clock told of steps, as bytes; ``profiled`` are those with a profiler.

    No object stays of a step: many at once would have the garbage collector look through the job's.
    """
    return pack(
        (
            first,
            first,
            steps,
            micro_steps,
            skipped,
            sum(first <= step < first + steps for step in profiled) if profiled else 0,
            wall_s,
            wait_s,
            optimizer_s,
            wall_s / steps,
            wall_s / steps,
        )
        for first, steps, wall_s, wait_s, optimizer_s, micro_steps, skipped in fresh
    )


def joined(records: Sequence[Row], most_steps: int) -> list[Row]:
    """Add neighbours up into records of at most ``most_steps`` steps; larger ones stay as they are."""
    groups: list[list[Row]] = []
    group: list[Row] = []
    steps = most_steps
    for record in records:
        steps += record[_STEPS]
        if steps > most_steps:
            group = []
            groups.append(group)
            steps = record[_STEPS]
        group.append(record)
    return [_joined(group) for group in groups]


def _joined(group: Sequence[Row]) -> Row:
    if len(group) == 1:
        return group[0]
    columns = list(zip(*group, strict=True))
    steps, micro_steps, skipped, profiled, wall_s, wait_s, optimizer_s = map(sum, columns[2:9])
    candidates = group
    if profiled:
        candidates = [one for one in group if 2 * one[_PROFILED] < one[_STEPS]] or group
    slowest = max(candidates, key=_slowest_wall_s)
    drawn = int(_draw.random() * steps)
    one = next(
        one for one, reached in zip(group, accumulate(columns[_STEPS]), strict=True) if drawn < reached
    )
    counts = (group[0][0], slowest[1], steps, micro_steps, skipped, profiled)
    return (*counts, wall_s, wait_s, optimizer_s, one[9], slowest[10])
