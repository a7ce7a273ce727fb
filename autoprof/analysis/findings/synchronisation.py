"""Calls that stop the CPU until the device has caught up."""

from __future__ import annotations

from collections.abc import Iterator

from autoprof.analysis.findings.finding import Finding, Stake, mean_step_us, ms, on_worst_rank, percent
from autoprof.analysis.summary import TraceSummary

_ADVICE = (
    "Let the CPU run ahead: no .item(), .cpu(), print of a tensor or torch.cuda.synchronize in each"
    " step; log every"
    " tenth step, add up losses on the device, copy with non_blocking=True."
)


def look(traces: list[TraceSummary]) -> Iterator[Finding]:
    """Find blocking calls within steps after which the device had nothing to do for 5% of a step."""
    return on_worst_rank(
        traces, "synchronisation", "The CPU stops to wait for the device", lambda _: _ADVICE, _stake
    )


def _stake(trace: TraceSummary) -> Stake | None:
    if not trace.syncs:
        return None
    count = len(trace.steps)
    idle = sum(use.idle_us for use in trace.syncs) / count
    calls = sum(use.calls for use in trace.syncs) / count
    step = mean_step_us(trace)
    evidence = (
        f"{calls:,.1f} blocking calls a step, most of them {trace.syncs[0].name}; the device then had"
        " nothing to do"
        f" for {ms(idle)} of a step of {ms(step)} ({percent(idle, step)})"
    )
    return Stake(idle / 2, idle, evidence)
