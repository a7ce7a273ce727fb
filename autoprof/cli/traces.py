"""``autoprof traces``: what a run has left on disk."""

from __future__ import annotations

import argparse
from pathlib import Path

from autoprof.cli import CommandError
from autoprof.run import layout
from autoprof.settings import Settings

HELP = "list the traces of the runs below a folder"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "folder",
        nargs="?",
        default=Settings.output_dir,
        help="one run, or the folder that holds runs (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Print one line per trace."""
    folder = Path(args.folder)
    if not folder.is_dir():
        raise CommandError(
            f"{folder} is not a folder; name a run, or the folder given as ACCELPROF_OUTPUT_DIR"
        )
    runs = layout.find_runs(folder)
    if not runs:
        raise CommandError(f"no run in {folder}; a job writes one when ACCELPROF_ENABLE=1 is set")
    for path in runs:
        print(path)
        traces = layout.find_traces(path)
        for trace in traces:
            size_kb = trace.path.stat().st_size / 1000
            print(f"  from step {trace.first_step}  rank {trace.rank}  {size_kb:,.0f} kB  {trace.path}")
        if not traces:
            print("  no traces")
    return 0
