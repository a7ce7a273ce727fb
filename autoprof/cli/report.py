"""``autoprof report``: a run as one HTML file that a person looks at."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from autoprof.cli import CommandError, reading, report_room

if TYPE_CHECKING:
    from autoprof.report.page import Answers

HELP = "write a run as one HTML file: ranks, steps, device, operators, kernels"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", help="a run, one of its captures, any folder of Chrome traces, or one trace")
    parser.add_argument(
        "-o",
        "--output",
        default="report.html",
        metavar="FILE",
        help="the file to write (default: %(default)s)",
    )
    parser.add_argument("--against", metavar="RUN", help="another run to set beside it")
    parser.add_argument(
        "--capture", type=int, metavar="STEP", help="only the capture whose first step is STEP (default: all)"
    )
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    parser.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="wait so long for ranks of the run that are still writing (default: not at all)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the report; 1 where a trace could not be read."""
    with report_room():
        from autoprof.analysis.errors import AnalysisError
        from autoprof.analysis.output import check_output, replacing
        from autoprof.report.facts import wait_for_ranks
        from autoprof.report.page import render
    output = Path(args.output)
    try:
        check_output(output, (".html",), ())
        if args.wait > 0:
            wait_for_ranks(Path(args.run), args.wait)
        one = _answers(args.run, args.capture)
        other = _answers(args.against, None) if args.against else None
    except AnalysisError as error:
        raise CommandError(str(error)) from None
    with report_room():
        text = render(one, other)
    with replacing(output) as temporary:
        # A name that no encoding has (half a surrogate pair) becomes a question mark.
        temporary.write_bytes(text.encode("utf-8", "replace"))
    print(f"{output}: {output.stat().st_size / 1000:,.0f} kB")
    if args.open:
        webbrowser.open(output.absolute().as_uri())
    unreadable = [*one.document["unreadable"], *(other.document["unreadable"] if other else [])]
    return reading.say_unreadable("report", unreadable)


def _answers(place: str, capture: int | None) -> Answers:
    from autoprof.report.facts import read_facts
    from autoprof.report.page import answers

    summary = reading.read_run(place, capture)
    return answers(place, summary, read_facts([trace.given for trace in summary.traces]))
