"""What is worth changing: rules that read summaries, each in a module of its own.

A rule is a function of one capture's traces that yields
:class:`~autoprof.analysis.findings.finding.Finding`; a new one is a module here and its name in ``RULES``.
"""

from __future__ import annotations

from autoprof.analysis.findings import (
    communication,
    host_bound,
    input_bound,
    optimizer_loop,
    pageable_copies,
    precision,
    profiler_cost,
    recompilation,
    slow_steps,
    straggler,
    synchronisation,
    zero_grad,
)
from autoprof.analysis.findings.finding import Finding, mean_step_us
from autoprof.analysis.summary import Summary

RULES = (
    input_bound.look,
    straggler.look,
    communication.look,
    host_bound.look,
    synchronisation.look,
    optimizer_loop.look,
    precision.look,
    pageable_copies.look,
    recompilation.look,
    zero_grad.look,
    slow_steps.look,
    profiler_cost.look,
)


def find(summary: Summary) -> list[Finding]:
    """Return what is worth changing, of most at stake first; of one kind the capture where it is worst."""
    worst: dict[str, Finding] = {}
    for capture in dict.fromkeys(trace.given.capture for trace in summary.traces):
        # Of steps without a length, as damage leaves them, there is no share.
        traces = [trace for trace in summary.of_capture(capture) if trace.steps and mean_step_us(trace)]
        for rule in RULES if traces else ():
            for finding in rule(traces):
                known = worst.get(finding.slug)
                if known is None or known.share < finding.share:
                    worst[finding.slug] = finding
    return sorted(worst.values(), key=lambda finding: -finding.share)
