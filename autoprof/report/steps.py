"""Step records of a run laid out: as plain data for JSON and as text. Needs no package besides our own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from autoprof.run import steps
from autoprof.run.pace import Pace, Verdict, duration, pace, percent, verdict

_COLUMNS = (
    "rank",
    "steps",
    "median",
    "middle half",
    "waiting for data",
    "optimizer",
    "skipped",
    "slowest steps",
)


@dataclass
class Paces:
    """How the ranks of a run went, by rank. ``notes`` and ``unreadable`` are lines for a person."""

    run: Path
    ranks: list[Pace]
    verdict: Verdict
    notes: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def read_paces(run: Path) -> Paces | None:
    """Read the step records of a run; None where it has none.

    Raises:
        StepFileError: there are files, and none of them can be used.
    """
    paths, older = steps.find(run)
    ranks, unreadable = [], []
    for path in paths:
        try:
            file = steps.read(path)
        except steps.StepFileError as error:
            unreadable.append(str(error))
        except OSError as error:
            unreadable.append(f"{path}: {error.strerror or error}")
        else:
            if file.records:
                ranks.append(pace(file))
            else:
                unreadable.append(f"{path}: cut off before its first record")
    if not ranks:
        if unreadable:
            raise steps.StepFileError(unreadable[0])
        return None
    notes = [f"{older} older file{'s' if older > 1 else ''} of the same ranks left out"] if older else []
    return Paces(
        run, ranks, verdict(ranks), [*notes, *(line for one in ranks for line in _notes(one))], unreadable
    )


def _notes(one: Pace) -> Iterator[str]:
    if one.missing:
        yield f"rank {one.rank}: {one.missing:,} of its steps have no record"
    if one.cut_off:
        yield f"rank {one.rank}: its file ends in the middle of a record, which is left out"
    if one.largest_group > 1:
        yield (
            f"rank {one.rank}: older steps are kept in groups of up to {one.largest_group:,}; "
            "sums are exact, median and spread are of a sample"
        )
    if left_out := one.steps - one.counted:
        yield (
            f"rank {one.rank}: {left_out:,} step{'s' if left_out > 1 else ''} left out of its figures: "
            "the first, and those that the profiler slowed down"
        )


def as_document(paces: Paces) -> dict[str, Any]:
    """Return everything as plain data. Times are seconds, as their names say."""
    return {
        "schema": 1,
        "run": str(paces.run),
        "verdict": _rounded(asdict(paces.verdict)),
        "ranks": [_rank(one) for one in paces.ranks],
        "notes": paces.notes,
        "unreadable": paces.unreadable,
    }


def _rank(one: Pace) -> dict[str, Any]:
    slowest = [{"step": step, "wall_s": round(wall_s, 9)} for step, wall_s in one.slowest]
    return _rounded(asdict(one) | {"slowest": slowest, "wait_share": one.wait_share})


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 9) if isinstance(value, float) else value for name, value in values.items()}


def as_text(paces: Paces) -> str:
    """Return the ranks side by side, then the verdict and the notes."""
    rows = [_COLUMNS, *map(_row, paces.ranks)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_COLUMNS))]
    table = [
        "  ".join(cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=False)) + "  " + row[-1]
        for row in rows
    ]
    return "\n".join([*table, "", *paces.verdict.lines, *(f"note: {note}" for note in paces.notes)])


def _row(one: Pace) -> tuple[str, ...]:
    share = one.wait_share
    return (
        str(one.rank),
        f"{one.steps:,}",
        duration(one.median_s),
        f"{duration(one.quarter_s)} - {duration(one.three_quarters_s)}",
        "-" if share is None else percent(share),
        percent(one.optimizer_s / one.wall_s) if one.wall_s else "-",
        f"{one.skipped:,}",
        ", ".join(f"{step} ({duration(wall_s)})" for step, wall_s in one.slowest),
    )
