"""A summary as plain data for JSON. Times are microseconds, as their names say."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

from autoprof.analysis.collectives import CollectiveUse, waited_us
from autoprof.analysis.findings import find
from autoprof.analysis.hotspots import Hotspot, joined
from autoprof.analysis.summary import StepSummary, Summary, TraceSummary

PHASES = ("data_us", "forward_us", "backward_us", "optimizer_us", "other_us", "collective_us")
DEVICE = (
    "busy_us",
    "idle_us",
    "computation_us",
    "communication_us",
    "memory_us",
    "overlap_us",
    "exposed_us",
    "host_wait_us",
)


def as_document(summary: Summary, *, top: int) -> dict[str, Any]:
    """Return the whole summary; of operators and kernels the ``top`` ones per trace and over all."""
    captures = dict.fromkeys(trace.given.capture for trace in summary.traces)
    return {
        "schema": 1,
        "traces": [_trace(trace, top) for trace in summary.traces],
        "captures": [_capture(summary, capture) for capture in captures],
        "findings": [finding.as_document() for finding in find(summary)],
        "operators": hotspots_document(joined([trace.operators for trace in summary.traces]), top),
        "kernels": hotspots_document(joined([trace.kernels for trace in summary.traces]), top),
        "notes": summary.notes,
        "unreadable": summary.unreadable,
    }


def _trace(trace: TraceSummary, top: int) -> dict[str, Any]:
    return {
        "rank": trace.rank,
        "world_size": trace.world_size,
        "host": trace.host,
        "capture_first_step": trace.given.capture,
        "file": str(trace.given.path),
        "device_name": trace.device_name,
        "partial": trace.partial,
        "usual_step_us": trace.usual_step_us,
        "events": trace.events,
        "step_time": step_time(trace.steps),
        "phases_median": phase_medians(trace.steps),
        "forward_from": trace.forward_from,
        "backward_from": trace.backward_from,
        "device": rounded(asdict(trace.device)) if trace.device else None,
        "device_per_step_median": device_medians(trace.steps),
        "steps": [
            {
                "number": step.number,
                "duration_us": step.duration_us,
                "phases": rounded(asdict(step.phases)),
                "device": rounded(asdict(step.device)) if step.device else None,
            }
            for step in trace.steps
        ],
        "operators": hotspots_document(trace.operators, top),
        "kernels": hotspots_document(trace.kernels, top),
        "streams": [rounded(asdict(use)) for use in trace.streams],
        "launches": rounded(asdict(trace.launches)) if trace.launches else None,
        "copies": [rounded(asdict(use)) for use in trace.copies],
        "collectives": [_collective(use) for use in trace.collectives],
        "optimizer": rounded(asdict(trace.optimizer)) if trace.optimizer else None,
        "synchronisations": [rounded(asdict(use)) for use in trace.syncs],
        "compilation": rounded(asdict(trace.compilation)) if trace.compilation else None,
        "loader": trace.loader,
        "notes": trace.notes,
    }


def step_time(steps: list[StepSummary]) -> dict[str, float] | None:
    """Return median and spread of the steps' lengths; None without steps."""
    if not steps:
        return None
    lengths = [step.duration_us for step in steps]
    median = statistics.median(lengths)
    return rounded(
        {
            "count": len(lengths),
            "median_us": median,
            "min_us": min(lengths),
            "max_us": max(lengths),
            # The median distance from the median: one slow step does not move it.
            "spread_us": statistics.median(abs(length - median) for length in lengths),
        }
    )


def phase_medians(steps: list[StepSummary]) -> dict[str, float | None] | None:
    """Return the median of each phase over the steps; None without steps."""
    if not steps:
        return None
    return rounded({name: _median([getattr(step.phases, name) for step in steps]) for name in PHASES})


def device_medians(steps: list[StepSummary]) -> dict[str, float | None] | None:
    """Return the median of each figure of the device over the steps; None where it was not used."""
    uses = [step.device for step in steps if step.device]
    if not uses:
        return None
    return rounded({name: _median([getattr(use, name) for use in uses]) for name in DEVICE})


def _capture(summary: Summary, capture: int | None) -> dict[str, Any]:
    medians = summary.steps_by_rank(capture)
    traces = summary.of_capture(capture)
    waited = waited_us({at: trace.collectives for at, trace in enumerate(traces)})
    slowest = max(medians, key=lambda rank: medians[rank]) if medians else None
    fastest = min(medians, key=lambda rank: medians[rank]) if medians else None
    return {
        "first_step": capture,
        "ranks": [trace.rank for trace in traces],
        "step_median_us": _median(list(medians.values())),
        "slowest_rank": slowest,
        "slowest_step_median_us": medians[slowest] if medians else None,
        "fastest_rank": fastest,
        "fastest_step_median_us": medians[fastest] if medians else None,
        "waited_in_collectives_us": [
            {"rank": traces[at].rank, "waited_us": round(us, 3)} for at, us in waited.items()
        ],
    }


def _collective(use: CollectiveUse) -> dict[str, Any]:
    values = rounded(asdict(use))
    del values["starts_ns"], values["durations_ns"]
    return values


def hotspots_document(hotspots: list[Hotspot], top: int) -> list[dict[str, Any]]:
    """Return the first ``top`` hotspots as plain data."""
    return [rounded(asdict(hotspot) | {"mean_us": hotspot.mean_us}) for hotspot in hotspots[:top]]


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Round to nanoseconds, which is what traces hold."""
    return {name: _round(value) for name, value in values.items()}


def _round(value: Any) -> Any:
    if isinstance(value, dict):
        return rounded(value)
    return round(value, 3) if isinstance(value, float) else value
