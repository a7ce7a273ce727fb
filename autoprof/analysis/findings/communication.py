"""Collectives that no computation hides."""

from __future__ import annotations

from collections.abc import Iterator

from autoprof.analysis.findings.finding import (
    Finding,
    Stake,
    mean_us,
    of_step,
    on_worst_rank,
    waited_us_per_step,
)
from autoprof.analysis.summary import StepSummary, TraceSummary

_ADVICE = (
    "Communicate less often (gradient_accumulation_steps with accelerator.accumulate, LocalSGD) or smaller"
    " (bf16 gradients by a DDP communication hook), or hide more of it (bucket_cap_mb: larger for few large"
    " messages, smaller for an earlier start); check that ranks of one node talk over NVLink."
)


def look(traces: list[TraceSummary]) -> Iterator[Finding]:
    """Find communication of at least a tenth of a step during which nothing is computed.

    Time that a rank stood waiting for a slower one is not counted: that is a straggler's.
    """
    waited = waited_us_per_step(traces)
    stakes = (_stake(trace, waited.get(at, 0.0)) for at, trace in enumerate(traces))
    return on_worst_rank(traces, stakes, "exposed-communication", "Communication is not hidden", worth=0.1)


def _stake(trace: TraceSummary, waited: float) -> Stake | None:
    exposed = mean_us(trace, _exposed_us) - waited
    if exposed <= 0:
        return None
    evidence = (
        f"{of_step(exposed, trace)} went to collectives while nothing was computed,"
        " waiting for slower ranks not counted"
    )
    # Every second step without it, or every step.
    return Stake(exposed / 2, exposed, evidence, _ADVICE)


def _exposed_us(step: StepSummary) -> float | None:
    return step.device.exposed_us if step.device else step.phases.collective_alone_us
