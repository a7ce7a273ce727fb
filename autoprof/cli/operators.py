"""``autoprof operators``: what took the time, by operator and kernel."""

from __future__ import annotations

import argparse
import json

from autoprof.cli import analysis_room, reading

HELP = "list operators, or kernels, by the time they took"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    reading.add_run(parser)
    reading.add_rank(parser)
    reading.add_top(parser, 40, "how many")
    parser.add_argument("--json", action="store_true", help="as a JSON list, for machines")
    parser.add_argument("--kernels", action="store_true", help="the device's kernels and copies instead")
    parser.add_argument(
        "--by", choices=("self", "total", "calls"), default="self", help="order (default: self)"
    )


def run(args: argparse.Namespace) -> int:
    """Print the list; 1 where a trace could not be read."""
    reading.check(args)
    with analysis_room():
        from autoprof.analysis.hotspots import joined
        from autoprof.report.document import hotspots_document
        from autoprof.report.terminal import hotspots_table
    summary = reading.read_run(args.run, args.capture, args.jobs)
    traces = reading.of_rank(summary, args.rank, args.run)
    found = joined([trace.kernels if args.kernels else trace.operators for trace in traces])
    keys = {"self": "self_us", "total": "total_us", "calls": "calls"}
    found.sort(key=lambda hotspot: -getattr(hotspot, keys[args.by]))
    if args.json:
        print(json.dumps(hotspots_document(found, args.top), indent=2))
    else:
        title = "kernels and copies on the device" if args.kernels else "operators on the CPU"
        steps = sum(len(trace.steps) for trace in traces)
        reading.console().print(hotspots_table(f"{title}, by {args.by}", found, args.top, steps))
    return reading.say_unreadable("operators", summary.unreadable)
