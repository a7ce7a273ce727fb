"""The HTML report: one file that holds everything and reaches for nothing.

All figures come from :func:`autoprof.report.document.as_document`, the data of ``autoprof summary --json``,
and from what the run says about itself. Every text in them may have been written by anyone: Jinja escapes
what becomes markup, and what scripts read is JSON in which nothing can end its element.
"""

from __future__ import annotations

import base64
import hashlib
import json
import statistics
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from autoprof import __version__
from autoprof.analysis.compare import compare
from autoprof.analysis.summary import Summary
from autoprof.report import charts, words
from autoprof.report.document import as_document
from autoprof.report.facts import RunFacts
from autoprof.settings import Settings, describe

LISTED = 500
"""Operators, and kernels, that the report lists over all ranks."""
_LISTED_PER_TRACE = (10, 100)
_LISTED_OVER_TRACES = 4000

PHASES = {
    "data_us": "data",
    "forward_us": "forward",
    "backward_us": "backward",
    "optimizer_us": "optimizer",
    "other_us": "other",
}
DEVICE = {
    "computation_us": "computation",
    "exposed_us": "communication alone",
    "copies_us": "copies alone",
    "idle_us": "idle",
}
_METRICS = {
    "step_us": "whole step",
    **PHASES,
    "collective_us": "collectives on the CPU",
    "busy_us": "device busy",
    "idle_us": "device idle",
    "computation_us": "device computing",
    "communication_us": "device communicating",
    "exposed_us": "communication that nothing hides",
}


@dataclass
class Answers:
    """One run, ready to be shown: what it was called on the command line, its answers, its own words."""

    place: str
    summary: Summary
    document: dict[str, Any]
    facts: RunFacts


def answers(place: str, summary: Summary, facts: RunFacts) -> Answers:
    """Lay out a summary for the report; ``place`` is what the person called the run."""
    return Answers(place, summary, as_document(summary, top=LISTED), facts)


