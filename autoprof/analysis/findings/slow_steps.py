"""Single steps that take far longer than the rest."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from autoprof.analysis.findings.finding import (
    PHASES,
    Finding,
    Stake,
    mean_step_us,
    ms,
    on_worst_rank,
    percent,
)
from autoprof.analysis.summary import StepSummary, TraceSummary

_FEWEST = 6
_TIMES = 2.0
_ADVICE = "Open that step in the timeline (autoprof view) and see what the others do not have."


def look(traces: list[TraceSummary]) -> Iterator[Finding]:
    """Find steps of more than twice the median that cost at least a tenth of the time.

    The first recorded step is left out, as the profiler itself makes it longer, and steps that compiled.
    """
    return on_worst_rank(
        traces, map(_stake, traces), "slow-steps", "Some steps take far longer than the rest", worth=0.1
    )


def _stake(trace: TraceSummary) -> Stake | None:
    compiled = trace.compilation.steps if trace.compilation else []
    judged = [step for step in trace.steps[1:] if step.number not in compiled]
    if len(judged) < _FEWEST:
        return None
    median = statistics.median(step.duration_us for step in judged)
    slow = [step for step in judged if step.duration_us > _TIMES * median]
    if not slow:
        return None
    worst = max(slow, key=lambda step: step.duration_us)
    more = {
        phase: _value(worst, phase) - statistics.median(_value(step, phase) for step in judged)
        for phase in PHASES
    }
    phase = max(more, key=lambda one: more[one])
    spent = sum(step.duration_us - median for step in slow) / len(trace.steps)
    evidence = (
        f"{len(slow)} of {len(judged)} steps took more than {_TIMES:.0f} times the median of {ms(median)};"
        f" the longest, step {worst.number}, {ms(worst.duration_us)},"
        f" {ms(more[phase])} of it more than usual in {PHASES[phase]};"
        f" together {percent(spent, mean_step_us(trace))} of the time"
    )
    return Stake(spent, spent, evidence, _ADVICE, [step.number for step in slow])


def _value(step: StepSummary, phase: str) -> float:
    return getattr(step.phases, phase) or 0.0
