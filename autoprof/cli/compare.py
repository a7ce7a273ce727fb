"""``autoprof compare``: what got slower from one run to another."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict

from autoprof.cli import CommandError, analysis_room, reading

HELP = "set two runs side by side: what got slower, and whether that is more than noise"
TOO_SLOW = 3


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("before", help="a run, one of its captures, or any folder of Chrome traces")
    parser.add_argument("after", help="the run to set beside it")
    reading.add_jobs(parser)
    reading.add_top(parser, 10, "operators and kernels to list")
    parser.add_argument("--json", action="store_true", help="as a JSON object, for machines")
    parser.add_argument(
        "--fail-above",
        metavar="SHARE",
        help=f"end with status {TOO_SLOW} where steps got longer by more than this (5%%) and not by chance",
    )


def run(args: argparse.Namespace) -> int:
    """Print the comparison; 3 where steps got slower than allowed, 1 where that cannot be said."""
    reading.check(args)
    limit = _share(args.fail_above)
    with analysis_room():
        from autoprof.analysis.compare import compare
        from autoprof.report.compare import print_comparison
    before, after = (reading.read_run(place, None, args.jobs) for place in (args.before, args.after))
    comparison = compare(before, after)
    if args.json:
        print(json.dumps(asdict(comparison), indent=2))
    else:
        print_comparison(reading.console(), comparison, top=args.top)
    status = max(reading.say_unreadable("compare", one.unreadable) for one in (before, after))
    if limit is None:
        return status
    step = comparison.figures[0] if comparison.figures else None
    if step is None or step.change is None or step.significant is None:
        raise CommandError(
            f"{comparison.steps_before} and {comparison.steps_after} steps are too few to say"
            " whether steps got slower; record more of them (ACCELPROF_ACTIVE=10)"
        )
    if step.significant and step.change > limit:
        line = f"autoprof compare: steps took {step.change:.1%} longer, allowed are {limit:.1%}"
        print(line, file=sys.stderr)
        return TOO_SLOW
    return status


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", text)
    if not match:
        raise CommandError(f"--fail-above is {text!r}; it must be a share such as 5% or 0.05")
    return float(match[1]) / (100 if match[2] else 1)
