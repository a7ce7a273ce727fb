"""``autoprof traces``: what a run has left on disk."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from autoprof import redact
from autoprof.cli import CommandError, reading
from autoprof.run import layout
from autoprof.settings import Settings, is_url

HELP = "list the traces of the runs below a folder"


_PATIENCE_S = 120


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "folder",
        nargs="?",
        default=Settings.output_dir,
        help="one run, or the folder that holds runs, or its URL (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Print one line per trace.

    Raises:
        CommandError: there is no run there, or it cannot be read.
    """
    if is_url(args.folder):
        return _elsewhere(args.folder)
    for path in reading.runs_in(Path(args.folder)):
        print(path)
        _print([(trace, trace.path.stat().st_size, str(trace.path)) for trace in layout.find_traces(path)])
    return 0


def _print(traces: list[tuple[layout.TraceFile, int, str]]) -> None:
    for trace, size, place in traces:
        print(f"  from step {trace.first_step}  rank {trace.rank}  {size / 1000:,.0f} kB  {place}")
    if not traces:
        print("  no traces")


def _elsewhere(url: str) -> int:
    from autoprof.agent import upload

    shown = redact.url(url).rstrip("/")
    until = time.monotonic() + _PATIENCE_S
    (answer,) = upload.ask(url, [{"do": "list"}], lambda: until)
    if "error" in answer:
        raise CommandError(f"{shown} cannot be read: {answer['error']}")
    runs: dict[str, list[tuple[layout.TraceFile, int, str]]] = {}
    for name, size in answer["files"]:
        parts = Path(name).parts
        run, inside = ("", Path(name)) if layout.is_part_of_run(Path(name)) else (parts[0], Path(*parts[1:]))
        if layout.is_part_of_run(inside):
            found = runs.setdefault(run, [])
            if trace := layout.trace_file(inside):
                found.append((trace, size, f"{shown}/{name}"))
    if not runs:
        raise CommandError(f"no run at {shown}; a job writes one when ACCELPROF_ENABLE=1 is set")
    for run in sorted(runs):
        print(f"{shown}/{run}".rstrip("/"))
        _print(sorted(runs[run]))
    return 0
