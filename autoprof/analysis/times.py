"""Times of Chrome traces: microseconds in the file, whole nanoseconds here."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np

from autoprof.analysis.table import Float64s, Int64s

# Times and durations beyond this are damage; up to it nanoseconds fit a signed 64-bit integer.
LIMIT_US = 4e15
# Beyond this a double that counts microseconds no longer tells nanoseconds apart. Exporters of 2024 wrote
# Unix time with three decimals; later ones count from baseTimeNanoseconds.
_EXACT_US = float(2**43)


class _Written(msgspec.Struct, gc=False):
    ts: msgspec.Raw = msgspec.Raw(b"")


_WRITTEN = msgspec.json.Decoder(list[_Written])


class Exact(float):
    """A time in microseconds that also knows its exact value in nanoseconds."""

    ns: int


def with_exact(text: bytes, times: list[float | None]) -> list[float | None]:
    """Return the times of a JSON list of events, those that a double cannot hold as :class:`Exact`."""
    # The latest decides: the times of one trace are all of one kind.
    if max((time for time in times if time is not None), default=0.0) <= _EXACT_US:
        return times
    if all(time is None or isinstance(time, int) or time.is_integer() for time in times):
        return times
    return [_exact(bytes(event.ts), time) for event, time in zip(_WRITTEN.decode(text), times, strict=True)]


def _exact(text: bytes, time: float | None) -> float | None:
    whole, _, decimals = text.partition(b".")
    if time is None or not (whole.isdigit() and decimals.isdigit()):
        return time
    exact = Exact(time)
    exact.ns = int(whole) * 1000 + int((decimals + b"000")[:3])
    return exact


def nanoseconds(times_us: list[float]) -> Int64s:
    """Return usable times as nanoseconds, shape (len(times_us),)."""
    found = durations(np.array(times_us, dtype=np.float64))
    for row, time in enumerate(times_us):
        if type(time) is Exact:
            found[row] = time.ns
    return found


def durations(us: Float64s) -> Int64s:
    """Return microseconds as nanoseconds, of the same shape. The product alone would lose digits."""
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)


def microseconds(value: Any) -> float | None:
    """Return one time as it stands in an event, a text too if it holds a number; None where it is no time."""
    if isinstance(value, float) and math.isfinite(value):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def usable_ns(value: object) -> int | None:
    """Return one time as it stands in an event as nanoseconds, or None where it is no time."""
    time = microseconds(value)
    if time is None or not -LIMIT_US < time < LIMIT_US:
        return None
    if type(time) is Exact:
        return time.ns
    whole = math.floor(time)
    return whole * 1000 + round((time - whole) * 1000)
