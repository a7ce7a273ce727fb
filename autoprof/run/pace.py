"""What step records say: how long steps take, how much of it is waiting for data, which rank is slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from autoprof.run.steps import StepFile, StepRecord

_TO_BLAME = 0.2
_COSTS = 0.05
"""Shares of the time spent waiting for data from which the input pipeline is to blame, or costs something."""
_SLOWER = 1.05
"""How many times the median step of the fastest rank makes a rank slow."""
_WAITS_MORE = 0.1
"""By how much the shares of two ranks must differ for one of them to be the one that waits."""
_SLOWEST = 3

TO_BLAME, COSTS, NOT_TO_BLAME, UNKNOWN = "to blame", "costs some time", "not to blame", "unknown"


@dataclass(frozen=True)
class Pace:
    """How one rank went. Times are of the steps that count: see :func:`pace`."""

    rank: int
    host: str
    accelerator: str
    steps: int
    """Steps on record."""
    missing: int
    """Steps that have no record, up to the last that has one."""
    largest_group: int
    """Steps that the record of most steps stands for; 1 where every step has its own."""
    profiled: int
    skipped: int
    micro_steps: int
    counted: int
    """Steps that the following figures are of."""
    median_s: float
    quarter_s: float
    three_quarters_s: float
    """A quarter of the steps took no longer than ``quarter_s``, a quarter no less than this."""
    wall_s: float
    wait_s: float
    optimizer_s: float
    slowest: list[tuple[int, float]]
    """The slowest steps and their seconds, slowest first."""
    cut_off: bool

    @property
    def wait_share(self) -> float | None:
        """Share of the time spent waiting for data; None where no prepared dataloader handed out a batch."""
        return self.wait_s / self.wall_s if self.wait_s and self.wall_s else None


@dataclass(frozen=True)
class Verdict:
    """What the paces of the ranks come to."""

    input_pipeline: str
    """:data:`TO_BLAME`, :data:`COSTS`, :data:`NOT_TO_BLAME` or :data:`UNKNOWN`."""
    waiting_rank: int | None
    """The rank that waits for data longest; None where that is unknown."""
    wait_share: float | None
    """Its share of the time."""
    slow_rank: int | None
    """The rank that is slower than others, or that others wait for; None where none stands out."""
    lines: list[str]
    """The same for people: first the input pipeline, then the ranks."""


def pace(file: StepFile) -> Pace:
    """Say how one rank went; ``file`` holds one record at least.

    Steps that the agent's profiler slowed down do not count, nor does the first one, which holds the start-up
    of the job; where there are no others, all count.
    """
    records = file.records
    counted = [record for record in records if not record.slowed and record[:3] != (0, 0, 1)] or records
    last, steps = records[-1], sum(record.steps for record in records)
    quarter, median, three_quarters = quantiles(counted)
    slowest = sorted(counted, key=lambda record: -record.slowest_wall_s)[:_SLOWEST]
    return Pace(
        rank=file.rank,
        host=file.host,
        accelerator=file.accelerator,
        steps=steps,
        missing=max(0, last.first_step + last.steps - steps),
        largest_group=max(record.steps for record in records),
        profiled=sum(record.profiled for record in records),
        skipped=sum(record.skipped for record in records),
        micro_steps=sum(record.micro_steps for record in records),
        counted=sum(record.steps for record in counted),
        median_s=median,
        quarter_s=quarter,
        three_quarters_s=three_quarters,
        wall_s=sum(record.wall_s for record in counted),
        wait_s=sum(record.wait_s for record in counted),
        optimizer_s=sum(record.optimizer_s for record in counted),
        slowest=[(record.slowest_step, record.slowest_wall_s) for record in slowest],
        cut_off=file.cut_off,
    )


def quantiles(records: Sequence[StepRecord]) -> tuple[float, float, float]:
    """Return the quartiles of the steps' wall seconds: each record's sample weighs as much as its steps."""
    ranked = sorted((record.one_wall_s, record.steps) for record in records)
    whole = sum(steps for _, steps in ranked)
    found = []
    passed = 0
    wanted = [whole / 4, whole / 2, 3 * whole / 4]
    for (wall_s, steps), (next_s, _) in pairwise([*ranked, ranked[-1]]):
        passed += steps
        while wanted and wanted[0] <= passed:
            found.append((wall_s + next_s) / 2 if wanted[0] == passed else wall_s)
            wanted.pop(0)
    return found[0], found[1], found[2]


def verdict(paces: Sequence[Pace]) -> Verdict:
    """Judge the ranks of a run, one at least, by their paces."""
    shares = {one.rank: share for one in paces if (share := one.wait_share) is not None}
    waiting = max(shares, key=lambda rank: shares[rank]) if shares else None
    share = None if waiting is None else shares[waiting]
    judged = _judged(share)
    slow_rank, about_ranks = _slow_rank(paces, shares)
    return Verdict(
        judged, waiting, share, slow_rank, [_input_line(paces, judged, waiting, share), *about_ranks]
    )


def _judged(share: float | None) -> str:
    if share is None:
        return UNKNOWN
    return TO_BLAME if share >= _TO_BLAME else COSTS if share >= _COSTS else NOT_TO_BLAME


def _input_line(paces: Sequence[Pace], judged: str, rank: int | None, share: float | None) -> str:
    if share is None:
        return "how long training waited for data is unknown: no prepared dataloader handed out a batch"
    waited = f"rank {rank} spent {percent(share)} of its time waiting for data"
    meanwhile = _meanwhile(paces)
    if judged == TO_BLAME:
        return f"the input pipeline is to blame: {waited}{meanwhile}"
    if judged == COSTS:
        return f"the input pipeline costs some time: {waited}{meanwhile}"
    return f"the input pipeline is not to blame: {waited}{' and no rank more' if len(paces) > 1 else ''}"


def _meanwhile(paces: Sequence[Pace]) -> str:
    """Return the caveat that a step's times are the CPU's: queued work of an accelerator may hide a wait."""
    kinds = sorted({one.accelerator for one in paces} - {""})
    return f" ({', '.join(kinds)} may have worked meanwhile; a capture tells)" if kinds else ""


def _slow_rank(paces: Sequence[Pace], shares: dict[int, float]) -> tuple[int | None, list[str]]:
    if len(paces) < 2:
        return None, []
    slowest, fastest = max(paces, key=_median), min(paces, key=_median)
    if slowest.median_s >= _SLOWER * fastest.median_s:
        times = f"{slowest.median_s / fastest.median_s:.2f} times" if fastest.median_s else "longer than"
        return slowest.rank, [
            f"rank {slowest.rank} is slow: its median step takes {times} that of rank {fastest.rank}"
        ]
    if shares and max(shares.values()) - min(shares.values()) >= _WAITS_MORE:
        rank = max(shares, key=lambda one: shares[one])
        least = min(shares, key=lambda one: shares[one])
        return rank, [
            f"ranks keep step with one another; rank {rank} waits for data most ({percent(shares[rank])}, "
            f"rank {least} {percent(shares[least])}), so the others probably wait for rank {rank}"
        ]
    return None, ["ranks keep step with one another; which one the others wait for takes a capture to tell"]


def _median(one: Pace) -> float:
    return one.median_s


def in_one_line(one: Pace, ranks: int = 1) -> str:
    """Say how one rank of so many went and whether the input pipeline is to blame.

    One rank among several can convict the input pipeline, never clear it: another may be the one that waits.
    """
    steps = f"{one.steps:,} step{'' if one.steps == 1 else 's'}"
    times = f"median {duration(one.median_s)}"
    if one.counted > 1:
        times += f", half of them {duration(one.quarter_s)} to {duration(one.three_quarters_s)}"
    share = one.wait_share
    judged = _judged(share)
    if share is None:
        waiting = "waiting for data unknown (no prepared dataloader)"
    elif ranks > 1 and judged == NOT_TO_BLAME:
        waiting = (
            f"{percent(share)} of its time waiting for data; `autoprof steps` tells of all {ranks} ranks"
        )
    else:
        verb = "costs some time" if judged == COSTS else f"is {judged}"
        waiting = f"{percent(share)} of the time waiting for data: the input pipeline {verb}"
        if judged != NOT_TO_BLAME:
            waiting += _meanwhile([one])
    return f"rank {one.rank}: {steps}, {times}; {waiting}"


def duration(seconds: float) -> str:
    """Write seconds with the unit that reads best."""
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.3g} ms" if seconds < 0.1 else f"{seconds * 1e3:.0f} ms"
    return f"{seconds * 1e6:.0f} us"


def percent(share: float) -> str:
    """Write a share; what is there but rounds to nothing stays visible."""
    return "under 1%" if 0 < share < 0.01 else f"{100 * share:.0f}%"
