"""``autoprof export``: the events of a run for other tools."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from autoprof.cli import CommandError, analysis_room

HELP = "write the events of all ranks as CSV, Parquet, one trace or call stacks"

_FILES = {
    "csv": "events.csv",
    "parquet": "events.parquet",
    "perfetto-json": "events.json.gz",
    "speedscope": "stacks.speedscope.json",
    "collapsed": "stacks.collapsed",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", help="a run, one of its captures, any folder of Chrome traces, or one trace")
    parser.add_argument("--format", choices=tuple(_FILES), required=True, help="perfetto-json is a merge")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="the file to write (default: events or stacks.<format>)"
    )
    parser.add_argument(
        "--capture", type=int, metavar="STEP", help="only the capture whose first step is STEP"
    )


def run(args: argparse.Namespace) -> int:
    """Write the file; 1 where a trace could not be read."""
    with analysis_room():
        from autoprof.analysis.errors import AnalysisError
        from autoprof.analysis.export import (
            Exported,
            export_collapsed,
            export_csv,
            export_parquet,
            export_speedscope,
        )
        from autoprof.analysis.inputs import find_inputs
        from autoprof.analysis.merge import Merged, merge
    output = Path(args.output or _FILES[args.format])
    exported: Exported | Merged
    try:
        inputs = find_inputs(Path(args.run), args.capture)
        if args.format == "perfetto-json":
            exported = merge(inputs, output)
        else:
            writers = {
                "csv": export_csv,
                "parquet": export_parquet,
                "speedscope": export_speedscope,
                "collapsed": export_collapsed,
            }
            exported = writers[args.format](inputs, output)
    except AnalysisError as error:
        raise CommandError(str(error)) from None
    print(f"{output}: {exported.events:,} events, {output.stat().st_size / 1000:,.0f} kB")
    for note in exported.notes:
        print(f"note: {note}", file=sys.stderr)
    for line in exported.unreadable:
        print(f"autoprof export: left out: {line}", file=sys.stderr)
    return 1 if exported.unreadable else 0
