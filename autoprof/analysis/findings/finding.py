"""The one shape of a finding, and what rules share."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from autoprof.analysis.collectives import waited_us
from autoprof.analysis.summary import StepSummary, TraceSummary

# Less than this share of a step is not worth a person's time.
WORTH = 0.05


PHASES = {
    "data_us": "waiting for data",
    "forward_us": "forward",
    "backward_us": "backward",
    "optimizer_us": "the optimizer",
    "other_us": "outside of data, forward, backward and optimizer",
}
"""Phases that add up to a step, as they read in a sentence."""


@dataclass(frozen=True)
class Stake:
    """What a rule sees in one trace.

    A change would save from ``low_us`` to ``high_us`` microseconds per step, on average. ``steps`` are the
    numbers of the steps that it concerns; None is all.
    """

    low_us: float
    high_us: float
    evidence: str
    advice: str
    steps: list[int] | None = None


@dataclass(frozen=True)
class Finding:
    """One thing worth changing.

    ``evidence`` is what was measured, ``advice`` what to do. ``low_us`` and ``high_us`` are what each step
    would be shorter by; ``step_us`` is the mean step that they were seen in. ``steps`` and ``ranks`` say
    where it was seen, ``capture`` is that capture's first step.
    """

    slug: str
    title: str
    evidence: str
    advice: str
    low_us: float
    high_us: float
    step_us: float
    capture: int | None
    ranks: list[int | None]
    steps: list[int]

    @property
    def low_share(self) -> float:
        """Return the least that would be saved, as a share of the step."""
        return self.low_us / self.step_us if self.step_us else 0.0

    @property
    def share(self) -> float:
        """Return the most that would be saved, as a share of the step."""
        return self.high_us / self.step_us if self.step_us else 0.0

    @property
    def severity(self) -> str:
        """Return `high` from 30% of a step on, `medium` from 15%, else `low`."""
        return "high" if self.share >= 0.3 else "medium" if self.share >= 0.15 else "low"

    @property
    def seconds_at_stake(self) -> float:
        """Return the most that would have been saved in the steps it was seen on."""
        return self.high_us * len(self.steps) / 1e6

    def as_document(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "slug": self.slug,
            "title": self.title,
            "severity": self.severity,
            "evidence": self.evidence,
            "advice": self.advice,
            "saves_us_per_step": {"low": round(self.low_us, 3), "high": round(self.high_us, 3)},
            "share_of_step": {"low": round(self.low_share, 4), "high": round(self.share, 4)},
            "seconds_at_stake": round(self.seconds_at_stake, 6),
            "step_us": round(self.step_us, 3),
            "capture_first_step": self.capture,
            "ranks": self.ranks,
            "steps": self.steps,
        }


def on_worst_rank(
    traces: list[TraceSummary],
    stakes: Iterable[Stake | None],
    slug: str,
    title: str,
    *,
    worth: float = WORTH,
) -> Iterator[Finding]:
    """Yield the finding of the rank with most at stake, where that is ``worth`` a share of its step.

    ``stakes`` are what the rule sees in each of ``traces``. Ranks wait for each other at each step, so what
    the worst one saves is what all save.
    """
    seen = []
    for trace, stake in zip(traces, stakes, strict=True):
        step = mean_step_us(trace)
        if stake is not None and stake.high_us >= worth * step:
            seen.append((stake.high_us / step, trace, stake))
    if not seen:
        return
    _, worst, stake = max(seen, key=lambda one: one[0])
    yield Finding(
        slug=slug,
        title=title,
        evidence=stake.evidence,
        advice=stake.advice,
        low_us=stake.low_us,
        high_us=stake.high_us,
        step_us=mean_step_us(worst),
        capture=worst.given.capture,
        ranks=[trace.rank for _, trace, _ in seen],
        steps=[step.number for step in worst.steps] if stake.steps is None else stake.steps,
    )


def waited_us_per_step(traces: list[TraceSummary]) -> dict[int, float]:
    """Return how long ranks stood in collectives for the last one, by their place in ``traces``."""
    waited = waited_us({at: trace.collectives for at, trace in enumerate(traces)})
    return {at: us / len(traces[at].steps) for at, us in waited.items()}


def mean_step_us(trace: TraceSummary) -> float:
    """Return the mean length of a trace's steps; it has at least one."""
    return statistics.fmean(step.duration_us for step in trace.steps)


def mean_us(trace: TraceSummary, value: Callable[[StepSummary], float | None]) -> float:
    """Return a mean over the steps; what is unknown counts as 0."""
    return statistics.fmean(value(step) or 0.0 for step in trace.steps)


def ms(us: float) -> str:
    """Return microseconds as text in milliseconds."""
    return f"{us / 1000:,.3g} ms" if us < 1e6 else f"{us / 1000:,.0f} ms"


def of_step(us: float, trace: TraceSummary) -> str:
    """Return microseconds per step as text, beside the mean step and as a share of it."""
    step = mean_step_us(trace)
    return f"{ms(us)} of a step of {ms(step)} ({percent(us, step)})"


def percent(part: float, whole: float) -> str:
    """Return a share as text."""
    return f"{100 * part / whole:.0f}%" if whole else "0%"
