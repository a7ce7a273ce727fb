"""What a run says about itself besides its traces: ``run.json`` and ``ranks/*.json``.

The files may be missing, damaged, or written by anyone: whatever is not of the expected kind is left out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autoprof.analysis.inputs import TraceInput
from autoprof.run import layout, store
from autoprof.settings import SettingsError, load


@dataclass
class RankFacts:
    """What one rank wrote down about itself; None is unknown. ``bytes`` is what its traces take on disk."""

    rank: int
    host: str | None
    steps: int | None
    skipped_steps: int | None
    step_source: str | None
    blocked_s: float | None
    recorded_to_usual: float | None
    bytes: int | None
    missed: list[str]
    faults: list[str]


@dataclass
class RunFacts:
    """What a run wrote down about itself; empty for a folder of traces that others made."""

    folder: Path | None = None
    run_id: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    command: list[str] = field(default_factory=list)
    directory: str | None = None
    host: str | None = None
    world_size: int | None = None
    steps: int | None = None
    plan: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    ranks: list[RankFacts] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    """One line for each file that could not be read."""


def read_facts(inputs: list[TraceInput]) -> RunFacts:
    """Read what the run that these traces belong to says about itself; empty where they are of none."""
    folders = {one.path.absolute().parent.parent for one in inputs if one.capture is not None}
    if len(folders) != 1:
        return RunFacts()
    folder = folders.pop()
    facts = RunFacts(folder=folder)
    document = _read(folder / layout.MANIFEST, facts.damaged)
    facts.run_id = _text(document.get("run_id"))
    facts.started_at, facts.ended_at = _text(document.get("started_at")), _text(document.get("ended_at"))
    command = document.get("command")
    facts.command = [str(word) for word in command] if isinstance(command, list) else []
    facts.directory, facts.host = _text(document.get("directory")), _text(document.get("host"))
    facts.world_size, facts.steps = _count(document.get("world_size")), _count(document.get("steps"))
    facts.plan = _text(document.get("plan"))
    facts.settings = _object(document.get("settings"))
    facts.versions = {name: str(value) for name, value in _object(document.get("versions")).items()}
    for path in sorted((folder / layout.RANKS).glob("rank*.json")):
        if path.name.count(".") > 1:
            continue  # of an earlier attempt under the same id
        found = _read(path, facts.damaged)
        rank = _count(found.get("rank"))
        if rank is not None:
            facts.ranks.append(_rank(rank, found))
    return facts


def _rank(rank: int, document: dict[str, Any]) -> RankFacts:
    cost = _object(document.get("cost"))
    faults = document.get("faults")
    return RankFacts(
        rank=rank,
        host=_text(document.get("host")),
        steps=_count(document.get("steps")),
        skipped_steps=_count(document.get("skipped_steps")),
        step_source=_text(document.get("step_source")),
        blocked_s=_number(cost.get("blocked_s")),
        recorded_to_usual=_number(cost.get("recorded_step_to_usual_step")),
        bytes=_count(cost.get("bytes")),
        missed=[str(line) for line in _list(document.get("missed"))],
        faults=[str(_object(fault).get("what", fault)) for fault in _list(faults)],
    )


def _read(path: Path, damaged: list[str]) -> dict[str, Any]:
    try:
        return store.read_json(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        damaged.append(f"{path.name} could not be read: {error}")
        return {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**63 else None


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and 0 <= value < 1e15 else None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def wait_for_ranks(place: Path, seconds: float) -> None:
    """Wait until every rank of a run has the captures that any of them has, at most so many seconds.

    Ranks that record nothing are not waited for, nor is a folder that is no run.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not _have_landed(place):
        time.sleep(0.2)


def _have_landed(run: Path) -> bool:
    documents = [_read(path, []) for path in (run / layout.RANKS).glob("rank?????.json")]
    settings = _object(_read(run / layout.MANIFEST, []).get("settings"))
    try:
        chosen = load({"ACCELPROF_RANKS": str(settings.get("ACCELPROF_RANKS", "all"))}).ranks
    except SettingsError:
        return True
    landed = [
        {str(_object(one).get("first_step")) for one in _list(document.get("captures"))}
        for document in documents
        if chosen.selects(_count(document.get("rank")) or 0, _count(document.get("local_rank")) or 0)
    ]
    return all(one == landed[0] for one in landed)
