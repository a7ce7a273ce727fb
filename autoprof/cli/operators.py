"""``autoprof operators``: what took the time, by operator and kernel."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from autoprof.cli import CommandError, analysis_room

HELP = "list operators, or kernels, by the time they took"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", help="a run, one of its captures, any folder of Chrome traces, or one trace")
    parser.add_argument("--json", action="store_true", help="as a JSON list, for machines")
    parser.add_argument("--kernels", action="store_true", help="the device's kernels and copies instead")
    parser.add_argument("--rank", type=int, metavar="N", help="of one rank only (default: all together)")
    parser.add_argument(
        "--capture", type=int, metavar="STEP", help="only the capture whose first step is STEP"
    )
    parser.add_argument(
        "--by", choices=("self", "total", "calls"), default="self", help="order (default: self)"
    )
    parser.add_argument("--top", type=int, default=40, metavar="N", help="how many (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Print the list; 1 where a trace could not be read."""
    if args.top < 0:
        raise CommandError(f"--top is {args.top}; it must be 0 or more")
    with analysis_room():
        from rich.console import Console

        from autoprof.analysis.errors import AnalysisError
        from autoprof.analysis.hotspots import joined
        from autoprof.analysis.inputs import find_inputs
        from autoprof.analysis.summary import summarize_all
        from autoprof.report.document import hotspots_document
        from autoprof.report.terminal import hotspots_table
    try:
        summary = summarize_all(find_inputs(Path(args.run), args.capture))
    except AnalysisError as error:
        raise CommandError(str(error)) from None
    traces = [trace for trace in summary.traces if args.rank in (None, trace.rank)]
    if not traces:
        ranks = ", ".join(str(trace.rank) for trace in summary.traces)
        raise CommandError(f"no trace of rank {args.rank} in {args.run}; there are ranks {ranks}")
    found = joined([trace.kernels if args.kernels else trace.operators for trace in traces])
    keys = {"self": "self_us", "total": "total_us", "calls": "calls"}
    found.sort(key=lambda hotspot: -getattr(hotspot, keys[args.by]))
    if args.json:
        print(json.dumps(hotspots_document(found, args.top), indent=2))
    else:
        console = Console() if sys.stdout.isatty() else Console(width=200)
        title = "kernels and copies on the device" if args.kernels else "operators on the CPU"
        steps = sum(len(trace.steps) for trace in traces)
        console.print(hotspots_table(f"{title}, by {args.by}", found, args.top, steps))
    for line in summary.unreadable:
        print(f"autoprof operators: left out: {line}", file=sys.stderr)
    return 1 if summary.unreadable else 0
