"""Compilation inside the recorded steps, as torch.compile marks it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from autoprof.analysis.cover import Cover
from autoprof.analysis.table import OPERATOR_CATEGORIES, EventTable, Step, windows

# torch/_dynamo/utils.py names these; older releases only the second.
_FRAME = re.compile(
    r"entire_frame_compile|_compile\.compile_inner|CompiledFxGraph\.compile|backward.*\bcompile"
)
_ONE = re.compile(r"_compile\.compile_inner")


@dataclass
class Compilation:
    """Frames that were compiled within whole steps: how many, for how long together, in which steps."""

    frames: int
    time_us: float
    steps: list[int]


def compilation(table: EventTable, steps: list[Step]) -> Compilation | None:
    """Return the compilation within steps; None where there is none."""
    operators = table.in_categories(OPERATOR_CATEGORIES)
    rows = operators & table.named(_FRAME)
    if not rows.any() or not steps:
        return None
    begins, ends = windows(steps)
    spent = Cover.of_rows(table, rows).within(begins, ends)
    if not spent.any():
        return None
    ones = table.ts_ns[operators & table.named(_ONE)]
    frames = int(np.count_nonzero(Cover.of(begins, ends).contains(ones)))
    numbers = [step.number for step, ns in zip(steps, spent.tolist(), strict=True) if ns]
    return Compilation(frames, float(spent.sum()) / 1000, numbers)
