"""``autoprof summary``: where the time of a run went."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from autoprof.cli import analysis_room, reading

if TYPE_CHECKING:
    from autoprof.report.steps import Paces

HELP = "say where the time went, per rank and step"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    reading.add_run(parser)
    reading.add_top(parser, 10, "operators and kernels to list")
    parser.add_argument("--json", action="store_true", help="as a JSON object, for machines")
    parser.add_argument("--steps", action="store_true", help="show each step as well")


def run(args: argparse.Namespace) -> int:
    """Print the summary; 1 where a trace could not be read.

    A run without a trace is summed up by its step records.
    """
    reading.check(args)
    if args.capture is None and (paces := reading.paces_without_traces(args.run)):
        return _of_steps(paces, as_json=args.json)
    with analysis_room():
        from autoprof.report.document import as_document
        from autoprof.report.terminal import print_summary
    summary = reading.read_run(args.run, args.capture, args.jobs)
    if args.json:
        print(json.dumps(as_document(summary, top=args.top), indent=2))
    else:
        print_summary(reading.console(), summary, top=args.top, steps=args.steps)
    return reading.say_unreadable("summary", summary.unreadable)


def _of_steps(paces: Paces, *, as_json: bool) -> int:
    from autoprof.report.steps import as_document, as_text

    why = f"no trace in {paces.run}; this is from its step records"
    if as_json:
        lists: dict[str, list[object]] = {
            name: [] for name in ("traces", "captures", "operators", "kernels", "unreadable")
        }
        document = {"schema": 1, **lists, "notes": [why], "step_records": as_document(paces)}
        print(json.dumps(document, indent=2))
    else:
        print(f"{why}\n\n{as_text(paces)}")
    return reading.say_unreadable("summary", paces.unreadable)
