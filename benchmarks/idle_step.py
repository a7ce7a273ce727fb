"""What a step pays between captures, with its record and without, next to ``prof.step()`` by hand:
`python benchmarks/idle_step.py`.

The hooks are put around functions that do nothing, and called in blocks that alternate, in one process, with
the same functions without hooks and with ``prof.step()`` in its wait phase: the noise of a real step would
drown a microsecond. A step is one backward and one optimizer step. The finisher's work on the records counts
in full: a block waits for it, where a real step would hide most of it.
"""

from __future__ import annotations

import argparse

from _compare import ratios, run_job, spread, table

JOB = """
import json, os, random, sys, time
import torch
from accelerate.accelerator import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from torch.profiler import ProfilerActivity, profile, schedule

rounds, calls = int(sys.argv[1]), 20000


class Nothing(torch.optim.Optimizer):
    def __init__(self):
        super().__init__([torch.nn.Parameter(torch.ones(1))], {})

    def step(self, closure=None):
        pass

    step.hooked = True  # torch puts its own wrapper of 12 microseconds around it otherwise


def backward(self, loss):
    pass


def step(self, closure=None):
    self.optimizer.step()


Accelerator.backward, AcceleratedOptimizer.step = backward, step
os.environ["ACCELPROF_ENABLE"] = "1"
from autoprof import _startup
_startup.arm()

accelerator = Accelerator()
optimizer = accelerator.prepare(Nothing())
hooked = (Accelerator.backward, AcceleratedOptimizer.step, Nothing.step)
plain = tuple(function.__wrapped__ for function in hooked)


def use(functions):
    Accelerator.backward, AcceleratedOptimizer.step, Nothing.step = functions


def block():
    began = time.perf_counter()
    for _ in range(calls):
        accelerator.backward(None)
        optimizer.step()
    finisher.drain(60)
    return (time.perf_counter() - began) / calls * 1e6


by_hand = profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=10**9, warmup=1, active=1))
by_hand.start()


def by_hand_block():
    began = time.perf_counter()
    for _ in range(calls):
        by_hand.step()
    return (time.perf_counter() - began) / calls * 1e6


use(hooked)
accelerator.backward(None)
from autoprof.agent import hooks
agent = hooks._agent
records, finisher = agent._records, agent._finisher
block()
found = []
for _ in range(rounds):
    use(plain)
    before = block()
    use(hooked)
    times = {}
    for how in random.sample(["all", "thread", "none"], 3):
        agent._records = None if how == "none" else records
        if how == "thread":  # the finisher has nothing to do
            records._due_at, records._due_count = float("inf"), 10**9
        times[how] = block()
        if how == "thread":
            records._pending.clear()
            records.flush()
    use(plain)
    after = block()
    idle = (before + after) / 2
    found.append(([times[how] - idle for how in ("all", "thread", "none")], by_hand_block()))
print(json.dumps(found))
"""


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    found = run_job(JOB, rounds, environ={"ACCELPROF_STEPS": "1000000000"})
    ours, thread, without = ([row[0][at] for row in found] for at in range(3))
    by_hand = [row[1] for row in found]
    alone, on_thread = (
        [one - other for one, other in zip(times, without, strict=True)] for times in (ours, thread)
    )
    table(
        ["added to a step between captures", "microseconds: median (quartiles)", "by hand / this"],
        [
            ["autoprof", spread(ours, 2), spread(ratios(by_hand, ours), 1)],
            ["autoprof without step records", spread(without, 2), spread(ratios(by_hand, without), 1)],
            ["step records alone", spread(alone, 2), spread(ratios(by_hand, alone), 1)],
            ["of it on the training thread", spread(on_thread, 2), spread(ratios(by_hand, on_thread), 1)],
            ["`prof.step()` by hand, waiting", spread(by_hand, 2), "1"],
        ],
    )


if __name__ == "__main__":
    main()
