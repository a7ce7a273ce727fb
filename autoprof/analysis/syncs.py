"""Where the CPU stopped to wait for the device, and how long the device then had nothing to do."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from autoprof.analysis.cover import Cover
from autoprof.analysis.device import DeviceRows
from autoprof.analysis.table import RUNTIME_CATEGORIES, EventTable, Step, windows

_BLOCKING = re.compile(r"(?:cuda|hip|cu)(?:Stream|Device|Event|Ctx)Synchronize|(?:cuda|hip)Memcpy$")


@dataclass
class SyncUse:
    """All blocking calls of one name within steps, on the steps' own threads.

    ``time_us`` is what the CPU waited. ``idle_us`` is how long the device was idle around the ends of the
    calls: what it waited for because nothing could be launched ahead.
    """

    name: str
    calls: int
    time_us: float
    idle_us: float


def sync_uses(table: EventTable, device: DeviceRows, steps: list[Step]) -> list[SyncUse]:
    """Return the blocking calls by name, of most idle time first; none without a device or steps."""
    if not len(device.rows) or not steps:
        return []
    blocking = table.in_categories(RUNTIME_CATEGORIES) & table.named(_BLOCKING)
    within = Cover.of(*windows(steps)).contains(table.ts_ns)
    rows = np.flatnonzero(blocking & within & table.on_threads_of(steps))
    starts = table.ts_ns[device.rows]
    busy = Cover.of(starts, starts + device.dur_ns)
    seen: set[int] = set()
    found: dict[str, SyncUse] = {}
    for row in rows.tolist():
        name = table.names[table.name[row]]
        use = found.setdefault(name, SyncUse(name, 0, 0.0, 0.0))
        use.calls += 1
        use.time_us += float(table.dur_ns[row]) / 1000
        end = int(table.ts_ns[row] + table.dur_ns[row])
        after = int(np.searchsorted(busy.starts, end))
        if not 0 < after < len(busy.starts) or after in seen:
            continue
        if busy.ends[after - 1] <= end:
            seen.add(after)  # two calls in one gap: it counts once
            use.idle_us += float(busy.starts[after] - busy.ends[after - 1]) / 1000
    return sorted(found.values(), key=lambda use: (-use.idle_us, -use.time_us, use.name))
