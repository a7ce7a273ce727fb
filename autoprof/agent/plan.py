"""Which steps are captured. Pure: a step number in, what to do on that step out."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from autoprof.settings import Settings


class Action(Enum):
    """What the profiler does while one step runs."""

    IDLE = "idle"
    WARMUP = "warmup"
    RECORD = "record"
    SAVE = "save"
    """Recorded, and the last step of its capture."""


class Capture(NamedTuple):
    """One range of steps, all inclusive: warmup from ``warmup_from``, recorded from ``first`` to ``last``."""

    warmup_from: int
    first: int
    last: int

    def action(self, step: int) -> Action:
        """Say what to do on ``step``."""
        if step < self.warmup_from or step > self.last:
            return Action.IDLE
        if step < self.first:
            return Action.WARMUP
        return Action.SAVE if step == self.last else Action.RECORD

    def __str__(self) -> str:
        return f"step {self.first}" if self.first == self.last else f"steps {self.first}-{self.last}"


class CapturePlan:
    """The captures that the settings ask for: explicit steps, or torch's schedule.

    The schedule is that of ``torch.profiler.schedule`` (torch/profiler/profiler.py), step for step.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._explicit = _explicit_captures(settings)

    def next_capture(self, step: int) -> Capture | None:
        """Return the first capture that is not over before ``step``; its warmup may have begun."""
        if self._explicit:
            return next((capture for capture in self._explicit if capture.last >= step), None)
        plan = self._settings
        cycle_length = plan.wait + plan.warmup + plan.active
        origin = plan.skip_first - (plan.wait if plan.skip_first_wait else 0)
        cycle = max(0, step - origin) // cycle_length
        if plan.repeat and cycle >= plan.repeat:
            return None
        warmup_from = origin + cycle * cycle_length + plan.wait
        first = warmup_from + plan.warmup
        return Capture(warmup_from, first, first + plan.active - 1)

    def __str__(self) -> str:
        plan = self._settings
        if self._explicit:
            return "steps " + ",".join(
                f"{capture.first}-{capture.last}" if capture.last > capture.first else str(capture.first)
                for capture in self._explicit
            )
        first = self.next_capture(0)
        if plan.repeat == 1:
            return str(first)
        every = plan.wait + plan.warmup + plan.active
        times = f"{plan.repeat} times" if plan.repeat else "to the end"
        return f"{first}, then every {every} steps, {times}"


def _explicit_captures(settings: Settings) -> list[Capture]:
    captures: list[Capture] = []
    free_from = 0
    for first, last in settings.steps:
        captures.append(Capture(max(free_from, first - settings.warmup), first, last))
        free_from = last + 1
    return captures
