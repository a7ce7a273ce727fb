"""Recording that slows the step so far that its figures mislead."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from autoprof.analysis.findings.finding import Finding, Stake, ms, on_worst_rank
from autoprof.analysis.summary import TraceSummary

_ADVICE = (
    "Trust shares of a step less than usual, above all those of many small operators; record without stacks,"
    " shapes and memory, or more steps at once. The job itself does not run slower outside of captures."
)
_TIMES = 1.5


def look(traces: list[TraceSummary]) -> Iterator[Finding]:
    """Find recorded steps that took one and a half times as long as those before the capture, or more."""
    worth = 1 - 1 / _TIMES
    return on_worst_rank(
        traces, map(_stake, traces), "profiler-cost", "Recording slows the step", worth=worth
    )


def _stake(trace: TraceSummary) -> Stake | None:
    usual = trace.usual_step_us
    if not usual or len(trace.steps) < 2:
        return None
    median = statistics.median(step.duration_us for step in trace.steps)
    if median < _TIMES * usual:
        return None
    evidence = (
        f"a recorded step took {ms(median)}, {median / usual:.1f} times the {ms(usual)}"
        " of steps that were not recorded"
    )
    return Stake(median - usual, median - usual, evidence, _ADVICE)
