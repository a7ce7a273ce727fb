"""What each option of a capture costs, next to a capture without it.

    python benchmarks/options.py [--rounds 5]

A 6-layer transformer trains on one CPU thread; steps 7-16 are captured. Every option runs as a process of its
own, in an order that changes each round, and is compared with the plain capture of the same round.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any

from _compare import in_turn, ratios, run_job, spread, table

JOB = """
import json, statistics, time
import torch
from accelerate import Accelerator

torch.set_num_threads(1)
torch.manual_seed(0)
accelerator = Accelerator()
layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 6)
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
inputs = torch.randn(4, 16, 64)
took = []
for _ in range(40):
    began = time.perf_counter()
    accelerator.backward(model(inputs).pow(2).mean())
    optimizer.step()
    optimizer.zero_grad()
    took.append(time.perf_counter() - began)
print(json.dumps(dict(step_s=statistics.median(took[8:16]), end_s=max(took[16:18]))))
"""
OPTIONS: dict[str, dict[str, str]] = {
    "plain": {},
    "RECORD_SHAPES": {"ACCELPROF_RECORD_SHAPES": "1"},
    "WITH_FLOPS": {"ACCELPROF_WITH_FLOPS": "1"},
    "PROFILE_MEMORY": {"ACCELPROF_PROFILE_MEMORY": "1"},
    "WITH_STACK": {"ACCELPROF_WITH_STACK": "1"},
    "VERBOSE_STACKS": {"ACCELPROF_VERBOSE_STACKS": "1"},
    "PYTHON_GC": {"ACCELPROF_PYTHON_GC": "1"},
    "PROFILE_ALL_THREADS": {"ACCELPROF_PROFILE_ALL_THREADS": "1"},
    "OVERLOAD_NAMES": {"ACCELPROF_OVERLOAD_NAMES": "1"},
}


def job(environ: Mapping[str, str]) -> Any:
    """Run the job with options; seconds of a recorded step and of the step after, bytes of the trace."""
    return run_job(JOB, environ={"ACCELPROF_ENABLE": "1", "ACCELPROF_ACTIVE": "10", **environ})


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    found = in_turn({name: partial(job, environ) for name, environ in OPTIONS.items()}, args.rounds)
    plain = found["plain"]
    rows = []
    for name, results in found.items():
        columns = [
            ratios([one[key] for one in results], [one[key] for one in plain])
            for key in ("step_s", "end_s", "bytes")
        ]
        rows.append([name, *(spread(column, 2) for column in columns)])
    table(["option", "a recorded step", "the capture's end", "bytes"], rows)


if __name__ == "__main__":
    main()
