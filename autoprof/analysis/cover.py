"""Stretches of time as sets: how much of a window some kind of event covers, however events overlap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoprof.analysis.table import Bools, EventTable, Int64s


@dataclass(frozen=True)
class Cover:
    """Disjoint stretches in order: ``starts`` and ``ends`` have the shape (k,), nanoseconds."""

    starts: Int64s
    ends: Int64s

    @classmethod
    def of(cls, starts: Int64s, ends: Int64s) -> Cover:
        """Join stretches given in any order, overlapping or not."""
        if not len(starts):
            return cls(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        order = np.argsort(starts, kind="stable")
        starts, reached = starts[order], np.maximum.accumulate(ends[order])
        first = np.concatenate(([True], starts[1:] > reached[:-1]))
        last = np.concatenate((first[1:], [True]))
        return cls(starts[first], reached[last])

    @classmethod
    def of_rows(cls, table: EventTable, rows: Bools) -> Cover:
        """Join the events that ``rows``, shape (n,), selects."""
        starts = table.ts_ns[rows]
        return cls.of(starts, starts + table.dur_ns[rows])

    def __or__(self, other: Cover) -> Cover:
        return Cover.of(np.concatenate((self.starts, other.starts)), np.concatenate((self.ends, other.ends)))

    @property
    def total_ns(self) -> int:
        """Return how long all stretches are together."""
        return int((self.ends - self.starts).sum())

    def within(self, begins: Int64s, ends: Int64s) -> Int64s:
        """Return how much of each window is covered, nanoseconds, of the windows' shape."""
        return self._until(ends) - self._until(begins)

    def contains(self, times: Int64s) -> Bools:
        """Return which times fall into a stretch, its end left out; of their shape."""
        if not len(self.starts):
            return np.zeros(len(times), dtype=np.bool_)
        at = np.searchsorted(self.starts, times, side="right") - 1
        inside: Bools = (at >= 0) & (times < self.ends[at])
        return inside

    def _until(self, times: Int64s) -> Int64s:
        before = np.concatenate(([0], np.cumsum(self.ends - self.starts)))
        at = np.searchsorted(self.starts, times, side="right")
        # What is left of the stretch that a time falls into does not count.
        beyond = np.maximum(self.ends[at - 1] - times, 0) if len(self.starts) else np.zeros_like(times)
        until: Int64s = before[at] - np.where(at > 0, beyond, 0)
        return until
