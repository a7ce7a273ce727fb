"""What each stream of the device did, and why it stood still.

The causes are HolisticTraceAnalysis's (idle time breakdown), with one more: of what it leaves as ``other``,
the part during which another stream communicated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoprof.analysis.cover import Cover
from autoprof.analysis.device import COMMUNICATION, DeviceRows
from autoprof.analysis.launches import queue
from autoprof.analysis.table import EventTable, Int64s

# A gap below this between two pieces of work, the second already launched, is what starting it takes.
_STARTING_NS = 30_000


@dataclass
class StreamUse:
    """One stream from its first event to its last, in microseconds.

    The gaps between events are split: ``host_wait_us`` before work that had not been launched when the stream
    fell idle, ``start_us`` short ones before work that had, ``communication_wait_us`` the part of the rest in
    which another stream communicated, ``other_us`` what remains (dependencies on other streams, mostly).
    Queue lengths are None where the trace does not tell what launched what.
    """

    stream: str
    events: int
    busy_us: float
    idle_us: float
    host_wait_us: float
    start_us: float
    communication_wait_us: float
    other_us: float
    queue_mean: float | None
    queue_mean_at_changes: float | None
    queue_longest: int | None


def stream_uses(table: EventTable, device: DeviceRows, calls: Int64s) -> list[StreamUse]:
    """Return the streams, most events first. ``calls`` is what launched each event (``launched_by``)."""
    rows = device.rows
    lanes = table.pid[rows].astype(np.int64) * len(table.tids) + table.tid[rows]
    communicates = table.named(COMMUNICATION)[rows]
    starts = table.ts_ns[rows]
    stops = starts + device.dur_ns
    called = np.where(calls >= 0, table.ts_ns[calls], np.iinfo(np.int64).min)
    found = []
    for lane in np.unique(lanes).tolist():
        here = lanes == lane
        elsewhere = communicates & ~here
        reached = np.maximum.accumulate(stops[here])
        ends_before = reached[:-1]
        begins = starts[here][1:]
        gaps = np.maximum(begins - ends_before, 0)
        late = called[here][1:] > ends_before
        starting = ~late & (gaps < _STARTING_NS)
        rest = ~late & ~starting
        communication = Cover.of(starts[elsewhere], stops[elsewhere])
        waiting_ns = int(communication.within(ends_before[rest], begins[rest]).sum())
        known = here & (calls >= 0)
        waiting = queue(called[known], starts[known])
        pid, tid = divmod(lane, len(table.tids))
        found.append(
            StreamUse(
                stream=f"{table.pids[pid]}:{table.tids[tid]}",
                events=int(np.count_nonzero(here)),
                busy_us=float(reached[-1] - starts[here][0] - gaps.sum()) / 1000,
                idle_us=float(gaps.sum()) / 1000,
                host_wait_us=float(gaps[late].sum()) / 1000,
                start_us=float(gaps[starting].sum()) / 1000,
                communication_wait_us=waiting_ns / 1000,
                other_us=float(gaps[rest].sum() - waiting_ns) / 1000,
                queue_mean=waiting.mean if waiting else None,
                queue_mean_at_changes=waiting.mean_at_changes if waiting else None,
                queue_longest=waiting.longest if waiting else None,
            )
        )
    return sorted(found, key=lambda use: -use.events)
