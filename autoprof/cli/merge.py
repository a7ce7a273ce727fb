"""``autoprof merge``: all ranks of a run as one trace for Perfetto."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from autoprof.cli import CommandError, analysis_room

HELP = "join the traces of all ranks into one, on one timeline, for Perfetto"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", help="a run, one of its captures, or any folder of Chrome traces")
    parser.add_argument(
        "-o",
        "--output",
        default="merged.json.gz",
        metavar="FILE",
        help="the file to write, *.json or *.json.gz (default: %(default)s)",
    )
    parser.add_argument(
        "--capture", type=int, metavar="STEP", help="only the capture whose first step is STEP (default: all)"
    )


def run(args: argparse.Namespace) -> int:
    """Merge, and say how each trace was aligned; 1 where a trace could not be read."""
    with analysis_room():
        from autoprof.analysis.errors import AnalysisError
        from autoprof.analysis.inputs import find_inputs
        from autoprof.analysis.merge import merge
    output = Path(args.output)
    try:
        merged = merge(find_inputs(Path(args.run), args.capture), output)
    except AnalysisError as error:
        raise CommandError(str(error)) from None
    size_kb = output.stat().st_size / 1000
    ranks = len({survey.rank for survey in merged.surveys})
    print(
        f"{output}: {ranks} ranks, {len(merged.surveys)} traces, {merged.events:,} events, {size_kb:,.0f} kB"
    )
    captures = {survey.given.capture for survey in merged.surveys}
    for survey in merged.surveys:
        where = f"  step {survey.given.capture}" if len(captures) > 1 else ""
        print(f"  rank {survey.rank}{where}  {survey.alignment.line()}")
    for note in merged.notes:
        print(f"note: {note}", file=sys.stderr)
    for line in merged.unreadable:
        print(f"autoprof merge: left out: {line}", file=sys.stderr)
    return 1 if merged.unreadable else 0
