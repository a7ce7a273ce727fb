"""``autoprof summary``: where the time of a run went."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from autoprof.cli import CommandError, analysis_room

HELP = "say where the time went, per rank and step"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", help="a run, one of its captures, any folder of Chrome traces, or one trace")
    parser.add_argument("--json", action="store_true", help="as a JSON object, for machines")
    parser.add_argument(
        "--capture", type=int, metavar="STEP", help="only the capture whose first step is STEP (default: all)"
    )
    parser.add_argument("--steps", action="store_true", help="show each step as well")
    parser.add_argument(
        "--top",
        type=int,
        default=10,
        metavar="N",
        help="operators and kernels to list (default: %(default)s)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="traces to read at once (default: one per core if they are large)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the summary; 1 where a trace could not be read."""
    if args.top < 0:
        raise CommandError(f"--top is {args.top}; it must be 0 or more")
    if args.jobs is not None and args.jobs < 1:
        raise CommandError(f"--jobs is {args.jobs}; it must be 1 or more")
    with analysis_room():
        from rich.console import Console
        from rich.progress import Progress

        from autoprof.analysis.errors import AnalysisError
        from autoprof.analysis.inputs import find_inputs
        from autoprof.analysis.summary import summarize_all
        from autoprof.report.document import as_document
        from autoprof.report.terminal import print_summary
    try:
        inputs = find_inputs(Path(args.run), args.capture)
        errors = Console(stderr=True)
        with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
            task = progress.add_task("reading traces", total=len(inputs))
            summary = summarize_all(inputs, jobs=args.jobs, done=lambda: progress.advance(task))
    except AnalysisError as error:
        raise CommandError(str(error)) from None
    if args.json:
        print(json.dumps(as_document(summary, top=args.top), indent=2))
    else:
        # A pipe or a file takes whole lines; only a terminal has an edge.
        console = Console() if sys.stdout.isatty() else Console(width=200)
        print_summary(console, summary, top=args.top, steps=args.steps)
    for line in summary.unreadable:
        print(f"autoprof summary: left out: {line}", file=sys.stderr)
    return 1 if summary.unreadable else 0
