"""Trains while a profiler of the script's own runs, and prints what that profiler saw."""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import ProfileKwargs
from torch.profiler import ProfilerActivity, profile, schedule

STEPS = 20


def show(profiler):
    print(sorted((event.key, event.count) for event in profiler.key_averages()))


def around(step):
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(STEPS):
            step()
    show(profiler)


def inside(step):
    for number in range(STEPS):
        if number == 8:
            profiler = profile(activities=[ProfilerActivity.CPU], record_shapes=True)
            profiler.start()
        step()
        if number == 10:
            profiler.stop()
            show(profiler)


def scheduled(step):
    plan = schedule(wait=6, warmup=2, active=2, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=show) as profiler:
        for _ in range(STEPS):
            step()
            profiler.step()


def repeated(step):
    plan = schedule(wait=1, warmup=1, active=2, repeat=0)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=show) as profiler:
        for _ in range(STEPS):
            step()
            profiler.step()


def autograd(step):
    for number in range(STEPS):
        if number == 8:
            profiler = torch.autograd.profiler.profile()
            profiler.__enter__()
        step()
        if number == 9:
            profiler.__exit__(None, None, None)
            show(profiler)


def accelerators_own(step):
    accelerator = Accelerator(kwargs_handlers=[ProfileKwargs(activities=["cpu"], record_shapes=True)])
    with accelerator.profile() as profiler:
        for _ in range(STEPS):
            step()
    show(profiler)


def failing(step):
    for number in range(STEPS):
        try:
            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                step()
                if number == 8:
                    raise KeyError("the script's own")
        except KeyError:
            show(profiler)


if __name__ == "__main__":
    torch.manual_seed(0)
    accelerator = Accelerator()
    model = torch.nn.Linear(8, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def step():
        accelerator.backward(model(torch.ones(2, 8)).sum())
        optimizer.step()
        optimizer.zero_grad()

    globals()[sys.argv[1]](step)
