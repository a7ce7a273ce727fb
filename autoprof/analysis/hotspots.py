"""Operators and kernels by the time they took."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoprof.analysis.device import DeviceRows
from autoprof.analysis.nesting import self_ns
from autoprof.analysis.table import OPERATOR_CATEGORIES, EventTable, Int32s, Int64s


@dataclass
class Hotspot:
    """All events of one name. ``self_us`` leaves out what ran inside them; kernels have nothing inside."""

    name: str
    calls: int
    self_us: float
    total_us: float
    min_us: float
    max_us: float

    @property
    def mean_us(self) -> float:
        """Return the mean length of one event."""
        return self.total_us / self.calls


def operators(table: EventTable) -> list[Hotspot]:
    """Return the operators of the CPU, of most self time first."""
    rows = np.flatnonzero(table.in_categories(OPERATOR_CATEGORIES))
    return _by_name(table, table.name[rows], self_ns(table)[rows], table.dur_ns[rows])


def kernels(table: EventTable, device: DeviceRows) -> list[Hotspot]:
    """Return kernels, copies and fills of the device, of most time first."""
    return _by_name(table, table.name[device.rows], device.dur_ns, device.dur_ns)


def _by_name(table: EventTable, names: Int32s, own_ns: Int64s, total_ns: Int64s) -> list[Hotspot]:
    if not len(names):
        return []
    order = np.argsort(names, kind="stable")
    found, firsts, calls = np.unique(names[order], return_index=True, return_counts=True)
    own = np.add.reduceat(own_ns[order], firsts)
    total = np.add.reduceat(total_ns[order], firsts)
    shortest = np.minimum.reduceat(total_ns[order], firsts)
    longest = np.maximum.reduceat(total_ns[order], firsts)
    return [
        Hotspot(
            table.names[found[at]],
            int(calls[at]),
            own[at] / 1000,
            total[at] / 1000,
            shortest[at] / 1000,
            longest[at] / 1000,
        )
        for at in np.argsort(-own, kind="stable").tolist()
    ]


def joined(of_ranks: list[list[Hotspot]]) -> list[Hotspot]:
    """Return hotspots of several traces as one list, of most self time first."""
    found: dict[str, Hotspot] = {}
    for one in (hotspot for hotspots in of_ranks for hotspot in hotspots):
        known = found.get(one.name)
        if known is None:
            found[one.name] = one
            continue
        found[one.name] = Hotspot(
            one.name,
            known.calls + one.calls,
            known.self_us + one.self_us,
            known.total_us + one.total_us,
            min(known.min_us, one.min_us),
            max(known.max_us, one.max_us),
        )
    return sorted(found.values(), key=lambda hotspot: -hotspot.self_us)
