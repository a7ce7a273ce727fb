"""From trace files to answers: `autoprof device` against HolisticTraceAnalysis, same files, same questions.

    python benchmarks/analysis.py [--rounds 5] [--megabytes 70] [--ranks 32] [--large 1000]

The questions are those of `tests/e2e/readers/open_hta_device.py`: temporal breakdown, overlap, idle
breakdown, kernel breakdown, memory bandwidth, queue length, launch statistics. Both are whole processes,
imports included, and peak memory is that of all their processes together. HolisticTraceAnalysis comes with
the readers (`make readers`); without them the rest is printed.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _compare import in_turn, ratios, spread, table

REPOSITORY = Path(__file__).resolve().parents[1]
OPERATORS = ("aten::linear", "aten::addmm", "aten::gelu", "aten::layer_norm", "aten::mul", "aten::add_")
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
KERNELS_PER_STEP = 1000
EVENT = '{{"ph":"X","cat":"{}","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}}'


def events(rank: int, steps: int) -> Iterator[str]:
    """Make up the events of a rank whose CPU runs about 3 ms ahead of its device, as text."""
    at, free, number = 1_000_000.0, 1_000_000.0, 0
    for step in range(steps):
        begin = at
        for one in range(KERNELS_PER_STEP):
            number += 1
            operator = OPERATORS[one % len(OPERATORS)]
            shapes = f'"External id":{number},"Ev Idx":{number},"Input Dims":[[32,512,768],[768,768]]'
            yield EVENT.format("cpu_op", operator, 1, 1, at, 14.5, shapes)
            yield EVENT.format("cpu_op", f"{operator}_impl", 1, 1, at + 1, 12.25, shapes)
            copies = one % 50 == 0
            call = f'"External id":{number},"cbid":211,"correlation":{number}'
            called = "cudaMemcpyAsync" if copies else "cudaLaunchKernel"
            yield EVENT.format("cuda_runtime", called, 1, 1, at + 2, 6.125, call)
            stream, category, name, more = 7, "kernel", f"void at::native::kernel_{one % 97}<float>(int)", ""
            if copies:
                category, name = "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)"
                more = ',"bytes":65536,"memory bandwidth (GB/s)":8.1'
            elif one % 100 == 99:
                stream, name = 20, ALL_REDUCE
            where = (
                f'"External id":{number},"device":{rank % 8},"stream":{stream},"correlation":{number}{more}'
            )
            start, long = max(free, at + 12), 8.0 + one % 13
            yield EVENT.format(category, name, rank % 8, stream, start, long, where)
            free = start + long if stream == 7 else free
            at += 15.0
        yield EVENT.format("user_annotation", f"ProfilerStep#{step + 10}", 1, 1, begin, at - begin, "")


def write_trace(path: Path, rank: int, ranks: int, steps: int) -> None:
    """Write a trace, gzip where the name says so."""
    with gzip.open(path, "wt", compresslevel=1) if path.suffix == ".gz" else path.open("w") as file:
        # HolisticTraceAnalysis finds the rank by a pattern that has this space.
        file.write(f'{{"schemaVersion":1,"distributedInfo":{{"rank": {rank},"world_size":{ranks}}},')
        file.write('"displayTimeUnit":"ms","traceEvents":[\n')
        for at, event in enumerate(events(rank, steps)):
            file.write(event if at == 0 else f",\n{event}")
        file.write("\n]}")


def write_folder(folder: Path, ranks: int, steps: int, suffix: str = ".json.gz") -> Path:
    """Write one trace per rank."""
    folder.mkdir()
    for rank in range(ranks):
        write_trace(folder / f"rank{rank}{suffix}", rank, ranks, steps)
    return folder


@dataclass
class Cost:
    """Wall seconds and peak resident MiB of a process and those that it started."""

    seconds: float
    peak_mib: float


def cost(ranks: int, *command: object) -> Cost:
    """Run a command to its end; it must answer for this many ranks."""
    with tempfile.TemporaryFile() as answer:
        began = time.perf_counter()
        process = subprocess.Popen(list(map(str, command)), stdout=answer, stderr=subprocess.DEVNULL)
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, sum(map(_resident_mib, _family(process.pid))))
            time.sleep(0.02)
        seconds = time.perf_counter() - began
        answer.seek(0)
        found = answered_ranks(json.load(answer)) if process.returncode == 0 else 0
    if found != ranks:
        raise SystemExit(f"{command}: exit status {process.returncode}, {found} ranks answered, not {ranks}")
    return Cost(seconds, peak)


def answered_ranks(answer: dict[str, Any]) -> int:
    """Count the ranks in an answer of ours, or in one of `open_hta_device.py`."""
    if "traces" in answer:
        return len(answer["traces"])
    (of_folder,) = answer.values()
    return len(of_folder.get("ranks", ()))


def _family(pid: int) -> list[int]:
    found = [pid]
    for one in found:  # grows
        try:
            children = Path(f"/proc/{one}/task/{one}/children").read_text()
        except OSError:
            continue
        found += map(int, children.split())
    return found


def _resident_mib(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, IndexError):
        return 0.0


def ours(folder: Path, ranks: int) -> Cost:
    """Ask `autoprof device`."""
    code = "import sys; from autoprof.cli import main; sys.exit(main(sys.argv[1:]))"
    return cost(ranks, sys.executable, "-c", code, "device", folder, "--json")


def theirs(python: str, folder: Path, ranks: int) -> Cost:
    """Ask HolisticTraceAnalysis."""
    return cost(ranks, python, REPOSITORY / "tests/e2e/readers/open_hta_device.py", folder)


def compared(cases: dict[str, tuple[Path, int]], python: str, rounds: int) -> None:
    """Print one row per folder of traces."""
    rows = []
    for case, (folder, ranks) in cases.items():
        found = in_turn(
            {
                "ours": functools.partial(ours, folder, ranks),
                "theirs": functools.partial(theirs, python, folder, ranks),
            },
            rounds,
        )
        seconds = {name: [one.seconds for one in costs] for name, costs in found.items()}
        memory = {name: [one.peak_mib for one in costs] for name, costs in found.items()}
        faster = ratios(seconds["theirs"], seconds["ours"])
        of_theirs = ratios(memory["ours"], memory["theirs"])
        rows.append(
            [
                case,
                spread(seconds["ours"], 2),
                spread(seconds["theirs"], 2),
                spread(faster, 1),
                spread(memory["ours"], 0),
                spread(of_theirs, 2),
            ]
        )
    table(["traces", "s", "s, theirs", "times faster", "MiB at most", "of their memory"], rows)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=70, help="of the single trace, uncompressed")
    parser.add_argument("--ranks", type=int, default=32)
    parser.add_argument("--steps", type=int, default=8, help="of each of many ranks")
    parser.add_argument("--large", type=int, default=0, metavar="MB", help="also one trace of this size")
    args = parser.parse_args()
    python = os.environ.get("AUTOPROF_READERS_PYTHON") or str(REPOSITORY / ".venv-readers/bin/python")
    step_bytes = sum(len(event) + 2 for event in events(0, 1))
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        if shutil.which(python):
            single = write_folder(root / "single", 1, args.megabytes * 1_000_000 // step_bytes, ".json")
            many = write_folder(root / "many", args.ranks, args.steps)
            cases = {
                f"1 rank, {args.megabytes} MB": (single, 1),
                f"{args.ranks} ranks, {args.steps} steps each": (many, args.ranks),
            }
            compared(cases, python, args.rounds)
        else:
            print(f"no {python}: HolisticTraceAnalysis is not compared", file=sys.stderr)
        folders = {count: write_folder(root / f"ranks{count}", count, 2 * args.steps) for count in (8, 64)}
        found = in_turn(
            {str(count): functools.partial(ours, folder, count) for count, folder in folders.items()},
            args.rounds,
        )
        per_rank = {count: [one.seconds / int(count) for one in costs] for count, costs in found.items()}
        print(f"\nper rank, 64 ranks / 8 ranks: {spread(ratios(per_rank['64'], per_rank['8']), 2)}")
        if args.large:
            large = write_folder(root / "large", 1, args.large * 1_000_000 // step_bytes, ".json")
            one = ours(large, 1)
            print(f"\none trace of {args.large:,} MB: {one.seconds:.1f} s, {one.peak_mib:,.0f} MiB at most")


if __name__ == "__main__":
    main()
