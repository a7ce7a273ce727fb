"""Steps that wait for data."""

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

_NO_WORKERS = "_SingleProcessDataLoaderIter"


def look(traces: list[TraceSummary]) -> Iterator[Finding]:
    """Find steps of which a tenth or more is waiting for a batch, with the device, if any, idle."""
    return on_worst_rank(traces, "input-bound", "Steps wait for data", _advice, _stake, worth=0.1)


def _advice(trace: TraceSummary) -> str:
    if trace.loader == _NO_WORKERS:
        return (
            "The DataLoader loads in the training process: give it workers (num_workers=2 or more) so"
            " that the next"
            " batch is made while this one is used; with an accelerator also pin_memory=True."
        )
    return (
        "The DataLoader's workers are too slow: give it more of them (num_workers), a larger"
        " prefetch_factor, or less"
        " work per item (decode and tokenize once, beforehand)."
    )


def _stake(trace: TraceSummary) -> Stake | None:
    waited = mean_us(trace, _waited_us)
    step = mean_step_us(trace)
    working = step - waited
    # Twice the hands: the step then lasts as long as the slower of loading and working.
    loading = waited if trace.loader == _NO_WORKERS else step
    low = step - max(working, loading / 2)
    evidence = f"{ms(waited)} of a step of {ms(step)} ({percent(waited, step)}) went by waiting for a batch"
    return Stake(min(max(low, 0.0), waited), waited, evidence)


def _waited_us(step: StepSummary) -> float:
    data = step.phases.data_us or 0.0
    return data if step.device is None else min(data, step.device.idle_us)
