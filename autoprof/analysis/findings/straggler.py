"""A rank that the others wait for."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from autoprof.analysis.findings.finding import (
    PHASES,
    Finding,
    mean_step_us,
    mean_us,
    ms,
    percent,
    waited_us_per_step,
)
from autoprof.analysis.summary import TraceSummary

_WORTH = 0.1
_ADVICE = (
    "Look at what that rank does alone (logging, checkpoints, evaluation, larger samples), at its share of"
    " the data, and at its machine: clocks, neighbours, disk, network."
)


def look(traces: list[TraceSummary]) -> Iterator[Finding]:
    """Find the rank that waits in collectives far less than the others, by a tenth of a step or more."""
    waited = waited_us_per_step(traces)
    if len(waited) < 2:
        return
    late = min(waited, key=lambda at: waited[at])
    others = [at for at in waited if at != late]
    theirs = statistics.median(waited[at] for at in others)
    saved = theirs - waited[late]
    trace = traces[late]
    step = mean_step_us(trace)
    # Ranks that are late in turn all wait; one that is always late hardly does.
    if saved < _WORTH * step or waited[late] > theirs / 3:
        return
    more = {phase: _more_us(trace, [traces[at] for at in others], phase) for phase in PHASES}
    phase = max(more, key=lambda one: more[one])
    where = f"; what takes it longer is {PHASES[phase]}, by {ms(more[phase])} a step"
    yield Finding(
        slug="straggler",
        title=f"Rank {trace.rank} holds up the others",
        evidence=(
            f"the other ranks stand in collectives for {ms(theirs)} of each step ({percent(theirs, step)})"
            f" until rank {trace.rank} comes, which itself waits {ms(waited[late])}"
            f"{where if more[phase] > saved / 4 else ''}"
        ),
        advice=_ADVICE,
        low_us=saved,
        high_us=theirs,
        step_us=step,
        capture=trace.given.capture,
        ranks=[trace.rank],
        steps=[one.number for one in trace.steps],
    )


def _more_us(trace: TraceSummary, others: list[TraceSummary], phase: str) -> float:
    """Return how much longer a phase is than on the others, collectives not counted."""
    return _own_us(trace, phase) - statistics.median(_own_us(other, phase) for other in others)


def _own_us(trace: TraceSummary, phase: str) -> float:
    own = mean_us(trace, lambda step: getattr(step.phases, phase))
    # Gradients are synchronised within backward.
    return own - mean_us(trace, lambda step: step.phases.collective_us) if phase == "backward_us" else own
