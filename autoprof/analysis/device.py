"""What the accelerator did: computing, communicating, copying, idle.

The definitions are HolisticTraceAnalysis's (temporal breakdown, communication and computation overlap): the
kinds are told by name, and kernels of one kind that run at once count once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from autoprof.analysis.cover import Cover
from autoprof.analysis.table import EventTable, Int64s

COMMUNICATION = re.compile(r"(?:void )?(?:nccl|rccl|msccl|oneccl|nvshmem)", re.IGNORECASE)
MEMORY = re.compile(r"Memcpy|Memset|dma")

# Rounded clocks and launches that overlap by design stay below this; a wrong end does not.
_OVERLONG_NS = 100_000


@dataclass
class DeviceUse:
    """Microseconds over a stretch of time. ``busy + idle`` is the stretch.

    ``overlap`` is communication while computation ran, ``exposed`` communication while none did.
    ``host_wait`` is the part of ``idle`` that ended with work which had not been launched when the device
    fell idle; None where the trace does not tell what launched what.
    """

    busy_us: float
    idle_us: float
    computation_us: float
    communication_us: float
    memory_us: float
    overlap_us: float
    exposed_us: float
    host_wait_us: float | None = None


@dataclass
class DeviceRows:
    """The device events of a trace: ``rows`` are indices into the table, ``dur_ns`` what to count of each.

    Both have the shape (number of device events,). ``notes`` says what was cut and why.
    """

    rows: Int64s
    dur_ns: Int64s
    notes: list[str] = field(default_factory=list)


def device_rows(table: EventTable) -> DeviceRows:
    """Return the events that ran on a device.

    A stream runs one thing at a time. An event that reaches over the whole of the next one on its stream has
    a wrong end: it counts up to where the next one begins, and a note gives the figure as recorded.
    """
    rows = np.flatnonzero(table.on_device())
    counted = table.dur_ns[rows].copy()
    lasting = np.flatnonzero(counted > 0)
    order = lasting[
        np.lexsort((table.ts_ns[rows[lasting]], table.tid[rows[lasting]], table.pid[rows[lasting]]))
    ]
    at = rows[order]
    starts, ends = table.ts_ns[at], table.end_ns[at]
    same = (table.pid[at][1:] == table.pid[at][:-1]) & (table.tid[at][1:] == table.tid[at][:-1])
    overlong = np.flatnonzero(same & (ends[:-1] >= ends[1:]) & (ends[:-1] > starts[1:] + _OVERLONG_NS))
    found = DeviceRows(rows, counted)
    if len(overlong):
        counted[order[overlong]] = starts[overlong + 1] - starts[overlong]
        raw_ms = table.dur_ns[at[overlong]].sum() / 1e6
        used_ms = counted[order[overlong]].sum() / 1e6
        longest = at[overlong[np.argmax(table.dur_ns[at[overlong]])]]
        found.notes.append(
            f"{len(overlong)} device events reach past the next one on their stream (the longest:"
            f" {table.names[table.name[longest]][:60]}): recorded {raw_ms:,.3f} ms, counted {used_ms:,.3f} ms"
        )
    return found


def device_use(
    table: EventTable, device: DeviceRows, calls: Int64s, begins: Int64s, ends: Int64s
) -> list[DeviceUse]:
    """Return the use of the device in each window (nanoseconds, shape (k,)), in the windows' order.

    ``calls`` is what launched each device event (``launches.launched_by``).
    """
    names = table.name[device.rows]
    starts = table.ts_ns[device.rows]
    communicates = table.named(COMMUNICATION)[device.rows]
    copies = table.named(MEMORY)[device.rows] & ~communicates
    stops = starts + device.dur_ns

    def cover(chosen: Int64s) -> Cover:
        return Cover.of(starts[chosen], stops[chosen])

    everything = cover(np.arange(len(names)))
    computation = cover(np.flatnonzero(~communicates & ~copies))
    communication = cover(np.flatnonzero(communicates))
    memory = cover(np.flatnonzero(copies))
    either = computation | communication
    busy = everything.within(begins, ends)
    computing = computation.within(begins, ends)
    communicating = communication.within(begins, ends)
    exposed = either.within(begins, ends) - computing
    columns = (
        busy,
        ends - begins - busy,
        computing,
        communicating,
        memory.within(begins, ends),
        communicating - exposed,
        exposed,
    )
    late = _late(everything, starts, table, calls)
    uses = [DeviceUse(*row) for row in zip(*((column / 1000).tolist() for column in columns), strict=True)]
    if late:
        for use, host_ns in zip(uses, late.within(begins, ends).tolist(), strict=True):
            use.host_wait_us = host_ns / 1000
    return uses


def _late(everything: Cover, starts: Int64s, table: EventTable, calls: Int64s) -> Cover | None:
    """Return the gaps that ended with work launched after they began. ``starts`` are of the device events."""
    if not (calls >= 0).any():
        return None
    gap_begins, gap_ends = everything.ends[:-1], everything.starts[1:]
    ended_by = calls[np.searchsorted(starts, gap_ends)]
    late = (ended_by >= 0) & (table.ts_ns[ended_by] > gap_begins)
    return Cover.of(gap_begins[late], gap_ends[late])


def device_span(table: EventTable, device: DeviceRows) -> tuple[Int64s, Int64s]:
    """Return the one window from the first device event to the end of the last, as arrays of shape (1,)."""
    starts = table.ts_ns[device.rows]
    return starts.min(keepdims=True), (starts + device.dur_ns).max(keepdims=True)
