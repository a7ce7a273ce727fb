"""What findings say is at stake against what following their advice saves.

    python benchmarks/findings.py [--rounds 5] [--steps 60] [--reasons input-bound straggler]

Each job of `tests/integration/scripts/speed.py` runs three times a round, in an order that changes:
recorded, which gives the finding and its share of a step; as it is, not recorded; and with the advice
followed, not recorded. The last two give the share of a step that was really saved.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from _compare import in_turn, spread, table

from autoprof.analysis.findings import find
from autoprof.analysis.inputs import find_inputs
from autoprof.analysis.summary import summarize_all

SCRIPT = Path(__file__).resolve().parents[1] / "tests/integration/scripts/speed.py"
RANKS = {
    "input-bound": 1,
    "optimizer-loop": 1,
    "recompilation": 1,
    "slow-steps": 1,
    "straggler": 2,
    "exposed-communication": 2,
}
"""Ranks of the job for each finding."""


def run(reason: str, steps: int, *options: str, record: bool = False) -> Any:
    """Run a job; return its finding where it is recorded, else its mean step."""
    ranks = RANKS[reason]
    several = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ACCELPROF")}
    environment |= {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "6"}
    with tempfile.TemporaryDirectory() as name:
        times = Path(name) / "times.json"
        if record:
            environment |= {"ACCELPROF_ENABLE": "1", "ACCELPROF_ACTIVE": str(steps // 2)}
            environment |= {"ACCELPROF_OUTPUT_DIR": name}
        command = [sys.executable, *(several if ranks > 1 else []), SCRIPT, reason, *options]
        subprocess.run(
            [*map(str, command), "--steps", str(steps), "--times", str(times)],
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if not record:
            return float(json.loads(times.read_text()))
        findings = {one.slug: one for one in find(summarize_all(find_inputs(Path(name))))}
    share: dict[str, Any] = {"low": 0.0, "high": 0.0}
    return findings[reason].as_document()["share_of_step"] if reason in findings else share


def compared(reasons: Sequence[str], steps: int, rounds: int) -> Iterator[list[str]]:
    """Yield one row per finding."""
    for reason in reasons:
        found = in_turn(
            {
                "recorded": functools.partial(run, reason, steps, record=True),
                "as it is": functools.partial(run, reason, steps),
                "fixed": functools.partial(run, reason, steps, "--fixed"),
            },
            rounds,
        )
        saved = [1 - fixed / before for fixed, before in zip(found["fixed"], found["as it is"], strict=True)]
        low, high = (statistics.median(one[end] for one in found["recorded"]) for end in ("low", "high"))
        yield [reason, f"{low:.2f} - {high:.2f}", spread(saved, 2)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--reasons", nargs="+", default=tuple(RANKS), choices=RANKS)
    args = parser.parse_args()
    rows = compared(args.reasons, args.steps, args.rounds)
    table(["finding", "at stake, of a step", "saved, of a step"], rows)


if __name__ == "__main__":
    main()
