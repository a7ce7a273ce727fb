"""An optimizer that goes through the parameters one by one."""

from __future__ import annotations

from collections.abc import Iterator

from autoprof.analysis.findings.finding import Finding, Stake, mean_step_us, ms, on_worst_rank, percent
from autoprof.analysis.summary import TraceSummary

_ADVICE = "Have it work on all parameters at once: fused=True (Adam, AdamW, SGD, Adagrad), else foreach=True."
_MANY = 100


def look(traces: list[TraceSummary]) -> Iterator[Finding]:
    """Find optimizers that call at least a hundred operators a step, none of which is for all parameters."""
    return on_worst_rank(
        traces, "optimizer-loop", "The optimizer goes parameter by parameter", lambda _: _ADVICE, _stake
    )


def _stake(trace: TraceSummary) -> Stake | None:
    use = trace.optimizer
    if use is None or use.for_all or use.operators < _MANY * use.calls:
        return None
    step, count = mean_step_us(trace), len(trace.steps)
    spent = use.time_us / max(use.calls, count)
    evidence = (
        f"{use.operators / use.calls:,.0f} operators a step in the optimizer, none for all parameters"
        " at once:"
        f" {ms(spent)} of a step of {ms(step)} ({percent(spent, step)}),"
        f" {ms(use.between_us / max(use.calls, count))} of it between operators"
    )
    return Stake(use.between_us / max(use.calls, count), spent, evidence)
