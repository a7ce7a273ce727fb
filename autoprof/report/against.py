"""Two runs side by side, told from their documents alone. Whether a difference is more than noise is not
asked here.
"""

from __future__ import annotations

import statistics
from typing import Any

_FIGURES = {
    "step": ("duration_us", None),
    "data": ("phases", "data_us"),
    "forward": ("phases", "forward_us"),
    "backward": ("phases", "backward_us"),
    "optimizer": ("phases", "optimizer_us"),
    "other": ("phases", "other_us"),
    "device busy": ("device", "busy_us"),
    "device idle": ("device", "idle_us"),
    "device computing": ("device", "computation_us"),
    "device communicating": ("device", "communication_us"),
    "communication that nothing hides": ("device", "exposed_us"),
}
_LISTED = 100


def side_by_side(document: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return rows for the tables: medians per step, and operators and kernels by what differs most.

    Each row holds the ``other`` figure, this one and the change as a ratio; times are microseconds per step.
    """
    steps, other_steps = _steps(document), _steps(other)
    figures = []
    for name, (block, key) in _FIGURES.items():
        here, there = _median(steps, block, key), _median(other_steps, block, key)
        if here is not None or there is not None:
            change = here / there - 1 if there and here is not None else None
            figures.append({"name": name, "there": there, "here": here, "change": change})
    return {
        "figures": figures,
        "steps": len(steps),
        "other_steps": len(other_steps),
        "hotspots": {
            kind: _differences(document[kind], len(steps), other[kind], len(other_steps))
            for kind in ("operators", "kernels")
        },
    }


def _steps(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for trace in document["traces"] for step in trace["steps"]]


def _median(steps: list[dict[str, Any]], block: str, key: str | None) -> float | None:
    found = [step[block] if key is None else (step[block] or {}).get(key) for step in steps]
    known = [value for value in found if value is not None]
    return statistics.median(known) if known else None


def _differences(
    here: list[dict[str, Any]], steps: int, there: list[dict[str, Any]], other_steps: int
) -> list[dict[str, Any]]:
    """Return the names whose time per step differs most; without steps nothing can be set side by side."""
    if not steps or not other_steps:
        return []
    ours = {one["name"]: one["self_us"] / steps for one in here}
    theirs = {one["name"]: one["self_us"] / other_steps for one in there}
    rows = [
        {
            "name": name,
            "there": theirs.get(name),
            "here": ours.get(name),
            "difference": ours.get(name, 0.0) - theirs.get(name, 0.0),
        }
        for name in {**ours, **theirs}
    ]
    return sorted(rows, key=lambda row: -abs(row["difference"]))[:_LISTED]
