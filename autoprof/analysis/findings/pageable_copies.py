"""Copies to the device from memory that is not pinned."""

from __future__ import annotations

from collections.abc import Iterator

from autoprof.analysis.findings.finding import Finding, Stake, of_step, on_worst_rank
from autoprof.analysis.summary import TraceSummary

_ADVICE = "Pin what is copied: DataLoader(pin_memory=True) and non_blocking=True for copies by hand."


def look(traces: list[TraceSummary]) -> Iterator[Finding]:
    """Find copies from pageable memory that take at least 5% of a step."""
    return on_worst_rank(traces, map(_stake, traces), "pageable-copies", "Copies start in pageable memory")


def _stake(trace: TraceSummary) -> Stake | None:
    found = [work for work in trace.kernels if "(Pageable -> Device)" in work.name]
    if not found:
        return None
    count = len(trace.steps)
    took = sum(work.total_us for work in found) / count
    evidence = (
        f"{sum(work.calls for work in found) / count:,.1f} copies a step from pageable memory to the device"
        f" take {of_step(took, trace)}"
    )
    return Stake(took / 3, took, evidence, _ADVICE)
