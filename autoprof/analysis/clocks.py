"""How far apart the clocks of ranks are, told by collectives.

A collective in which every rank waits for every other ends at nearly the same moment everywhere. The
median over many of what the ends differ by is the difference of the clocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from autoprof.analysis.collectives import CPU_RANGE, KERNEL, WAITS_FOR_ALL
from autoprof.analysis.launches import launched_by
from autoprof.analysis.table import ANNOTATION_CATEGORIES, EventTable, Int64s

# What a collective is known by on every rank: step, group, kind, elements.
CollectiveKey: TypeAlias = tuple[int | None, str, str, int | None]


def collective_ends(table: EventTable) -> dict[CollectiveKey, Int64s]:
    """Return when the collectives of one trace ended.

    The arrays have the shape (number of collectives with that key,), in order of start, Unix nanoseconds
    by the rank's own clock.
    """
    kernels = table.on_device() & table.named(KERNEL)
    ranges = table.in_categories(ANNOTATION_CATEGORIES) & table.named(CPU_RANGE)
    rows = np.flatnonzero(kernels | ranges)
    steps = table.steps
    launches = _launched_at(table, rows)
    numbers = (
        np.searchsorted(np.array([step.start_ns for step in steps], dtype=np.int64), launches, "right") - 1
    )
    ends = table.end_ns + table.header.base_ns
    found: dict[CollectiveKey, list[int]] = {}
    for row, at, launched in zip(rows.tolist(), numbers.tolist(), launches.tolist(), strict=True):
        name = table.names[table.name[row]]
        match = KERNEL.match(name) or CPU_RANGE.match(name)
        said = table.collectives[table.collective[row]] if table.collective[row] >= 0 else None
        kind = (match[1] if match else name).lower()
        if not WAITS_FOR_ALL.search(kind):
            continue
        step = steps[at] if at >= 0 and launched < steps[at].end_ns else None
        key = (
            step.number if step else None,
            (said.group if said else None) or "",
            kind,
            said.elements if said else None,
        )
        found.setdefault(key, []).append(int(ends[row]))
    return {key: np.array(values, dtype=np.int64) for key, values in found.items()}


def _launched_at(table: EventTable, rows: Int64s) -> Int64s:
    """Return when the CPU launched each row, shape (len(rows),): a kernel may run in a later step."""
    calls = launched_by(table, rows)
    return np.where(calls >= 0, table.ts_ns[calls], table.ts_ns[rows])


@dataclass(frozen=True)
class Alignment:
    """How one trace was moved onto the common timeline.

    ``shift_ns`` is taken off its times. ``matched`` is the number of collectives compared; the residuals are
    what their ends still differ by, absolute, nanoseconds, None where nothing could be compared.
    """

    shift_ns: int
    matched: int
    residual_median_ns: int | None
    residual_max_ns: int | None
    is_reference: bool = False

    def line(self) -> str:
        """Say it in words."""
        if self.is_reference:
            return "the clock that the others are aligned with"
        if not self.matched:
            return "aligned by base time only: no collective to compare, so the remaining skew is unknown"
        moved = f"moved by {-self.shift_ns / 1e6:+,.3f} ms" if self.shift_ns else "clocks agree, not moved"
        median_us, max_us = (self.residual_median_ns or 0) / 1000, (self.residual_max_ns or 0) / 1000
        skew = f"remaining skew {median_us:,.1f} us (median), {max_us:,.1f} us (largest)"
        return f"aligned by {self.matched} collectives, {moved}; {skew}"


REFERENCE = Alignment(0, 0, None, None, is_reference=True)
UNKNOWN = Alignment(0, 0, None, None)


def align(traces: list[dict[CollectiveKey, Int64s]]) -> list[Alignment]:
    """Align traces of different ranks with the first of them, through others where that is the only way."""
    aligned: dict[int, Alignment] = {0: REFERENCE} if traces else {}
    waiting = list(range(1, len(traces)))
    reached = [0] if traces else []
    for known in reached:  # grows as more are aligned
        for one in waiting.copy():
            differences = _differences(traces[one], traces[known])
            if len(differences):
                aligned[one] = _alignment(differences, aligned[known].shift_ns)
                waiting.remove(one)
                reached.append(one)
    return [aligned.get(index, UNKNOWN) for index in range(len(traces))]


def _differences(one: dict[CollectiveKey, Int64s], other: dict[CollectiveKey, Int64s]) -> Int64s:
    """Return by how much the collectives of both ended later in ``one``; unequal numbers tell nothing."""
    pairs = [ends - other[key] for key, ends in one.items() if key in other and len(other[key]) == len(ends)]
    return np.concatenate(pairs) if pairs else np.empty(0, dtype=np.int64)


def _alignment(differences: Int64s, known_shift_ns: int) -> Alignment:
    offset = int(np.median(differences))
    if abs(offset) <= np.quantile(np.abs(differences - offset), 0.9):
        offset = 0  # the ends vary by more than that among themselves, so the clocks may well agree
    residuals = np.abs(differences - offset)
    return Alignment(
        known_shift_ns + offset, len(differences), int(np.median(residuals)), int(residuals.max())
    )
