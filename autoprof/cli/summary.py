"""``autoprof summary``: where the time of a run went."""

from __future__ import annotations

import argparse
import json

from autoprof.cli import analysis_room, reading

HELP = "say where the time went, per rank and step"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    reading.add_run(parser)
    reading.add_top(parser, 10, "operators and kernels to list")
    parser.add_argument("--json", action="store_true", help="as a JSON object, for machines")
    parser.add_argument("--steps", action="store_true", help="show each step as well")


def run(args: argparse.Namespace) -> int:
    """Print the summary; 1 where a trace could not be read."""
    reading.check(args)
    with analysis_room():
        from autoprof.report.document import as_document
        from autoprof.report.terminal import print_summary
    summary = reading.read_run(args.run, args.capture, args.jobs)
    if args.json:
        print(json.dumps(as_document(summary, top=args.top), indent=2))
    else:
        print_summary(reading.console(), summary, top=args.top, steps=args.steps)
    return reading.say_unreadable("summary", summary.unreadable)
