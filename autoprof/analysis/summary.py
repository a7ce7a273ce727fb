"""Where the time went: one small summary per trace, made where the trace is read."""

from __future__ import annotations

import itertools
import os
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context

import numpy as np

from autoprof.analysis.collectives import CollectiveUse, collective_uses
from autoprof.analysis.compilation import Compilation, compilation
from autoprof.analysis.copies import CopyUse, copy_uses
from autoprof.analysis.device import DeviceUse, device_rows, device_span, device_use
from autoprof.analysis.errors import AnalysisError
from autoprof.analysis.hotspots import Hotspot, kernels, operators
from autoprof.analysis.inputs import TraceInput, newest_per_rank, with_rank
from autoprof.analysis.launches import Launches, launched_by, launches
from autoprof.analysis.optimizer import OptimizerUse, optimizer_use
from autoprof.analysis.phases import Phases, phase_times
from autoprof.analysis.reader import read_trace
from autoprof.analysis.streams import StreamUse, stream_uses
from autoprof.analysis.syncs import SyncUse, sync_uses
from autoprof.analysis.table import EventTable, Int64s, Step, windows

# A worker costs half a second to start; below this, compressed, one process is faster.
_WORTH_WORKERS_BYTES = 8_000_000


@dataclass
class StepSummary:
    """One step: its length, what it was made of, and what the device did from its start to the next one's."""

    number: int
    duration_us: float
    phases: Phases
    device: DeviceUse | None


@dataclass
class TraceSummary:
    """One rank in one capture. ``device`` runs from the first device event to the last; None without any."""

    given: TraceInput
    host: str | None
    world_size: int | None
    device_name: str | None
    partial: bool
    usual_step_us: float | None
    events: int
    steps: list[StepSummary]
    loader: str | None
    forward_from: str | None
    backward_from: str | None
    device: DeviceUse | None
    operators: list[Hotspot]
    kernels: list[Hotspot]
    streams: list[StreamUse] = field(default_factory=list)
    launches: Launches | None = None
    copies: list[CopyUse] = field(default_factory=list)
    collectives: list[CollectiveUse] = field(default_factory=list)
    optimizer: OptimizerUse | None = None
    syncs: list[SyncUse] = field(default_factory=list)
    compilation: Compilation | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def rank(self) -> int | None:
        """Return the rank; None where neither the trace nor its name says."""
        return self.given.rank


def summarize(one: TraceInput) -> TraceSummary:
    """Answer every question of the summary for one trace.

    Raises:
        TraceError: nothing of the trace can be read.
    """
    table = read_trace(one.path)
    steps = table.steps
    device = device_rows(table)
    calls = launched_by(table, device.rows)
    phases = phase_times(table, steps)
    in_steps: list[DeviceUse] | list[None] = [None] * len(steps)
    whole = None
    if len(device.rows):
        whole = device_use(table, device, calls, *device_span(table, device))[0]
        if steps:
            in_steps = device_use(table, device, calls, *_windows(steps))
    return TraceSummary(
        given=with_rank(one, table.header.rank),
        host=table.header.host,
        world_size=table.header.world_size,
        device_name=_device_name(table),
        partial=bool(table.header.autoprof.get("partial")),
        usual_step_us=_usual_step_us(table),
        events=len(table),
        steps=[
            StepSummary(step.number, step.dur_ns / 1000, phase, use)
            for step, phase, use in zip(steps, phases.steps, in_steps, strict=True)
        ],
        loader=phases.loader,
        forward_from=phases.forward_from,
        backward_from=phases.backward_from,
        device=whole,
        operators=operators(table),
        kernels=kernels(table, device),
        streams=stream_uses(table, device, calls),
        launches=launches(table, device.rows, device.dur_ns, calls),
        copies=copy_uses(table, device),
        collectives=collective_uses(table),
        optimizer=optimizer_use(table),
        syncs=sync_uses(table, device, steps),
        compilation=compilation(table, steps),
        notes=[*table.losses.lines(), *device.notes],
    )


