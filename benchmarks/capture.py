"""What a capture costs, next to the same done by hand: `python benchmarks/capture.py`.

A 12-layer transformer trains on one CPU thread; steps 7-26 are captured. Compared, in whole processes that
take turns: this product; ``torch.profiler`` by hand with ``export_chrome_trace("….json.gz")``; the same with
the profiler only stopped, which is the floor; ``accelerator.profile()`` as its documentation shows it, which
does not compress; no profiler.
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
loop_began = time.perf_counter()
for _ in range(steps):
    began = time.perf_counter()
    accelerator.backward(model(inputs).pow(2).mean())
    optimizer.step()
    optimizer.zero_grad()
    if profiler is not None:
        profiler.step()
    took.append(time.perf_counter() - began)
loop_s = time.perf_counter() - loop_began
began = time.perf_counter()
if how == "accelerate":
    context.__exit__(None, None, None)
elif profiler is not None:
    profiler.stop()
closing_s = time.perf_counter() - began if profiler is not None else 0.0
usual = statistics.median(took[first + active + 2 :] + took[1:5])
end = max(took[first + active - 1 : first + active + 1])
print(json.dumps(dict(
    inside_s=statistics.median(took[first + 1 : first + active - 1]),
    blocked_s=end - usual + closing_s,
    loop_s=loop_s,
)))
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
            "captured step / by hand",
            "kB on disk",
            "bytes / by hand",
        ],
        [
            [
                name,
                spread(run["blocked_s"] for run in runs),
                spread(ratios(column(found[by_hand], "blocked_s"), column(runs, "blocked_s")), 1),
                spread(ratios(column(runs, "inside_s"), column(found[by_hand], "inside_s"))),
                f"{statistics.median(column(runs, 'bytes')) / 1000:,.0f}",
                f"{statistics.median(ratios(column(runs, 'bytes'), column(found[by_hand], 'bytes'))):.2f}",
            ]
            for name, runs in found.items()
        ],
    )
    jobs = in_turn(
        {
            "bare": partial(one, "bare", 200),
            "autoprof": partial(one, "bare", 200, {"ACCELPROF_ENABLE": "1"}),
        },
        rounds,
    )
    print("\nA job of 200 steps with one default capture\n")
    speed = ratios(column(jobs["bare"], "loop_s"), column(jobs["autoprof"], "loop_s"))
    table(["throughput with autoprof / without"], [[spread(speed)]])


def column(runs: list[dict[str, Any]], name: str) -> list[float]:
    """Return one figure of every run."""
    return [float(run[name]) for run in runs]


if __name__ == "__main__":
    main()
