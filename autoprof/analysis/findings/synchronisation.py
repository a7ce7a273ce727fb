"""Calls that stop the CPU until the device has caught up."""

from __future__ import annotations

from collections.abc import Iterator

from autoprof.analysis.findings.finding import Finding, Stake, of_step, on_worst_rank
from autoprof.analysis.summary import TraceSummary

_ADVICE = (
    "Let the CPU run ahead: no .item(), .cpu(), print of a tensor or torch.cuda.synchronize in each step; log"
    " every tenth step, add up losses on the device, copy with non_blocking=True."
)


def look(traces: list[TraceSummary]) -> Iterator[Finding]:
    """Find blocking calls within steps after which the device had nothing to do for 5% of a step."""
    return on_worst_rank(
        traces, map(_stake, traces), "synchronisation", "The CPU stops to wait for the device"
    )


def _stake(trace: TraceSummary) -> Stake | None:
    if not trace.syncs:
        return None
    count = len(trace.steps)
    idle = sum(use.idle_us for use in trace.syncs) / count
    calls = sum(use.calls for use in trace.syncs) / count
    evidence = (
        f"{calls:,.1f} blocking calls a step, most of them {trace.syncs[0].name};"
        f" the device then had nothing to do for {of_step(idle, trace)}"
    )
    return Stake(idle / 2, idle, evidence, _ADVICE)
