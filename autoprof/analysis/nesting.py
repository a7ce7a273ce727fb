"""Self time: how long an event ran itself, without the events inside it on its thread."""

from __future__ import annotations

import numpy as np

from autoprof.analysis.table import (
    ANNOTATION_CATEGORIES,
    OPERATOR_CATEGORIES,
    RUNTIME_CATEGORIES,
    EventTable,
    Int64s,
)

# Python frames are left out: with stacks recorded they would take an operator's time from its caller.
NESTED_CATEGORIES = OPERATOR_CATEGORIES | ANNOTATION_CATEGORIES | RUNTIME_CATEGORIES


def self_ns(table: EventTable) -> Int64s:
    """Return the self time of operators, ranges and runtime calls, shape (n,), nanoseconds; 0 for the rest.

    Where events of a thread overlap without nesting, the part beyond the outer one's end is not taken off it.
    """
    result = np.zeros(len(table), dtype=np.int64)
    rows = np.flatnonzero(table.in_categories(NESTED_CATEGORIES))
    for lane in by_thread(table, rows):
        starts, durations = table.ts_ns[lane], table.dur_ns[lane]
        result[lane] = durations - _children_ns(starts, starts + durations)
    return result


def by_thread(table: EventTable, rows: Int64s) -> list[Int64s]:
    """Split rows of a table, in its order, by their thread; each part keeps that order."""
    threads = table.pid[rows].astype(np.int64) * (len(table.tids) + 1) + table.tid[rows]
    order = np.argsort(threads, kind="stable")
    parts: list[Int64s] = np.split(rows[order], np.flatnonzero(np.diff(threads[order])) + 1)
    return parts


def _children_ns(starts: Int64s, ends: Int64s) -> Int64s:
    """Return how long the direct children of each event ran, for one thread's events in order of start."""
    children = np.zeros(len(starts), dtype=np.int64)
    # An event without a length is nobody's parent and takes nothing from its own.
    lasting = np.flatnonzero(ends > starts)
    starts, ends = starts[lasting], ends[lasting]
    depth = np.arange(len(starts)) - np.searchsorted(np.sort(ends), starts, side="right")
    for level in range(1, int(depth.max(initial=0)) + 1):
        inner = np.flatnonzero(depth == level)
        outer = np.flatnonzero(depth == level - 1)
        parents = outer[np.searchsorted(outer, inner) - 1]
        lengths = np.minimum(ends[inner], ends[parents]) - starts[inner]
        np.add.at(children, lasting[parents], np.maximum(lengths, 0))
    return children
