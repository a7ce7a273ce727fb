"""What the optimizer is made of: operators per parameter or for all, and what zeroing gradients costs."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from autoprof.analysis.cover import Cover
from autoprof.analysis.phases import ZERO_GRAD
from autoprof.analysis.table import (
    ANNOTATION_CATEGORIES,
    OPERATOR_CATEGORIES,
    EventTable,
    Int64s,
)

# torch/optim/optimizer.py names this range, and that of zero_grad.
_STEP = re.compile(r"Optimizer\.step#")
_FOR_ALL = re.compile(r"aten::_(?:foreach|fused)_")
_ZEROING = re.compile(r"aten::(?:zero_|_foreach_zero_)$")
_ACCUMULATE = re.compile(r"torch::autograd::AccumulateGrad$")
_ADD = re.compile(r"aten::add_$")


@dataclass
class OptimizerUse:
    """All calls of ``Optimizer.step`` in a trace, and of ``zero_grad``.

    ``operators`` counts those that the optimizer called itself, not what they called; ``between_us`` is
    time in none of them. ``for_all`` says whether any worked on all parameters at once (foreach, fused).
    ``zeroing_us`` is time setting gradients to zero in ``zero_grad``, ``adding_us`` time adding to them in
    backward.
    """

    calls: int
    time_us: float
    operators: int
    between_us: float
    for_all: bool
    zeroing_us: float
    adding_us: float


def optimizer_use(table: EventTable) -> OptimizerUse | None:
    """Return what the optimizers of a trace did; None without a range of theirs."""
    ranges = table.in_categories(ANNOTATION_CATEGORIES | OPERATOR_CATEGORIES)
    operators = table.in_categories(OPERATOR_CATEGORIES)
    marked = ranges & table.named(_STEP)
    steps = Cover.of_rows(table, marked)
    if not len(steps.starts):
        return None
    threads = table.tid[marked]
    own = np.flatnonzero(operators & np.isin(table.tid, threads) & steps.contains(table.ts_ns))
    outermost = own[_outermost(table.ts_ns[own], table.end_ns[own])]
    covered = Cover.of(table.ts_ns[outermost], table.end_ns[outermost])
    zero_grad = Cover.of_rows(table, ranges & table.named(ZERO_GRAD))
    zeroing = operators & table.named(_ZEROING) & zero_grad.contains(table.ts_ns)
    accumulating = Cover.of_rows(table, operators & table.named(_ACCUMULATE))
    adding = operators & table.named(_ADD) & accumulating.contains(table.ts_ns)
    return OptimizerUse(
        calls=len(steps.starts),
        time_us=steps.total_ns / 1000,
        operators=len(outermost),
        between_us=(steps.total_ns - covered.total_ns) / 1000,
        for_all=bool(table.named(_FOR_ALL)[own].any()),
        zeroing_us=Cover.of_rows(table, zeroing).total_ns / 1000,
        adding_us=Cover.of_rows(table, adding).total_ns / 1000,
    )


def _outermost(starts: Int64s, ends: Int64s) -> Int64s:
    """Return the positions of those that begin when none before them lasts; starts ascend."""
    reached = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(ends)[:-1]))
    return np.flatnonzero(starts >= reached)
