"""Copies and fills of device memory: how many, how much, how fast."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from autoprof.analysis.device import MEMORY, DeviceRows
from autoprof.analysis.table import EventTable

_PAGEABLE = re.compile(r".*Pageable", re.DOTALL)
# torch writes `Memcpy HtoD (Pageable -> Device)`, `Memset (Device)`.
_KIND = re.compile(r"Memcpy \w+|Memset|\w+")


@dataclass
class CopyUse:
    """All copies of one kind (``Memcpy HtoD``, ``Memset``, ...).

    ``pageable`` counts those from or to memory that is not pinned, which the CPU has to copy once more.
    Sizes and speeds are of the ``sized`` copies whose size the trace tells; speeds are GB/s (1e9 bytes), the
    mean over copies and that of all together, None where no size or no time is known.
    """

    kind: str
    count: int
    pageable: int
    time_us: float
    sized: int
    size_bytes: int
    mean_gb_per_s: float | None
    max_gb_per_s: float | None
    overall_gb_per_s: float | None


def copy_uses(table: EventTable, device: DeviceRows) -> list[CopyUse]:
    """Return the kinds of copies, of most time first."""
    copies = table.named(MEMORY)[device.rows]
    rows, dur_ns = device.rows[copies], device.dur_ns[copies]
    kinds = np.array([_kind(name) for name in table.names] or [""], dtype=object)[table.name[rows]]
    pageable = table.named(_PAGEABLE)[rows]
    found = []
    for kind in sorted(set(kinds.tolist())):
        here = kinds == kind
        sizes, times = table.size_bytes[rows[here]], dur_ns[here]
        known = (sizes >= 0) & (times > 0)
        speeds = sizes[known] / times[known]
        found.append(
            CopyUse(
                kind=kind,
                count=int(np.count_nonzero(here)),
                pageable=int(np.count_nonzero(pageable[here])),
                time_us=float(times.sum()) / 1000,
                sized=int(np.count_nonzero(sizes >= 0)),
                size_bytes=int(sizes[sizes >= 0].sum()),
                mean_gb_per_s=float(speeds.mean()) if len(speeds) else None,
                max_gb_per_s=float(speeds.max()) if len(speeds) else None,
                overall_gb_per_s=float(sizes[known].sum() / times[known].sum()) if len(speeds) else None,
            )
        )
    return sorted(found, key=lambda use: -use.time_us)


def _kind(name: str) -> str:
    match = _KIND.match(name)
    return match[0] if match else name[:40]
