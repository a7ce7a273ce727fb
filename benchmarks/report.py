"""The HTML report of many ranks: time to write it, its size, and how soon a browser shows it.

    python benchmarks/report.py [--ranks 64 1000] [--rounds 5]

Writing is compared with `autoprof summary --json` on the same traces, which reads them all too. Showing is
compared with an empty page in the same headless browser, and takes the readers (`make readers`) and a
Chromium; without them the rest is printed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _compare import in_turn, ratios, spread, table

from autoprof.run import layout

REPOSITORY = Path(__file__).resolve().parents[1]
STEPS = 20
PHASES = {
    "enumerate(DataLoader)#_Iter.__next__": 0.05,
    "DistributedDataParallel.forward": 0.3,
    "Accelerator.backward": 0.45,
    "AcceleratedOptimizer.step": 0.15,
}


def trace(rank: int, ranks: int) -> dict[str, Any]:
    """Make up a trace of 20 steps of about 100 ms, with 60 operators and 40 kernels in each."""
    chance = random.Random(rank)
    events: list[dict[str, Any]] = []

    def add(name: str, category: str, ts: float, dur: float, tid: int = 1, **args: int) -> None:
        events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": 1,
                "tid": tid,
                "ts": ts,
                "dur": dur,
                "args": args,
            }
        )

    for number in range(STEPS):
        begin, length = 130_000.0 * number, 100_000 * chance.uniform(1, 1.05 + 0.2 * (rank == ranks // 3))
        add(f"ProfilerStep#{100 + number}", "user_annotation", begin, length)
        at = begin
        for name, share in PHASES.items():
            add(name, "user_annotation", at, share * length)
            at += share * length
        for one in range(60):
            add(f"aten::operator_{one}", "cpu_op", begin + 1500 * one, 20 * chance.uniform(10, 70))
        for one in range(40):
            name = f"void at::native::vectorized_elementwise_kernel<4, Functor_{one}<float>, Array<char*, 3>>"
            add(name, "kernel", begin + 2300 * one, 1000 + 20 * one, tid=7, device=0, stream=7)
        add("ncclDevKernel_AllReduce_Sum_f32", "kernel", begin + 50_000, 30_000, tid=20, device=0, stream=20)
    return {"distributedInfo": {"rank": rank, "world_size": ranks}, "traceEvents": events}


def write_run(folder: Path, ranks: int) -> Path:
    """Write a run of so many ranks."""
    run = folder / f"ranks{ranks}"
    capture = layout.capture_dir(run, 100)
    capture.mkdir(parents=True)
    for rank in range(ranks):
        text = json.dumps(trace(rank, ranks)).encode()
        (capture / layout.trace_name(rank, "host", 1, 1, gzip=True)).write_bytes(gzip.compress(text, 1))
    return run


def seconds(*command: object) -> float:
    """Run the command line and return how long it took."""
    code = "import sys; from autoprof.cli import main; sys.exit(main(sys.argv[1:]))"
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code, *map(str, command)], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def shown(pages: list[Path], rounds: int) -> dict[str, list[list[float]]] | None:
    """Return per page and round the milliseconds to its first paint and until all is drawn."""
    python = os.environ.get("AUTOPROF_READERS_PYTHON") or str(REPOSITORY / ".venv-readers/bin/python")
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not shutil.which(python) or browser is None:
        print("no readers or no Chromium: how soon a browser shows it is not measured", file=sys.stderr)
        return None
    script = REPOSITORY / "benchmarks/_paint.py"
    command = [python, str(script), browser, str(rounds), *map(str, pages)]
    found: dict[str, list[list[float]]] = json.loads(subprocess.check_output(command, text=True))
    return found


def main() -> None:
    """Print one row per number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 64])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        empty = folder / "empty.html"
        empty.write_text("<!doctype html><html lang=en data-ready><title>empty</title><p>nothing")
        times, pages = {}, [empty]
        for ranks in args.ranks:
            run, page = write_run(folder, ranks), folder / f"{ranks}.html"
            times[ranks] = in_turn(
                {
                    "report": lambda run=run, page=page: seconds("report", run, "-o", page),
                    "summary": lambda run=run: seconds("summary", run, "--json"),
                },
                args.rounds,
            )
            pages.append(page)
        showing = shown(pages, args.rounds)
        rows = []
        for ranks in args.ranks:
            page = folder / f"{ranks}.html"
            row = [
                f"{ranks:,}",
                f"{page.stat().st_size / 1000:,.0f}",
                f"{len(gzip.compress(page.read_bytes())) / 1000:,.0f}",
                spread(times[ranks]["report"], 2),
                spread(ratios(times[ranks]["report"], times[ranks]["summary"]), 2),
            ]
            for what in (0, 1) if showing else ():
                row.append(spread([both[what] for both in showing[page.name]], 0))
            rows.append(row)
        print(f"{STEPS} steps per rank\n")
        header = ["ranks", "kB", "kB gzipped", "s to write", "to write / summary --json"]
        table(header + (["ms to first paint", "ms to all drawn"] if showing else []), rows)
        if showing:
            print(
                f"\nan empty page: first paint after {spread([one for one, _ in showing[empty.name]], 0)} ms"
            )


if __name__ == "__main__":
    main()
