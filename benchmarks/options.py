"""What each option of a capture costs, next to a capture without it.

    python benchmarks/options.py [--rounds 5]

A 6-layer transformer trains on one CPU thread; steps 7-16 are captured. Every option runs as a process of its
own, in an order that changes each round, and is compared with the plain capture of the same round.
"""

from __future__ import annotations

import argparse
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
PLAIN = ""
OPTIONS = (
    "RECORD_SHAPES",
    "WITH_FLOPS",
    "PROFILE_MEMORY",
    "WITH_STACK",
    "VERBOSE_STACKS",
    "PYTHON_GC",
    "PROFILE_ALL_THREADS",
    "OVERLOAD_NAMES",
)


def job(option: str) -> Any:
    """Run the job with an option; seconds of a recorded step and of the step after, bytes of the trace."""
    asked = {f"ACCELPROF_{option}": "1"} if option else {}
    return run_job(JOB, environ={"ACCELPROF_ENABLE": "1", "ACCELPROF_ACTIVE": "10", **asked})


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    found = in_turn({option: partial(job, option) for option in (PLAIN, *OPTIONS)}, args.rounds)
    rows = [
        [
            option,
            *(
                spread(ratios([one[key] for one in found[option]], [one[key] for one in found[PLAIN]]), 2)
                for key in ("step_s", "end_s", "bytes")
            ),
        ]
        for option in OPTIONS
    ]
    table(["option", "a recorded step", "the capture's end", "bytes"], rows)


if __name__ == "__main__":
    main()
