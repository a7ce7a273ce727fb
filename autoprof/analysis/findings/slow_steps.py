"""Single steps that take far longer than the rest."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from autoprof.analysis.findings.finding import Finding, Stake, mean_step_us, ms, on_worst_rank, percent
from autoprof.analysis.summary import StepSummary, TraceSummary

_PHASES = {
    "data_us": "waiting for data",
    "forward_us": "forward",
    "backward_us": "backward",
    "optimizer_us": "the optimizer",
    "other_us": "outside of data, forward, backward and optimizer",
}
_FEWEST = 6
_TIMES = 2.0
_ADVICE = "Open that step in the timeline (autoprof view) and see what the others do not have."


def look(traces: list[TraceSummary]) -> Iterator[Finding]:
    """Find steps of more than twice the median that cost at least a tenth of the time.

    The first recorded step is left out, as the profiler itself makes it longer, and steps that compiled.
    """
    return on_worst_rank(
        traces,
        "slow-steps",
        "Some steps take far longer than the rest",
        lambda _: _ADVICE,
        _stake,
        worth=0.1,
        steps=lambda trace: [step.number for step in _slow(trace)[1]],
    )


def _slow(trace: TraceSummary) -> tuple[list[StepSummary], list[StepSummary]]:
    compiled = trace.compilation.steps if trace.compilation else []
    judged = [step for step in trace.steps[1:] if step.number not in compiled]
    if len(judged) < _FEWEST:
        return judged, []
    median = statistics.median(step.duration_us for step in judged)
    return judged, [step for step in judged if step.duration_us > _TIMES * median]


def _stake(trace: TraceSummary) -> Stake | None:
    judged, slow = _slow(trace)
    if not slow:
        return None
    median = statistics.median(step.duration_us for step in judged)
    lost = sum(step.duration_us - median for step in slow)
    worst = max(slow, key=lambda step: step.duration_us)
    phase, more = max(
        (
            (name, _value(worst, name) - statistics.median(_value(step, name) for step in judged))
            for name in _PHASES
        ),
        key=lambda one: one[1],
    )
    spent = lost / len(trace.steps)
    evidence = (
        f"{len(slow)} of {len(judged)} steps took more than {_TIMES:.0f} times the median of"
        f" {ms(median)}; the longest,"
        f" step {worst.number}, {ms(worst.duration_us)}, {ms(more)} of it more than usual in"
        f" {_PHASES[phase]};"
        f" together {percent(spent, mean_step_us(trace))} of the time"
    )
    return Stake(spent, spent, evidence)


def _value(step: StepSummary, phase: str) -> float:
    return getattr(step.phases, phase) or 0.0
