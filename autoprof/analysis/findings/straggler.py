"""A rank that the others wait for."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from autoprof.analysis.collectives import waited_us
from autoprof.analysis.findings.finding import Finding, mean_step_us, mean_us, ms, percent
from autoprof.analysis.summary import TraceSummary

_PHASES = {
    "data_us": "waiting for data",
    "forward_us": "forward",
    "backward_us": "backward",
    "optimizer_us": "the optimizer",
    "other_us": "outside of data, forward, backward and optimizer",
}
_WORTH = 0.1


def look(traces: list[TraceSummary]) -> Iterator[Finding]:
    """Find the rank that waits in collectives far less than the others, by a tenth of a step or more."""
    waited = {
        at: us / len(traces[at].steps)
        for at, us in waited_us({at: trace.collectives for at, trace in enumerate(traces)}).items()
    }
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
    phase, more = max(
        ((name, _more_us(trace, [traces[at] for at in others], name)) for name in _PHASES), key=_second
    )
    where = f"; what takes it longer is {_PHASES[phase]}, by {ms(more)} a step" if more > saved / 4 else ""
    yield Finding(
        slug="straggler",
        title=f"Rank {trace.rank} holds up the others",
        evidence=(
            f"the other ranks stand in collectives for {ms(theirs)} of each step"
            f" ({percent(theirs, step)}) until rank"
            f" {trace.rank} comes, which itself waits {ms(waited[late])}{where}"
        ),
        advice=(
            "Look at what that rank does alone (logging, checkpoints, evaluation, larger samples), at"
            " its share of the"
            " data, and at its machine: clocks, neighbours, disk, network."
        ),
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


def _second(one: tuple[str, float]) -> float:
    return one[1]
