"""``autoprof device``: what accelerators did and what they waited for."""

from __future__ import annotations

import argparse
import json

from autoprof.cli import analysis_room, reading

HELP = "say what accelerators did and waited for: streams, launches, copies, collectives"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    reading.add_run(parser)
    reading.add_rank(parser)
    parser.add_argument("--json", action="store_true", help="as a JSON object, for machines")


def run(args: argparse.Namespace) -> int:
    """Print the tables; 1 where a trace could not be read."""
    reading.check(args)
    with analysis_room():
        from autoprof.report.device import device_document, print_device
    summary = reading.read_run(args.run, args.capture, args.jobs)
    traces = reading.of_rank(summary, args.rank, args.run)
    if args.json:
        print(json.dumps(device_document(summary, traces), indent=2))
    else:
        print_device(reading.console(), summary, traces)
    return reading.say_unreadable("device", summary.unreadable)