def render(run: Answers, against: Answers | None = None) -> str:
    """Return the report as HTML, side by side with ``against`` where one is given.

    Raises:
        ModuleNotFoundError: a package of the ``report`` extra is not installed.
    """
    environment = Environment(
        loader=PackageLoader("autoprof.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("ms", "time", "seconds", "count", "percent", "size", "change"):
        environment.filters[name] = getattr(words, name)
    style, script, library = _asset("report.css"), _asset("report.js"), charts.javascript()
    page = _page(run, against)
    return environment.get_template("report.html.j2").render(
        page,
        style=style,
        library=library,
        script=script,
        embedded=embedded(page["data"]),
        policy=_policy(style, [library, script]),
        version=__version__,
        written_at=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )


def embedded(data: Any) -> str:
    """Return JSON for a ``<script type="application/json">``: no letter in it means anything to HTML."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(style: str, scripts: list[str]) -> str:
    """Return a Content Security Policy: these scripts by their hashes, and no connection anywhere."""
    allowed = " ".join(_hash(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return files("autoprof.report").joinpath(f"assets/{name}").read_text(encoding="utf-8")


def _page(run: Answers, against: Answers | None) -> dict[str, Any]:
    """Return everything that the template names."""
    document = words.cleaned(run.document)
    rows = _rows(document["traces"])
    data = _data(document, rows) | {"place": words.clean(run.place)}
    other = words.cleaned(against.document) if against else None
    if against and other:
        data["against"] = _against([(words.clean(against.place), other), (words.clean(run.place), document)])
    steps = len(_steps(document))
    return {
        "place": words.clean(run.place),
        "facts": run.facts,
        "clean": words.clean,
        "document": document,
        "overview": _overview(document),
        "findings": document["findings"],
        "rows": [
            {"label": label, **_row(trace)} for label, trace in zip(rows, document["traces"], strict=True)
        ],
        "phases": _present(PHASES, [trace["phases_median"] for trace in document["traces"]]),
        "has_collectives": any(
            (trace["phases_median"] or {}).get("collective_us") for trace in document["traces"]
        ),
        "device": data["parts"]["device"],
        "device_columns": _present(DEVICE, [_row(trace)["device"] for trace in document["traces"]]),
        "metrics": data["metrics"],
        "steps": steps,
        "several_captures": len(document["captures"]) > 1,
        "hotspots": [
            _hotspots("operators", document["operators"], steps),
            _hotspots("kernels", document["kernels"], steps),
        ],
        "notes": _notes(document, run.facts, rows),
        "cost": _cost(run.facts),
        "settings": _changed(run.facts),
        "against": words.cleaned(asdict(compare(against.summary, run.summary))) if against else None,
        "against_place": words.clean(against.place) if against else "",
        "data": data,
    }


def _rows(traces: list[dict[str, Any]]) -> list[str]:
    """Return what each trace's rank is called: its number, or its file's name where no number is known."""
    return [
        str(trace["rank"]) if trace["rank"] is not None else trace["file"].rpartition("/")[2]
        for trace in traces
    ]


def _row(trace: dict[str, Any]) -> dict[str, Any]:
    use = trace["device_per_step_median"] or trace["device"]
    return {
        "trace": trace,
        "time": trace["step_time"] or {},
        "phases": trace["phases_median"] or {},
        "device": _device(use) if use else {},
    }


def _present(names: dict[str, str], found: list[dict[str, Any] | None]) -> dict[str, str]:
    return {
        key: name for key, name in names.items() if any((one or {}).get(key) is not None for one in found)
    }


def _device(use: dict[str, Any]) -> dict[str, Any]:
    """Add what the device copied while it neither computed nor communicated, so that the parts add up."""
    alone = use["busy_us"] - use["computation_us"] - use["exposed_us"]
    return {**use, "copies_us": round(max(alone, 0.0), 3)}


def _overview(document: dict[str, Any]) -> dict[str, Any]:
    """Return medians over all recorded steps of all ranks, and the capture where ranks differ most."""
    steps = _steps(document)
    captures = [
        one for one in document["captures"] if len(one["ranks"]) > 1 and one["slowest_step_median_us"]
    ]

    def apart(one: dict[str, Any]) -> float:
        slowest, fastest = one["slowest_step_median_us"], one["fastest_step_median_us"]
        return float(slowest / fastest - 1) if fastest else 0.0

    worst = max(captures, key=apart, default=None)
    return {
        "step_us": _median([step["duration_us"] for step in steps]),
        "mean": _means(steps),
        "ranks": len({trace["rank"] for trace in document["traces"]}),
        "worst": worst,
        "apart": apart(worst) if worst else None,
        "device_names": sorted(
            {trace["device_name"] for trace in document["traces"] if trace["device_name"]}
        ),
        "hosts": sorted({trace["host"] for trace in document["traces"] if trace["host"]}),
        "world_size": max((trace["world_size"] or 0 for trace in document["traces"]), default=0) or None,
    }


def _steps(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for trace in document["traces"] for step in trace["steps"]]


def _means(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a step is made of, microseconds: means, which add up to the mean step, as medians do not.

    ``window_us`` is how long the device is looked at; a part that no step holds is None.
    """
    uses = [_device(step["device"]) for step in steps if step["device"]]
    means = {key: _mean([step["phases"][key] for step in steps]) for key in PHASES}
    means |= {key: _mean([use[key] for use in uses]) for key in (*DEVICE, "busy_us")}
    return means | {
        "step_us": _mean([step["duration_us"] for step in steps]),
        "window_us": _mean([use["busy_us"] + use["idle_us"] for use in uses]),
    }


def _mean(values: list[float | None]) -> float | None:
    """Return the mean; a step that does not hold the part has spent no time on it. None if none does."""
    known = [value for value in values if value is not None]
    return round(sum(known) / len(values), 3) if known else None


def _median(values: list[Any]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _hotspots(kind: str, hotspots: list[dict[str, Any]], steps: int) -> dict[str, Any]:
    return {
        "kind": kind,
        "rows": hotspots,
        "steps": steps,
        "whole_us": sum(one["self_us"] for one in hotspots),
        "is_cut": len(hotspots) >= LISTED,
    }


def _data(document: dict[str, Any], rows: list[str]) -> dict[str, Any]:
    """Return what the script reads: columns with one entry per recorded step of a trace, and descriptions."""
    cells: dict[str, list[Any]] = {name: [] for name in ("trace", "step", *_METRICS, "copies_us")}
    for number, trace in enumerate(document["traces"]):
        for step in trace["steps"]:
            cells["trace"].append(number)
            cells["step"].append(step["number"])
            known = {"step_us": step["duration_us"], **step["phases"]}
            known |= _device(step["device"]) if step["device"] else {}
            for name in (*_METRICS, "copies_us"):
                cells[name].append(known.get(name))
    cells = {
        name: values
        for name, values in cells.items()
        if name in ("trace", "step") or any(value is not None for value in values)
    }
    least, most = _LISTED_PER_TRACE
    listed = max(least, min(most, _LISTED_OVER_TRACES // max(len(rows), 1)))
    columns = ("name", "calls", "self_us", "total_us", "mean_us")
    parts = {
        "phases": {key: name for key, name in PHASES.items() if key in cells},
        "device": {key: name for key, name in DEVICE.items() if key in cells},
    }
    names = list(dict.fromkeys(rows))
    most_steps = max((len(trace["steps"]) for trace in document["traces"]), default=0)
    return {
        "rows": names,
        "traces": [
            {
                "row": names.index(label),
                "label": label,
                "capture": trace["capture_first_step"],
                "file": trace["file"],
                "operators": [[one[name] for name in columns] for one in trace["operators"][:listed]],
                "kernels": [[one[name] for name in columns] for one in trace["kernels"][:listed]],
                "cut": {kind: len(trace[kind]) > listed for kind in ("operators", "kernels")},
                "mean": _means(trace["steps"]),
            }
            for label, trace in zip(rows, document["traces"], strict=True)
        ],
        "cells": cells,
        "metrics": {name: title for name, title in _METRICS.items() if name in cells},
        "parts": parts,
        "mean": _means(_steps(document)),
        "specs": {
            "heat": charts.heat_strip(len(names), len(cells["trace"])),
            "steps": {kind: charts.stacked(one, "step", most_steps) for kind, one in parts.items()},
            "ranks": {kind: charts.stacked(one, "rank", len(rows)) for kind, one in parts.items()},
            "overview": {kind: charts.stacked(one, "", 1) for kind, one in parts.items()},
        },
    }


def _against(documents: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return what the charts of two runs show: parts that either holds."""
    means = [_means(_steps(one)) for _, one in documents]
    runs = [{"label": place, "mean": mean} for (place, _), mean in zip(documents, means, strict=True)]
    parts = {kind: _present(names, [*means]) for kind, names in (("phases", PHASES), ("device", DEVICE))}
    specs = {kind: charts.stacked(names, "", len(runs)) for kind, names in parts.items()}
    return {"runs": runs, "parts": parts, "specs": specs}


def _notes(document: dict[str, Any], facts: RunFacts, rows: list[str]) -> list[tuple[str, list[str]]]:
    """Return what else must be said, by kind, kinds without a line left out."""
    traces = list(zip(rows, document["traces"], strict=True))
    sources = {
        f"{phase} is told from {trace[f'{phase}_from']}"
        for phase in ("forward", "backward")
        for trace in document["traces"]
        if trace[f"{phase}_from"] not in (None, "ranges")
    }
    missed = [f"rank {rank.rank}: {words.clean(line)}" for rank in facts.ranks for line in rank.missed]
    missed += [f"rank {label}: the capture is partial" for label, trace in traces if trace["partial"]]
    recorded = {trace["rank"] for trace in document["traces"]}
    missed += [
        f"rank {rank.rank} took part in the run, but none of its traces is here"
        for rank in facts.ranks
        if rank.rank not in recorded
    ]
    kinds = {
        "What was planned and not recorded": missed,
        "Faults of the profiler": [
            f"rank {rank.rank}: {words.clean(line)}" for rank in facts.ranks for line in rank.faults
        ],
        "Traces that could not be read": document["unreadable"],
        "How to read the figures": [
            *(
                f"rank {label}: no whole step is marked, so nothing is told per step"
                for label, trace in traces
                if not trace["steps"]
            ),
            *sorted(sources),
            *document["notes"],
            *(f"rank {label}: {line}" for label, trace in traces for line in trace["notes"]),
            *map(words.clean, facts.damaged),
        ],
    }
    return [(kind, lines) for kind, lines in kinds.items() if lines]


def _cost(facts: RunFacts) -> dict[str, Any] | None:
    """Return what profiling cost: the worst of the ranks, and bytes over all; None where none says."""
    if not facts.ranks:
        return None
    blocked = [rank.blocked_s for rank in facts.ranks if rank.blocked_s is not None]
    slower = [rank.recorded_to_usual for rank in facts.ranks if rank.recorded_to_usual is not None]
    return {
        "blocked_s": max(blocked, default=None),
        "slower": max(slower, default=None),
        "bytes": sum(rank.bytes or 0 for rank in facts.ranks),
        "ranks": len(facts.ranks),
    }


def _changed(facts: RunFacts) -> dict[str, str]:
    """Return the run's settings that are not the defaults."""
    defaults = json.loads(json.dumps(describe(Settings())))
    return {
        words.clean(name): words.clean(str(value))
        for name, value in facts.settings.items()
        if value != defaults.get(name, value)
    }
