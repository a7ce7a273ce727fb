"""Charts as Vega-Lite descriptions, and the JavaScript that draws them.

Colours are CSS variables, so that a chart follows the page into dark mode and onto paper without being drawn
again. A description holds no data: ``assets/report.js`` adds the rows and listens for clicks.
"""

from __future__ import annotations

import functools
from typing import Any

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name, which nothing fetches
_SINGLE_MARKS_SPOKEN = 200
"""Marks of a chart up to which each is announced by itself; beyond, its table serves better."""

_LYING_BARS = 12
"""Bars up to which they lie, one below another, with room for what they are called."""

_AXIS = {
    "labelColor": "var(--soft)",
    "titleColor": "var(--soft)",
    "domainColor": "var(--line)",
    "tickColor": "var(--line)",
    "gridColor": "var(--line)",
    "labelFontSize": 12,
    "titleFontSize": 12,
    "titleFontWeight": "normal",
    "labelOverlap": True,
    "labelSeparation": 4,
    "labelAngle": 0,
}
_CONFIG = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": _AXIS,
    "legend": {
        "labelColor": "var(--text)",
        "titleColor": "var(--soft)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "orient": "top",
        "direction": "horizontal",
    },
}


@functools.cache
def javascript() -> str:
    """Return the drawing library as one script that reaches for nothing outside itself (some 1 MB)."""
    import vl_convert

    source: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # An HTML parser must not see the end of the script, or the beginning of a comment, inside of it.
    return source.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def heat_strip(rows: int, cells: int) -> dict[str, Any]:
    """Describe a strip of one row per rank and one column per step; fields: row, step, value (ms), at.

    The parameter ``chosen`` is the ``at`` of the cell to be framed.
    """
    spec = _spec(
        height=max(rows, min(26 * rows, 560)),
        mark={"type": "rect", "cursor": "pointer", "aria": cells <= _SINGLE_MARKS_SPOKEN},
        encoding={
            "x": {"field": "step", "type": "ordinal", "sort": None, "title": "step"},
            "y": {"field": "row", "type": "ordinal", "sort": None, "title": "rank"},
            "color": {
                "field": "value",
                "type": "quantitative",
                "scale": {"scheme": "viridis"},
                "legend": {"title": "ms", "gradientLength": 180},
            },
            "stroke": {"condition": {"test": "datum.at === chosen", "value": "var(--text)"}, "value": None},
            "strokeWidth": {"value": 3},
        },
    )
    return spec | {"params": [{"name": "chosen", "value": -1}]}


def stacked(parts: dict[str, str], across: str, bars: int) -> dict[str, Any]:
    """Describe bars of ``parts`` (key to title) one upon another: lying where they are few, else standing.

    Fields: at, key, order, value (ms), faded.
    """
    is_few = bars <= _LYING_BARS
    places = {"field": "at", "type": "ordinal", "sort": None, "title": across}
    lengths = {
        "field": "value",
        "type": "quantitative",
        "stack": "zero",
        "title": "ms",
        "axis": {"tickCount": 8},
    }
    return _spec(
        height=34 * bars if is_few else 240,
        mark={"type": "bar", "cursor": "pointer", "aria": bars * len(parts) <= _SINGLE_MARKS_SPOKEN},
        encoding={
            "y" if is_few else "x": places,
            "x" if is_few else "y": lengths,
            "order": {"field": "order", "type": "quantitative"},
            "color": {
                "field": "key",
                "type": "nominal",
                "scale": {"domain": list(parts), "range": [f"var(--{_colour(key)})" for key in parts]},
                "legend": None,  # the page has one that wraps, and that a screen reader can read
            },
            "opacity": {"condition": {"test": "datum.faded", "value": 0.45}, "value": 1},
        },
    )


def _colour(key: str) -> str:
    return key.removesuffix("_us")


def _spec(*, height: int, mark: dict[str, Any], encoding: dict[str, Any]) -> dict[str, Any]:
    return {
        "$schema": _SCHEMA,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "mark": mark,
        "encoding": encoding,
        "config": _CONFIG,
    }
