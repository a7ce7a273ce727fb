"""Compilation within steps that should have been compiled long ago."""

from __future__ import annotations

from collections.abc import Iterator

from autoprof.analysis.findings.finding import Finding, Stake, mean_step_us, ms, on_worst_rank, percent
from autoprof.analysis.summary import TraceSummary

_ADVICE = (
    "Find out why with TORCH_LOGS=recompiles; then pad inputs to few shapes, mark what varies"
    " (torch._dynamo.mark_dynamic) or compile with dynamic=True. If these are the first steps, record later"
    " ones."
)


def look(traces: list[TraceSummary]) -> Iterator[Finding]:
    """Find steps in which torch.compile compiled, at least 5% of the recorded time."""
    return on_worst_rank(traces, map(_stake, traces), "recompilation", "Steps compile")


def _stake(trace: TraceSummary) -> Stake | None:
    found = trace.compilation
    if found is None:
        return None
    count = len(trace.steps)
    spent = found.time_us / count
    evidence = (
        f"{found.frames:,} frames were compiled in {len(found.steps)} of {count} steps:"
        f" {ms(found.time_us)} together, {percent(spent, mean_step_us(trace))} of the time"
    )
    return Stake(spent, spent, evidence, _ADVICE, found.steps)
