"""Trains while another thread computes; with `old`, on a torch that lacks what came late."""

import inspect
import sys
import threading

import torch
from accelerate import Accelerator

if "old" in sys.argv:
    real = torch._C._profiler._ExperimentalConfig

    def old_config(verbose=False):
        return real(verbose=verbose)

    torch._C._profiler._ExperimentalConfig = old_config
    parameters = dict(inspect.signature(torch.profiler.profile.__init__).parameters)
    del parameters["post_processing_timeout_s"]
    torch.profiler.profile.__init__.__signature__ = inspect.Signature([*parameters.values()])
if "traced" in sys.argv:
    sys.setprofile(lambda *_: None)

torch.manual_seed(0)
accelerator = Accelerator()
model = torch.nn.Linear(8, 8)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
begun, ended = threading.Event(), threading.Event()


def elsewhere():
    while not ended.is_set():
        torch.ones(3).cumsum(0)
        begun.set()


thread = threading.Thread(target=elsewhere)
thread.start()
for _ in range(10):
    begun.clear()
    begun.wait()
    loss = model(torch.ones(4, 8)).pow(2).mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    cycle = [1]
    cycle.append(cycle)
    del cycle
    __import__("gc").collect()
ended.set()
thread.join()
print(loss.item())
