"""``autoprof steps``: what every step cost, as recorded without a profiler."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from autoprof.cli import CommandError, reading

HELP = "say how long steps took on each rank and whether they waited for data, without any trace"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", help="a run, or a folder that holds one")
    parser.add_argument("--json", action="store_true", help="as a JSON object, for machines")


def run(args: argparse.Namespace) -> int:
    """Print the ranks side by side and the verdict; 1 where a rank's file could not be read.

    Raises:
        CommandError: there is no run, or it has no step records.
    """
    from autoprof.report.steps import as_document, as_text

    place = reading.one_run(Path(args.run))
    paces = reading.read_paces(place)
    if paces is None:
        raise CommandError(
            f"no step records in {place}; a run writes them unless ACCELPROF_STEP_RECORDS=0, "
            f"once a step has ended"
        )
    print(json.dumps(as_document(paces), indent=2) if args.json else as_text(paces))
    return reading.say_unreadable("steps", paces.unreadable)
