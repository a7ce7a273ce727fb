"""Steps that wait for data."""

from __future__ import annotations

from collections.abc import Iterator

from autoprof.analysis.findings.finding import Finding, Stake, mean_step_us, mean_us, of_step, on_worst_rank
from autoprof.analysis.summary import StepSummary, TraceSummary

_NO_WORKERS = "_SingleProcessDataLoaderIter"
_GET_WORKERS = (
    "The DataLoader loads in the training process: give it workers (num_workers=2 or more) so that the next"
    " batch is made while this one is used; with an accelerator also pin_memory=True."
)
_GET_MORE = (
    "The DataLoader's workers are too slow: give it more of them (num_workers), a larger prefetch_factor, or"
    " less work per item (decode and tokenize once, beforehand)."
)


def look(traces: list[TraceSummary]) -> Iterator[Finding]:
    """Find steps of which a tenth or more is waiting for a batch, with the device, if any, idle."""
    return on_worst_rank(traces, map(_stake, traces), "input-bound", "Steps wait for data", worth=0.1)


def _stake(trace: TraceSummary) -> Stake:
    waited, step = mean_us(trace, _waited_us), mean_step_us(trace)
    alone = trace.loader == _NO_WORKERS
    # Twice the hands: the step then lasts as long as the slower of loading and working.
    loading = waited if alone else step
    low = min(max(step - max(step - waited, loading / 2), 0.0), waited)
    evidence = f"{of_step(waited, trace)} went by waiting for a batch"
    return Stake(low, waited, evidence, _GET_WORKERS if alone else _GET_MORE)


def _waited_us(step: StepSummary) -> float:
    data = step.phases.data_us or 0.0
    return data if step.device is None else min(data, step.device.idle_us)
