"""Gradients that are set to zero instead of dropped."""

from __future__ import annotations

from collections.abc import Iterator

from autoprof.analysis.findings.finding import (
    Finding,
    Stake,
    mean_step_us,
    ms,
    of_step,
    on_worst_rank,
    percent,
)
from autoprof.analysis.summary import TraceSummary

_ADVICE = (
    "Call zero_grad() with its default set_to_none=True: gradients are then written, not added to zeros."
)


def look(traces: list[TraceSummary]) -> Iterator[Finding]:
    """Find zeroing, and adding to what was zeroed, that takes at least 5% of a step on a device.

    On the CPU the advice is wrong: a job there got slower, because new gradients come as new pages.
    """
    return on_worst_rank(traces, map(_stake, traces), "zero-grad", "Gradients are filled with zeros")


def _stake(trace: TraceSummary) -> Stake | None:
    use = trace.optimizer
    if use is None or not use.zeroing_us or trace.device is None:
        return None
    count = len(trace.steps)
    zeroing, adding = use.zeroing_us / count, use.adding_us / count
    evidence = (
        f"{of_step(zeroing, trace)} went to filling gradients with zeros,"
        f" {ms(adding)} ({percent(adding, mean_step_us(trace))}) to adding to them"
    )
    return Stake(zeroing, zeroing + adding, evidence, _ADVICE)
