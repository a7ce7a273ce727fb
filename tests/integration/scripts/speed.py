"""A job that is slow for one reason, or with ``--fixed`` as advice on that reason would have it.

speed.py REASON [--fixed] [--steps N] [--times FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.local_sgd import LocalSGD
from torch.utils.data import DataLoader, Dataset

REASONS = (
    "input-bound",
    "optimizer-loop",
    "recompilation",
    "slow-steps",
    "straggler",
    "exposed-communication",
)


class Items(Dataset):
    def __init__(self, count: int, width: int, wait_s: float = 0.0, stall: int = 0) -> None:
        self.count, self.width, self.wait_s, self.stall = count, width, wait_s, stall

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.wait_s and (not self.stall or index % self.stall == self.stall - 1):
            time.sleep(self.wait_s)
        return torch.full((self.width,), index / 100)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("reason", choices=REASONS)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--times", type=Path, help="where the mean step, in seconds, is written")
    args = parser.parse_args()
    reason, broken = args.reason, not args.fixed
    torch.manual_seed(0)
    deep = reason == "optimizer-loop"
    wide = reason == "exposed-communication"
    width, layers, batch = (16, 120, 8) if deep else (1024, 4, 1) if wide else (512, 6, 128)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
    accelerator = Accelerator(cpu=True)
    waits = {"input-bound": 0.0002, "slow-steps": 0.5}
    items = Items(
        args.steps * batch * accelerator.num_processes,
        width,
        waits.get(reason, 0.0) if broken or reason == "input-bound" else 0.0,
        stall=batch * 8 if reason == "slow-steps" else 0,
    )
    workers = 2 if reason == "input-bound" and not broken else 0
    loader = DataLoader(items, batch_size=batch, num_workers=workers)
    kind = {"fused": True} if not broken or not deep else {}
    optimizer = (
        torch.optim.SGD(model.parameters(), lr=1e-5)
        if wide
        else torch.optim.AdamW(model.parameters(), lr=1e-5, **kind)
    )
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    forward = torch.compile(model, backend="eager", dynamic=False) if reason == "recompilation" else model
    ended = []
    rarely = reason == "exposed-communication" and not broken
    with LocalSGD(accelerator, model, local_sgd_steps=8, enabled=rarely) as local:
        for number, rows in enumerate(loader):
            if reason == "recompilation" and broken:
                rows = rows[: batch - number]
            if reason == "straggler" and broken and os.environ.get("RANK") == "1":
                time.sleep(0.03)
            accelerator.backward(forward(rows).pow(2).mean())
            optimizer.step()
            optimizer.zero_grad()
            local.step()
            ended.append(time.perf_counter())
    if args.times and accelerator.is_main_process:
        taken = [after - before for before, after in itertools.pairwise(ended[4:])]
        args.times.write_text(json.dumps(sum(taken) / len(taken)))
    accelerator.end_training()


if __name__ == "__main__":
    main()
