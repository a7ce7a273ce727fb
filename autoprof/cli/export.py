"""``autoprof export``: the events of a run for other tools."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from autoprof.cli import CommandError, analysis_room

HELP = "write the events of all ranks as CSV, Parquet or one trace"

_SUFFIXES = {"csv": ".csv", "parquet": ".parquet", "perfetto-json": ".json.gz"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", help="a run, one of its captures, any folder of Chrome traces, or one trace")
    parser.add_argument("--format", choices=tuple(_SUFFIXES), required=True, help="perfetto-json is a merge")
    parser.add_argument("-o", "--output", metavar="FILE", help="the file to write (default: events.<format>)")
    parser.add_argument(
        "--capture", type=int, metavar="STEP", help="only the capture whose first step is STEP"
    )


def run(args: argparse.Namespace) -> int:
    """Write the file; 1 where a trace could not be read."""
    with analysis_room():
        from autoprof.analysis.errors import AnalysisError
        from autoprof.analysis.export import Exported, export_csv, export_parquet
        from autoprof.analysis.inputs import find_inputs
        from autoprof.analysis.merge import Merged, merge
    output = Path(args.output or f"events{_SUFFIXES[args.format]}")
    exported: Exported | Merged
    try:
        inputs = find_inputs(Path(args.run), args.capture)
        if args.format == "perfetto-json":
            exported = merge(inputs, output)
        else:
            exported = (export_csv if args.format == "csv" else export_parquet)(inputs, output)
    except AnalysisError as error:
        raise CommandError(str(error)) from None
    print(f"{output}: {exported.events:,} events, {output.stat().st_size / 1000:,.0f} kB")
    for note in exported.notes:
        print(f"note: {note}", file=sys.stderr)
    for line in exported.unreadable:
        print(f"autoprof export: left out: {line}", file=sys.stderr)
    return 1 if exported.unreadable else 0
