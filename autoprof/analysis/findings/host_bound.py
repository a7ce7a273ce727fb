"""A device that waits for the CPU to launch work."""

from __future__ import annotations

from collections.abc import Iterator

from autoprof.analysis.findings.finding import (
    Finding,
    Stake,
    mean_step_us,
    mean_us,
    ms,
    on_worst_rank,
    percent,
)
from autoprof.analysis.summary import StepSummary, TraceSummary

_ADVICE = (
    "Give the device more per launch: torch.compile (mode='reduce-overhead' uses CUDA graphs), a larger"
    " batch, fused optimizers and layers; move Python work out of the step."
)


def look(traces: list[TraceSummary]) -> Iterator[Finding]:
    """Find a device that is idle for at least 15% of a step because its next work was not launched yet."""
    return on_worst_rank(
        traces, map(_stake, traces), "host-bound", "The device waits for the CPU", worth=0.15
    )


def _stake(trace: TraceSummary) -> Stake | None:
    made = trace.launches
    if made is None:
        return None
    step, waited = mean_step_us(trace), mean_us(trace, _waited_us)
    evidence = (
        f"of a step of {ms(step)} the device was idle for {ms(waited)} ({percent(waited, step)}) because its"
        f" next work had not been launched; {percent(made.short, made.calls)} of {made.calls:,} launches"
        " took the CPU longer than the work took the device"
        f" (median {made.work.median_us:,.1f} us)"
    )
    return Stake(waited / 3, waited, evidence, _ADVICE)


def _waited_us(step: StepSummary) -> float:
    if step.device is None or step.device.host_wait_us is None:
        return 0.0
    # Idle while the CPU waited for a batch is the input pipeline's.
    return max(step.device.host_wait_us - (step.phases.data_us or 0.0), 0.0)
