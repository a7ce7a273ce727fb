"""What the commands that read traces share: arguments, the progress bar, lines about what was left out."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from autoprof.cli import CommandError, analysis_room
from autoprof.run import layout
from autoprof.run.steps import StepFileError

if TYPE_CHECKING:
    from rich.console import Console

    from autoprof.analysis.summary import Summary, TraceSummary
    from autoprof.report.steps import Paces


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the run to read, ``--capture`` and ``--jobs``."""
    parser.add_argument("run", help="a run, one of its captures, any folder of Chrome traces, or one trace")
    parser.add_argument(
        "--capture", type=int, metavar="STEP", help="only the capture whose first step is STEP (default: all)"
    )
    add_jobs(parser)


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Add ``--jobs``."""
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="traces to read at once (default: one per core if they are large)",
    )


def add_rank(parser: argparse.ArgumentParser) -> None:
    """Add ``--rank``."""
    parser.add_argument("--rank", type=int, metavar="N", help="of one rank only (default: all)")


def add_top(parser: argparse.ArgumentParser, default: int, what: str) -> None:
    """Add ``--top``."""
    parser.add_argument(
        "--top", type=int, default=default, metavar="N", help=f"{what} (default: %(default)s)"
    )


def check(args: argparse.Namespace) -> None:
    """Refuse numbers that mean nothing.

    Raises:
        CommandError: ``--top`` or ``--jobs`` is too small.
    """
    if getattr(args, "top", 0) < 0:
        raise CommandError(f"--top is {args.top}; it must be 0 or more")
    if getattr(args, "jobs", None) is not None and args.jobs < 1:
        raise CommandError(f"--jobs is {args.jobs}; it must be 1 or more")


def read_run(place: str, capture: int | None, jobs: int | None = None) -> Summary:
    """Summarize the traces of a run, with a progress bar where a person looks.

    Raises:
        CommandError: there is nothing to read there.
    """
    with analysis_room():
        from rich.console import Console
        from rich.progress import Progress

        from autoprof.analysis.errors import AnalysisError
        from autoprof.analysis.inputs import find_inputs
        from autoprof.analysis.summary import summarize_all
    try:
        inputs = find_inputs(Path(place), capture)
        errors = Console(stderr=True)
        with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
            task = progress.add_task("reading traces", total=len(inputs))
            return summarize_all(inputs, jobs=jobs, done=lambda: progress.advance(task))
    except AnalysisError as error:
        raise CommandError(str(error)) from None


def runs_in(folder: Path) -> list[Path]:
    """Return the run that ``folder`` is, or those in it.

    Raises:
        CommandError: there is none.
    """
    if not folder.is_dir():
        raise CommandError(
            f"{folder} is not a folder; name a run, or the folder given as ACCELPROF_OUTPUT_DIR"
        )
    runs = layout.find_runs(folder)
    if not runs:
        raise CommandError(f"no run in {folder}; a job writes one when ACCELPROF_ENABLE=1 is set")
    return runs


def one_run(folder: Path) -> Path:
    """Return the run that ``folder`` is, or the only one in it.

    Raises:
        CommandError: there is none, or several.
    """
    runs = runs_in(folder)
    if len(runs) > 1:
        names = ", ".join(run.name for run in runs[-3:])
        raise CommandError(f"{folder} holds {len(runs)} runs; name one of them, the latest are: {names}")
    return runs[0]


def read_paces(run: Path) -> Paces | None:
    """Read the step records of a run; None where it has none.

    Raises:
        CommandError: none of its files can be used.
    """
    from autoprof.report.steps import read_paces as read

    try:
        return read(run)
    except StepFileError as error:
        raise CommandError(str(error)) from None


def paces_without_traces(place: str) -> Paces | None:
    """Read the step records of a run that has no trace; None where there is one, or no such run."""
    folder = Path(place)
    runs = layout.find_runs(folder) if folder.is_dir() else []
    if len(runs) != 1 or layout.find_traces(runs[0]):
        return None
    return read_paces(runs[0])


def of_rank(summary: Summary, rank: int | None, place: str) -> list[TraceSummary]:
    """Return the traces of one rank, of all where it is None.

    Raises:
        CommandError: that rank has none.
    """
    traces = [trace for trace in summary.traces if rank in (None, trace.rank)]
    if not traces:
        ranks = ", ".join(str(trace.rank) for trace in summary.traces)
        raise CommandError(f"no trace of rank {rank} in {place}; there are ranks {ranks}")
    return traces


def console() -> Console:
    """Return where tables go: a pipe or a file takes whole lines, only a terminal has an edge."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=200)


def say_unreadable(command: str, unreadable: list[str]) -> int:
    """Say what was left out and return the exit status."""
    for line in unreadable:
        print(f"autoprof {command}: left out: {line}", file=sys.stderr)
    return 1 if unreadable else 0