def _windows(steps: list[Step]) -> tuple[Int64s, Int64s]:
    """Return each step up to where the next one begins: the device works on while the CPU is between them."""
    begins, ends = windows(steps)
    follows = np.array(
        [one.number + 1 == other.number for one, other in itertools.pairwise(steps)], dtype=np.bool_
    )
    ends[:-1] = np.where(follows, np.maximum(begins[1:], begins[:-1]), ends[:-1])
    return begins, ends


def _usual_step_us(table: EventTable) -> float | None:
    """Return how long steps took before this capture, as this product writes it into a trace."""
    value = table.header.autoprof.get("usual_step_s")
    return value * 1e6 if isinstance(value, int | float) and 0 < value < 1e9 else None


def _device_name(table: EventTable) -> str | None:
    """Return the name of the device that this trace's events ran on, where the exporter says."""
    used = set(table.device[table.on_device()].tolist())
    named = {
        properties["name"]
        for properties in table.header.device_properties
        if properties.get("id") in used and isinstance(properties.get("name"), str)
    }
    return ", ".join(sorted(named)) or None


@dataclass
class Summary:
    """All traces, by capture and rank; ``notes`` and ``unreadable`` are lines for a person."""

    traces: list[TraceSummary]
    notes: list[str]
    unreadable: list[str]

    def of_capture(self, capture: int | None) -> list[TraceSummary]:
        """Return the traces of one capture."""
        return [trace for trace in self.traces if trace.given.capture == capture]

    def steps_by_rank(self, capture: int | None) -> dict[int | None, float]:
        """Return the median step of each rank of a capture, microseconds; ranks without steps left out."""
        return {
            trace.rank: statistics.median(step.duration_us for step in trace.steps)
            for trace in self.of_capture(capture)
            if trace.steps
        }


def summarize_all(
    inputs: list[TraceInput], *, jobs: int | None = None, done: Callable[[], None] = lambda: None
) -> Summary:
    """Summarize every trace, several at a time where that is faster, and call ``done`` after each.

    Of two traces of one rank and capture the newer is used, which is noted. A trace that cannot be read is
    listed and stops nothing.

    Raises:
        AnalysisError: no trace can be read, or a worker was killed.
    """
    notes: list[str] = []
    unreadable: list[str] = []
    traces: list[TraceSummary] = []
    for one in _results(newest_per_rank(inputs, notes.append), jobs):
        if isinstance(one, AnalysisError):
            unreadable.append(str(one))
        else:
            traces.append(one)
        done()
    if not traces:
        count = f"none of the {len(inputs)} traces can be read; " if len(inputs) > 1 else ""
        raise AnalysisError(f"{count}{min(unreadable)}")
    by_path = {trace.given.path: trace for trace in traces}
    kept = newest_per_rank([trace.given for trace in traces], notes.append)
    return Summary([by_path[one.path] for one in kept], notes, sorted(unreadable))


def _results(inputs: list[TraceInput], jobs: int | None) -> Iterator[TraceSummary | AnalysisError]:
    size_bytes = sum(one.path.stat().st_size for one in inputs if one.path.is_file())
    if jobs is None:
        jobs = _usable_cores() if size_bytes > _WORTH_WORKERS_BYTES else 1
    jobs = min(jobs, len(inputs))
    if jobs <= 1:
        for one in inputs:
            yield _summary_or_error(one)
        return
    # Spawned: a fork would copy whatever the caller has loaded, threads and locks included.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        try:
            for future in as_completed([pool.submit(_summary_or_error, one) for one in inputs]):
                yield future.result()
        except BrokenProcessPool:
            raise AnalysisError(
                f"a worker was killed, perhaps for want of memory; read fewer at once: --jobs {jobs // 2}"
            ) from None


def _summary_or_error(one: TraceInput) -> TraceSummary | AnalysisError:
    try:
        return summarize(one)
    except AnalysisError as error:
        return AnalysisError(str(error))


def _usable_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1
