"""How long steps take with a profiler and without: what a capture costs, next to what it shows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

_REMEMBERED = 64


class Pace:
    """The latest durations of steps, of those being recorded and of those without a profiler.

    A new one takes over what ``before`` knows of the latter.
    """

    def __init__(self, before: Pace | None = None) -> None:
        self._recorded: deque[float] = deque(maxlen=_REMEMBERED)
        self._usual: deque[float] = before._usual if before else deque(maxlen=_REMEMBERED)
        self._skip = True  # the first one includes what a process does once, or the end of a capture

    def add(self, seconds: float, *, running: bool, recording: bool) -> None:
        """Take the duration of a step during which a profiler was ``running``, perhaps ``recording``."""
        if self._skip:
            self._skip = False
        elif recording:
            self._recorded.append(seconds)
        elif not running:
            self._usual.append(seconds)

    def skip_one(self) -> None:
        """Leave the step under way out: the profiler was started or stopped in it."""
        self._skip = True

    @property
    def recorded_s(self) -> float | None:
        """Median seconds of a step while it was recorded."""
        return _median(self._recorded)

    @property
    def usual_s(self) -> float | None:
        """Median seconds of a step without a profiler."""
        return _median(self._usual)


def _median(values: Iterable[float]) -> float | None:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None
