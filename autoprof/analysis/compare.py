"""Two runs side by side: what takes longer, and whether that is more than noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autoprof.analysis.hotspots import Hotspot, joined
from autoprof.analysis.summary import StepSummary, Summary
from autoprof.analysis.table import Float64s

SIGNIFICANCE = 0.05
_LISTED = 100
_SHUFFLES = 20_000
_RESAMPLES = 2_000


def _phase(name: str) -> Callable[[StepSummary], float | None]:
    return lambda step: getattr(step.phases, name)


def _device(name: str) -> Callable[[StepSummary], float | None]:
    return lambda step: getattr(step.device, name) if step.device else None


# The whole step comes first: the numbers of steps are those of its values.
_FIGURES: dict[str, Callable[[StepSummary], float | None]] = {
    "step": lambda step: step.duration_us,
    "data": _phase("data_us"),
    "forward": _phase("forward_us"),
    "backward": _phase("backward_us"),
    "optimizer": _phase("optimizer_us"),
    "other": _phase("other_us"),
    "device busy": _device("busy_us"),
    "device idle": _device("idle_us"),
    "device computing": _device("computation_us"),
    "device communicating": _device("communication_us"),
    "communication that nothing hides": _device("exposed_us"),
}


@dataclass(frozen=True)
class Figure:
    """One figure of a step in both runs: medians over steps, in microseconds.

    ``change`` is the ratio less 1, ``low`` and ``high`` its 95% interval (bootstrap over steps); None where
    one of the runs does not have the figure, or has 0. ``significant`` says whether the runs differ by more
    than noise (Mann-Whitney by permutation of steps, over all figures by Holm's method); None where so few
    steps can never tell.
    """

    name: str
    before_us: float | None
    after_us: float | None
    change: float | None
    low: float | None
    high: float | None
    significant: bool | None


@dataclass(frozen=True)
class Difference:
    """One operator or kernel: self time per step in microseconds; None where a run does not have it."""

    name: str
    before_us: float | None
    after_us: float | None
    difference_us: float


@dataclass(frozen=True)
class Comparison:
    """What two runs differ in. A step of several ranks is one, their mean."""

    steps_before: int
    steps_after: int
    figures: list[Figure]
    operators: list[Difference]
    kernels: list[Difference]


def compare(before: Summary, after: Summary) -> Comparison:
    """Set two runs side by side; operators and kernels by what differs most."""
    values = [(name, _values(before, value), _values(after, value)) for name, value in _FIGURES.items()]
    known = [(name, one, other) for name, one, other in values if len(one) or len(other)]
    return Comparison(
        steps_before=len(values[0][1]),
        steps_after=len(values[0][2]),
        figures=_figures(known),
        operators=_differences(before, after, lambda summary: [trace.operators for trace in summary.traces]),
        kernels=_differences(before, after, lambda summary: [trace.kernels for trace in summary.traces]),
    )


def _values(summary: Summary, value: Callable[[StepSummary], float | None]) -> Float64s:
    """Return a figure of each step, shape (steps,): ranks go through a step together, so they are one."""
    by_step: dict[tuple[int | None, int], list[float]] = {}
    for trace in summary.traces:
        for step in trace.steps:
            known = value(step)
            if known is not None:
                by_step.setdefault((trace.given.capture, step.number), []).append(known)
    return np.array([statistics.fmean(ranks) for ranks in by_step.values()], dtype=np.float64)


def _figures(values: list[tuple[str, Float64s, Float64s]]) -> list[Figure]:
    judged = {name: _probability(one, other) for name, one, other in values if len(one) and len(other)}
    significant = _holm(judged)
    figures = []
    for name, one, other in values:
        before = float(np.median(one)) if len(one) else None
        after = float(np.median(other)) if len(other) else None
        change = after / before - 1 if before and after is not None else None
        low, high = _interval(one, other) if change is not None else (None, None)
        told = significant.get(name) if _enough(len(one), len(other), len(judged)) else None
        figures.append(Figure(name, before, after, change, low, high, told))
    return figures


def _enough(one: int, other: int, figures: int) -> bool:
    """Return whether the clearest difference that so many steps can show would count."""
    return bool(one and other) and 2 / math.comb(one + other, one) <= SIGNIFICANCE / max(figures, 1)


def _probability(one: Float64s, other: Float64s) -> float:
    """Return how often steps dealt out at random differ as much in their ranks (two-sided)."""
    both = np.concatenate((one, other))
    ordered, at, counts = np.unique(both, return_inverse=True, return_counts=True)
    places = (np.cumsum(counts) - (counts - 1) / 2)[at]  # equal values share their mean place
    expected = len(one) * (len(both) + 1) / 2
    seen = abs(places[: len(one)].sum() - expected)
    if len(ordered) == 1:
        return 1.0
    random = np.random.default_rng(0)
    shuffled = random.permuted(np.tile(places, (_SHUFFLES, 1)), axis=1)[:, : len(one)].sum(axis=1)
    as_much = np.count_nonzero(np.abs(shuffled - expected) >= seen - 1e-9)
    return float((as_much + 1) / (_SHUFFLES + 1))


def _holm(probabilities: dict[str, float]) -> dict[str, bool]:
    """Return which figures differ when all are judged at once."""
    found, holds = {}, True
    for at, (name, probability) in enumerate(sorted(probabilities.items(), key=lambda item: item[1])):
        holds = holds and probability <= SIGNIFICANCE / (len(probabilities) - at)
        found[name] = holds
    return found


def _interval(one: Float64s, other: Float64s) -> tuple[float | None, float | None]:
    """Return the 95% interval of the change of the median."""
    random = np.random.default_rng(0)
    before = np.median(random.choice(one, (_RESAMPLES, len(one))), axis=1)
    after = np.median(random.choice(other, (_RESAMPLES, len(other))), axis=1)
    usable = before > 0
    if not usable.any():
        return None, None
    low, high = np.quantile(after[usable] / before[usable] - 1, (0.025, 0.975)).tolist()
    return low, high


def _differences(
    before: Summary, after: Summary, hotspots: Callable[[Summary], list[list[Hotspot]]]
) -> list[Difference]:
    """Return the names whose time per step and rank differs most; none where a run has no steps."""
    counts = [sum(len(trace.steps) for trace in summary.traces) for summary in (before, after)]
    if not all(counts):
        return []
    one, other = (
        {hotspot.name: hotspot.self_us / count for hotspot in joined(hotspots(summary))}
        for summary, count in zip((before, after), counts, strict=True)
    )
    rows = [
        Difference(name, one.get(name), other.get(name), other.get(name, 0.0) - one.get(name, 0.0))
        for name in {**one, **other}
    ]
    return sorted(rows, key=lambda row: -abs(row.difference_us))[:_LISTED]
