"""An optimizer that goes through the parameters one by one."""

from __future__ import annotations

from collections.abc import Iterator

from autoprof.analysis.findings.finding import Finding, Stake, ms, of_step, on_worst_rank
from autoprof.analysis.summary import TraceSummary

_ADVICE = "Have it work on all parameters at once: fused=True (Adam, AdamW, SGD, Adagrad), else foreach=True."
_MANY = 100


def look(traces: list[TraceSummary]) -> Iterator[Finding]:
    """Find optimizers that call at least a hundred operators a step, none of which is for all parameters."""
    return on_worst_rank(
        traces, map(_stake, traces), "optimizer-loop", "The optimizer goes parameter by parameter"
    )


def _stake(trace: TraceSummary) -> Stake | None:
    use = trace.optimizer
    if use is None or use.for_all or use.operators < _MANY * use.calls:
        return None
    count = max(use.calls, len(trace.steps))
    spent, between = use.time_us / count, use.between_us / count
    evidence = (
        f"{use.operators / use.calls:,.0f} operators a step in the optimizer, none for all parameters"
        f" at once: {of_step(spent, trace)}, {ms(between)} of it between operators"
    )
    return Stake(between, spent, evidence, _ADVICE)
