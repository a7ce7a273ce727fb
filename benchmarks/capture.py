"""What a capture costs, next to the same done by hand: `python benchmarks/capture.py`.

A 12-layer transformer trains on one CPU thread; steps 7-26 are captured. Compared, in whole processes that
take turns: this product, with and without ``ACCELPROF_FORK_SAVE``; ``torch.profiler`` by hand with
``export_chrome_trace("….json.gz")``; the same with the profiler only stopped, which is the floor;
``accelerator.profile()`` as its documentation shows it, which does not compress; no profiler.
A recorded step is compared within one process, where captures of the product
and by hand take turns: from process to process a step differs by more than the two do.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from typing import Any

from _compare import in_turn, ratios, run_job, spread, table

JOB = """
import json, statistics, sys, time
import torch
from accelerate import Accelerator
from accelerate.utils import ProfileKwargs
from torch.profiler import ProfilerActivity, profile, schedule
from torch._C._profiler import _ExperimentalConfig

how, steps = sys.argv[1], int(sys.argv[2])
first, active = 7, 20
torch.set_num_threads(1)
torch.manual_seed(0)
plan = dict(skip_first=5, wait=0, warmup=2, active=active, repeat=1)
handlers = []
if how == "accelerate":
    handlers = [ProfileKwargs(activities=["cpu"], schedule_option=plan, output_trace_dir="by_accelerate")]
accelerator = Accelerator(kwargs_handlers=handlers)
layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 12)
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
inputs = torch.randn(4, 16, 64)


def export(profiler):
    if how == "by hand":
        profiler.export_chrome_trace("trace.json.gz")


profiler = None
if how in ("by hand", "stop", "stop, trace_only"):
    options = dict(experimental_config=_ExperimentalConfig(trace_only=True)) if "only" in how else {}
    profiler = profile(
        activities=[ProfilerActivity.CPU], schedule=schedule(**plan), on_trace_ready=export, **options
    )
    profiler.start()
elif how == "accelerate":
    context = accelerator.profile()
    profiler = context.__enter__()
took = []
loop_began, loop_began_cpu = time.perf_counter(), time.thread_time()
for _ in range(steps):
    began = time.perf_counter()
    accelerator.backward(model(inputs).pow(2).mean())
    optimizer.step()
    optimizer.zero_grad()
    if profiler is not None:
        profiler.step()
    took.append(time.perf_counter() - began)
loop_s, loop_cpu_s = time.perf_counter() - loop_began, time.thread_time() - loop_began_cpu
began = time.perf_counter()
if how == "accelerate":
    context.__exit__(None, None, None)
elif profiler is not None:
    profiler.stop()
closing_s = time.perf_counter() - began if profiler is not None else 0.0
usual = statistics.median(took[first + active + 2 :] + took[1:5])
end = max(took[first + active - 1 : first + active + 1])
print(json.dumps(dict(
    blocked_s=end - usual + closing_s,
    loop_s=loop_s,
    loop_cpu_s=loop_cpu_s,
)))
"""

RECORDED_STEPS = """
import json, statistics, sys, time
import torch
from accelerate import Accelerator
from torch.profiler import ProfilerActivity, profile, schedule

cycles = int(sys.argv[1])
torch.set_num_threads(1)
torch.manual_seed(0)
accelerator = Accelerator()
layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 12)
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
inputs = torch.randn(4, 16, 64)


def train(steps, after_each=lambda: None):
    took = []
    for _ in range(steps):
        began = time.perf_counter()
        accelerator.backward(model(inputs).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()
        after_each()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


found = []
for _ in range(cycles):
    idle = train(10)
    ours = train(10)  # ACCELPROF_* plans a capture of exactly these
    train(10)
    plan = schedule(wait=0, warmup=2, active=11)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan) as profiler:
        train(2, profiler.step)
        by_hand = train(10, profiler.step)
    del profiler
    found.append((ours / by_hand, ours / idle, by_hand / idle))
print(json.dumps(found))
"""
OURS = {"ACCELPROF_ENABLE": "1", "ACCELPROF_ACTIVE": "20"}


def one(how: str, steps: int, environ: dict[str, str] | None = None) -> dict[str, Any]:
    """Run one job and return its figures."""
    found: dict[str, Any] = run_job(JOB, how, steps, environ=environ)
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    by_hand = "torch.profiler by hand"
    found = in_turn(
        {
            "autoprof": partial(one, "bare", 50, OURS),
            "autoprof, FORK_SAVE": partial(one, "bare", 50, OURS | {"ACCELPROF_FORK_SAVE": "1"}),
            by_hand: partial(one, "by hand", 50),
            "accelerator.profile()": partial(one, "accelerate", 50),
            "only stopping the profiler": partial(one, "stop", 50),
            "only stopping it, trace_only": partial(one, "stop, trace_only", 50),
        },
        rounds,
    )
    print("\nA capture of 20 steps\n")
    table(
        [
            "done by",
            "blocked at the end, s",
            "by hand / this",
            "kB on disk",
            "bytes / by hand",
        ],
        [
            [
                name,
                spread(run["blocked_s"] for run in runs),
                spread(ratios(column(found[by_hand], "blocked_s"), column(runs, "blocked_s")), 1),
                f"{statistics.median(column(runs, 'bytes')) / 1000:,.0f}",
                f"{statistics.median(ratios(column(runs, 'bytes'), column(found[by_hand], 'bytes'))):.2f}",
            ]
            for name, runs in found.items()
        ],
    )
    print("\nA recorded step\n")
    cycles = 4 * rounds
    plan = ",".join(f"{first}-{first + 9}" for first in range(10, 42 * cycles, 42))
    recorded = run_job(RECORDED_STEPS, cycles, environ={"ACCELPROF_ENABLE": "1", "ACCELPROF_STEPS": plan})
    header = ["autoprof / by hand", "autoprof / not recorded", "by hand / not recorded"]
    table(header, [[spread(values) for values in zip(*recorded, strict=True)]])

    jobs = in_turn(
        {
            "bare": partial(one, "bare", 200),
            "autoprof": partial(one, "bare", 200, {"ACCELPROF_ENABLE": "1"}),
        },
        2 * rounds,
    )
    print("\nA job of 200 steps with one default capture: without autoprof / with it\n")
    table(
        ["wall time of the loop", "CPU time of the training thread"],
        [
            [
                spread(ratios(column(jobs["bare"], name), column(jobs["autoprof"], name)))
                for name in ("loop_s", "loop_cpu_s")
            ]
        ],
    )


def column(runs: list[dict[str, Any]], name: str) -> list[float]:
    """Return one figure of every run."""
    return [float(run[name]) for run in runs]


if __name__ == "__main__":
    main()
