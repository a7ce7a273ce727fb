"""What a step was made of on its own thread: loading data, forward, backward, optimizer, the rest."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from autoprof.analysis.cover import Cover
from autoprof.analysis.table import (
    ANNOTATION_CATEGORIES,
    OPERATOR_CATEGORIES,
    Bools,
    EventTable,
    Int64s,
    Step,
    windows,
)

# Ranges of torch, of this product (Accelerator.backward, AcceleratedOptimizer.step) and of other trainers.
_DATA = re.compile(r"enumerate\(DataLoader\)#(\w*)")
ZERO_GRAD = re.compile(r"Optimizer\.zero_grad#")
_OPTIMIZER = re.compile(r"AcceleratedOptimizer\.step$|Optimizer\.step#|## optimizer ##")
_BACKWARD = re.compile(r"Accelerator\.backward$|## backward ##")
_FORWARD = re.compile(r"(?:DistributedDataParallel|FullyShardedDataParallel)\.forward|## forward ##")
_AUTOGRAD = re.compile(r"autograd::engine::evaluate_function")
_CPU_COLLECTIVE = re.compile(r"(?:gloo|mpi):")

MARKED = "ranges"
FROM_AUTOGRAD = "operators of the autograd engine"
FROM_GAPS = "time between the batch, or the previous phase, and backward"


@dataclass
class Phases:
    """Microseconds of one step; the phases exclude each other and add up to the step.

    None where the trace holds nothing that tells. ``collective_us`` is time in collectives on the
    CPU (gloo, MPI), on any thread, and runs beside the phases; ``collective_alone_us`` is the part of it
    during which the step's own thread ran no operator.
    """

    data_us: float | None
    forward_us: float | None
    backward_us: float | None
    optimizer_us: float | None
    other_us: float
    collective_us: float | None
    collective_alone_us: float | None = None


@dataclass
class PhaseTimes:
    """The phases of each step, in the order given, and from what forward and backward were told.

    ``loader`` is the class of torch's iterator that batches came from, which says whether it has workers.
    """

    steps: list[Phases]
    forward_from: str | None
    backward_from: str | None
    loader: str | None = None


def phase_times(table: EventTable, steps: list[Step]) -> PhaseTimes:
    """Return what each step was made of.

    Where ranges lie in each other the earlier of data, optimizer, backward, forward has the time: gradient
    checkpointing runs forward inside backward, and that is backward.
    """
    begins, ends = windows(steps)
    on_threads = table.on_threads_of(steps)
    ranges = table.in_categories(ANNOTATION_CATEGORIES | OPERATOR_CATEGORIES) & on_threads
    data = Cover.of_rows(table, ranges & table.named(_DATA))
    optimizer = Cover.of_rows(table, ranges & (table.named(_OPTIMIZER) | table.named(ZERO_GRAD)))
    backward, backward_from = _backward(table, ranges)
    forward, forward_from = _forward(table, ranges, begins, data | optimizer, backward)
    shares = []
    known = Cover.of_rows(table, np.zeros(len(table), dtype=np.bool_))
    covered = np.zeros(len(steps), dtype=np.int64)
    for cover in (data, optimizer, backward, forward):
        known = known | cover
        reached = known.within(begins, ends)
        shares.append((reached - covered) / 1000 if len(cover.starts) else None)
        covered = reached
    others = (ends - begins - covered) / 1000
    collectives = Cover.of_rows(
        table, table.in_categories(ANNOTATION_CATEGORIES) & table.named(_CPU_COLLECTIVE)
    )
    collective, alone = None, None
    if len(collectives.starts):
        operators = Cover.of_rows(table, table.in_categories(OPERATOR_CATEGORIES) & on_threads)
        either = operators | collectives
        collective = collectives.within(begins, ends) / 1000
        alone = (either.within(begins, ends) - operators.within(begins, ends)) / 1000

    def at(row: int, share: np.ndarray | None) -> float | None:
        return None if share is None else float(share[row])

    return PhaseTimes(
        [
            Phases(
                data_us=at(row, shares[0]),
                forward_us=at(row, shares[3]),
                backward_us=at(row, shares[2]),
                optimizer_us=at(row, shares[1]),
                other_us=float(others[row]),
                collective_us=at(row, collective),
                collective_alone_us=at(row, alone),
            )
            for row in range(len(steps))
        ],
        forward_from,
        backward_from,
        _loader(table, ranges),
    )


def _loader(table: EventTable, ranges: Bools) -> str | None:
    rows = np.flatnonzero(ranges & table.named(_DATA))
    match = _DATA.match(table.names[table.name[rows[0]]]) if len(rows) else None
    return match[1] or None if match else None


def _backward(table: EventTable, ranges: Bools) -> tuple[Cover, str | None]:
    marked = Cover.of_rows(table, ranges & table.named(_BACKWARD))
    if len(marked.starts):
        return marked, MARKED
    # The engine works on threads of its own while the step's thread waits for it.
    engine = Cover.of_rows(table, table.in_categories(OPERATOR_CATEGORIES) & table.named(_AUTOGRAD))
    return engine, FROM_AUTOGRAD if len(engine.starts) else None


def _forward(
    table: EventTable, ranges: Bools, begins: Int64s, before: Cover, backward: Cover
) -> tuple[Cover, str | None]:
    marked = Cover.of_rows(table, ranges & table.named(_FORWARD))
    if len(marked.starts):
        return marked, MARKED
    if not len(backward.starts) or not len(begins):
        return marked, None
    # Forward has no range of its own in a job on one process: it lies between what precedes it and backward.
    borders = np.sort(np.concatenate((begins, before.ends, backward.ends)))
    at = np.searchsorted(borders, backward.starts, side="right") - 1
    within = at >= 0
    return Cover.of(borders[at[within]], backward.starts[within]), FROM_GAPS
