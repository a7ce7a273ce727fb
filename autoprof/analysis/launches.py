"""How the CPU launches work on the device: by which calls, what they cost, how long the work then waits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoprof.analysis.table import RUNTIME_CATEGORIES, EventTable, Float64s, Int64s


@dataclass
class Spread:
    """What many values of one kind are like, in microseconds."""

    median_us: float
    p95_us: float
    max_us: float
    total_us: float

    @classmethod
    def of(cls, ns: Int64s) -> Spread:
        """Summarize values in nanoseconds, shape (k,) with k at least 1."""
        median, p95, largest = (np.quantile(ns, (0.5, 0.95, 1.0)) / 1000).tolist()
        return cls(median, p95, largest, float(ns.sum()) / 1000)


@dataclass
class Launches:
    """The calls that put work on the device; one call of a CUDA graph launches many pieces of work.

    ``call`` is time in the calls, ``delay`` from the end of a call to the start of each piece of its work (0
    where that starts before the call returns), ``work`` what the pieces took. ``short`` counts calls that
    took longer than all their work: a device that gets only such work waits for the CPU.
    """

    calls: int
    pieces: int
    short: int
    call: Spread
    delay: Spread
    work: Spread


def launched_by(table: EventTable, rows: Int64s) -> Int64s:
    """Return the row of the call that launched each of ``rows``, -1 where the trace does not tell.

    A call and its work carry the same correlation id. Shape (len(rows),).
    """
    calls = np.flatnonzero((table.correlation > 0) & table.in_categories(RUNTIME_CATEGORIES))
    found = np.full(len(rows), -1, dtype=np.int64)
    if not len(calls) or not len(rows):
        return found
    order = calls[np.argsort(table.correlation[calls], kind="stable")]
    known = table.correlation[order]
    at = np.minimum(np.searchsorted(known, table.correlation[rows]), len(known) - 1)
    matched = known[at] == table.correlation[rows]
    found[matched] = order[at[matched]]
    return found


def launches(table: EventTable, rows: Int64s, work_ns: Int64s, calls: Int64s) -> Launches | None:
    """Return what launching cost; None where no call is known.

    ``rows`` are device events, ``work_ns`` what counts of each, ``calls`` what launched them
    (:func:`launched_by`); all of the shape (k,).
    """
    known = calls >= 0
    if not known.any():
        return None
    rows, work_ns, calls = rows[known], work_ns[known], calls[known]
    used, of_call = np.unique(calls, return_inverse=True)
    call_ns = table.dur_ns[used]
    delay_ns = np.maximum(table.ts_ns[rows] - table.end_ns[calls], 0)
    return Launches(
        calls=len(used),
        pieces=len(rows),
        short=int(np.count_nonzero(np.bincount(of_call, weights=work_ns) < call_ns)),
        call=Spread.of(call_ns),
        delay=Spread.of(delay_ns),
        work=Spread.of(work_ns),
    )


@dataclass
class Queue:
    """How many launched pieces of work were waiting on a stream.

    ``mean`` is over time, from the first launch to the last start; ``mean_at_changes`` over the moments at
    which the length changed, which is the figure that HolisticTraceAnalysis gives.
    """

    mean: float
    mean_at_changes: float
    longest: int


def queue(called_ns: Int64s, started_ns: Int64s) -> Queue | None:
    """Return the queue that begins with each call and ends with each start, both of the shape (k,)."""
    if not len(called_ns):
        return None
    times = np.concatenate((called_ns, started_ns))
    changes = np.concatenate((np.ones_like(called_ns), np.full_like(started_ns, -1)))
    order = np.argsort(times, kind="stable")
    lengths = np.cumsum(changes[order])
    lasting: Float64s = np.diff(times[order]).astype(np.float64)
    whole = float(lasting.sum())
    mean = float((lengths[:-1] * lasting).sum()) / whole if whole else float(lengths[0])
    return Queue(mean, float(lengths.mean()), int(lengths.max()))
