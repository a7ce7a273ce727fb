"""Collectives: how many, how much they moved, how fast, and which rank the others waited for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from autoprof.analysis.cover import Cover
from autoprof.analysis.device import COMMUNICATION
from autoprof.analysis.table import ANNOTATION_CATEGORIES, Collective, EventTable, Int64s

Rank = TypeVar("Rank")

# `ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)`, `ncclKernel_AllReduce_RING_LL_Sum_float(...)`.
KERNEL = re.compile(
    r"(?:void )?(?:nccl|rccl)\w*?_(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|SendRecv|AllToAll)",
    re.IGNORECASE,
)
# Of NCCL only kernels last; its ranges on the CPU are launches. Gloo and MPI run on the CPU.
CPU_RANGE = re.compile(r"(?:gloo|mpi):(\w+)")
# Broadcasts, reductions to one and point-to-point transfers end when it suits one side.
WAITS_FOR_ALL = re.compile(r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier")
_ELEMENT_BYTES = {
    "double": 8,
    "long": 8,
    "complexfloat": 8,
    "float": 4,
    "int": 4,
    "half": 2,
    "bfloat16": 2,
    "short": 2,
    "byte": 1,
    "char": 1,
    "bool": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}


@dataclass
class CollectiveUse:
    """The collectives of one kind in one process group, on one rank.

    ``size_bytes`` is what this rank put in, over the ``sized`` ones whose size the trace tells, and
    ``gb_per_s`` (1e9 bytes) that over their time: the algorithm's bandwidth, not the bus's. A collective
    lasts until the last rank has come, so slow ones may say more about that rank than about the network.
    ``starts_ns`` and ``durations_ns`` have the shape (count,), in order of start.
    """

    kind: str
    group: str
    count: int
    time_us: float
    sized: int
    size_bytes: int
    gb_per_s: float | None
    starts_ns: Int64s = field(repr=False)
    durations_ns: Int64s = field(repr=False)


def collective_uses(table: EventTable) -> list[CollectiveUse]:
    """Return kinds and groups, of most time first: kernels on a device, ranges of gloo and MPI on the CPU."""
    kernels = table.on_device() & table.named(COMMUNICATION)
    ranges = table.in_categories(ANNOTATION_CATEGORIES) & table.named(CPU_RANGE)
    rows = np.flatnonzero(kernels | ranges)
    described = _described(table)
    by_key: dict[tuple[str, str], list[tuple[int, int | None]]] = {}
    for row in rows.tolist():
        about = described(row)
        key = _kind(table.names[table.name[row]], about), (about.group if about else None) or ""
        by_key.setdefault(key, []).append((row, _size_bytes(about)))
    found = []
    for (kind, group), members in by_key.items():
        at = np.array([row for row, _ in members], dtype=np.int64)
        durations = table.dur_ns[at]
        sizes = [size for _, size in members if size is not None]
        timed_ns = sum(
            duration
            for duration, (_, size) in zip(durations.tolist(), members, strict=True)
            if size is not None
        )
        found.append(
            CollectiveUse(
                kind=kind,
                group=group,
                count=len(members),
                time_us=float(durations.sum()) / 1000,
                sized=len(sizes),
                size_bytes=sum(sizes),
                gb_per_s=sum(sizes) / timed_ns if timed_ns else None,
                starts_ns=table.ts_ns[at],
                durations_ns=durations,
            )
        )
    return sorted(found, key=lambda use: (-use.time_us, use.kind, use.group))


def waited_us(of_ranks: Mapping[Rank, list[CollectiveUse]]) -> dict[Rank, float]:
    """Return how long each rank stood in collectives before the last rank had come, microseconds.

    The rank that comes last has the shortest collective, so what another's took longer is its waiting;
    several at once (gloo starts them on threads of its own) are waited for together.
    Compared are the kinds in which every rank waits for every other, of groups that at least two ranks have
    in the same number; a rank that has none of these is left out. Clocks need not agree.
    """
    by_key: dict[tuple[str, str, int], dict[Rank, CollectiveUse]] = {}
    for rank, uses in of_ranks.items():
        for use in uses:
            if not WAITS_FOR_ALL.search(use.kind):
                continue
            by_key.setdefault((use.kind, use.group, use.count), {})[rank] = use
    waited: dict[Rank, Cover] = {}
    for of_rank in by_key.values():
        if len(of_rank) < 2:
            continue
        shortest = np.min(np.stack([use.durations_ns for use in of_rank.values()]), axis=0)
        for rank, use in of_rank.items():
            waits = Cover.of(use.starts_ns, use.starts_ns + use.durations_ns - shortest)
            waited[rank] = waited[rank] | waits if rank in waited else waits
    return {rank: cover.total_ns / 1000 for rank, cover in waited.items()}


def _described(table: EventTable) -> Callable[[int], Collective | None]:
    """Return what tells about a row: its own arguments, or those of the operator that it belongs to."""
    about = np.flatnonzero((table.collective >= 0) & (table.external_id >= 0))
    by_id = dict(zip(table.external_id[about].tolist(), table.collective[about].tolist(), strict=True))

    def described(row: int) -> Collective | None:
        at = int(table.collective[row])
        if at < 0:
            at = by_id.get(int(table.external_id[row]), -1)
        return table.collectives[at] if at >= 0 else None

    return described


def _kind(name: str, about: Collective | None) -> str:
    if about and about.name:
        return about.name.lower()
    if match := KERNEL.match(name) or CPU_RANGE.match(name):
        return match[1].lower()
    return name[:60]


def _size_bytes(about: Collective | None) -> int | None:
    if about is None or about.elements is None or about.dtype is None:
        return None
    width = _ELEMENT_BYTES.get(about.dtype.lower())
    return None if width is None else about.elements * width
