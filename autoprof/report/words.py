"""Values as text for the HTML report: units, thousands separators, and names that stay what they are."""

from __future__ import annotations

from typing import Any

ABSENT = "–"
_LONGEST_NAME = 2000


def clean(text: str) -> str:
    """Return a name without control and direction characters, and of a length that a page can bear.

    Such letters could hide or reorder what stands beside them; markup is not touched here.
    """
    shown = text if text.isprintable() else "".join(one if one.isprintable() else "\ufffd" for one in text)
    return shown if len(shown) <= _LONGEST_NAME else shown[:_LONGEST_NAME] + "…"


def cleaned(value: Any) -> Any:
    """Return plain data with every text in it cleaned, keys included; numbers that JSON lacks become None."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): cleaned(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(one) for one in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value


def ms(us: float | None) -> str:
    """Write microseconds as milliseconds, without the unit."""
    return ABSENT if us is None else f"{us / 1000:,.3f}"


def time(us: float | None) -> str:
    """Write microseconds with the unit that reads best."""
    if us is None:
        return ABSENT
    if abs(us) >= 10_000_000:
        return f"{us / 1e6:,.2f}\u00a0s"
    return f"{us / 1000:,.1f}\u00a0ms" if abs(us) >= 100_000 else f"{us / 1000:,.3f}\u00a0ms"


def seconds(value: float | None) -> str:
    """Write seconds."""
    return (
        ABSENT
        if value is None
        else f"{value:,.2f}\u00a0s"
        if value >= 0.1 or not value
        else f"{value:.2g}\u00a0s"
    )


def count(value: float | None) -> str:
    """Write a whole number."""
    return ABSENT if value is None else f"{value:,.0f}"


def percent(part: float | None, whole: float | None) -> str:
    """Write a share."""
    return ABSENT if part is None or not whole else f"{100 * part / whole:,.1f}\u00a0%"


def size(value: float | None) -> str:
    """Write bytes."""
    if value is None:
        return ABSENT
    return f"{value / 1e6:,.1f}\u00a0MB" if value >= 1e6 else f"{value / 1e3:,.0f}\u00a0kB"


def change(ratio: float | None) -> str:
    """Write by how much a figure grew or shrank."""
    return ABSENT if ratio is None else f"{100 * ratio:+,.1f}\u00a0%"
