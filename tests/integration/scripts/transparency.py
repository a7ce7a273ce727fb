"""Prints what a script can find out about the objects that are wrapped."""

import copy
import functools
import inspect
import pickle
import tempfile
from unittest import mock

import torch
import torch._dynamo.utils
from accelerate import Accelerator
from accelerate.data_loader import DataLoaderShard
from accelerate.optimizer import AcceleratedOptimizer


class Mine(Accelerator):
    """Overrides `backward` without calling Accelerate's."""

    def backward(self, loss, **kwargs):
        loss.backward(**kwargs)


def parameters(function):
    return inspect.signature(function).parameters.values()


def facts(function):
    return (
        function.__name__,
        function.__qualname__,
        function.__module__,
        [(each.name, each.kind, each.default is each.empty) for each in parameters(function)],
        inspect.getdoc(function),
        inspect.isfunction(function) or inspect.ismethod(function),
        len(inspect.getsource(function)),
    )


def train(accelerator, model, optimizer, steps):
    for _ in range(steps):
        accelerator.backward(model(torch.ones(2, 4)).sum())
        optimizer.step()
        optimizer.zero_grad()


torch.manual_seed(0)
saved_reference = Accelerator.backward
for function in (
    Accelerator.backward,
    Accelerator.__init__,
    AcceleratedOptimizer.step,
    DataLoaderShard.__iter__,
    torch.optim.SGD.step,
):
    print(facts(function))

accelerator = Mine()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
loader = torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2)
model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
train(accelerator, model, optimizer, 4)
saved_reference(accelerator, model(torch.ones(2, 4)).sum())
optimizer.step()
print(
    isinstance(optimizer, torch.optim.Optimizer),
    isinstance(accelerator, Accelerator),
    type(iter(loader)).__name__,
)
print(sorted(pickle.loads(pickle.dumps(optimizer)).state_dict()["param_groups"][0]))
print(copy.deepcopy(optimizer).state_dict()["param_groups"])
print(len(pickle.dumps(optimizer.state_dict())), len(pickle.dumps(scheduler.state_dict())))
print(pickle.loads(pickle.dumps(Accelerator.backward)) is Accelerator.backward)
print(type(copy.copy(accelerator)).__name__, inspect.signature(accelerator.backward))
with tempfile.TemporaryDirectory() as folder:
    accelerator.save_state(folder)
    accelerator.load_state(folder)

with mock.patch.object(Accelerator, "backward", autospec=True) as replaced:
    Accelerator.backward(accelerator, torch.ones(()))
    print(replaced.call_count)

plain = Accelerator()
train(plain, model, optimizer, 3)
try:
    plain.backward(torch.ones(()))
except RuntimeError as error:
    print(type(error).__name__, str(error)[:40])

counters = torch._dynamo.utils.counters


def whole_step(batch):
    loss = model(batch).sum()
    plain.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss


def optimizer_step():
    optimizer.step()


compiled = {
    "model": lambda: plain.backward(torch.compile(model, backend="eager")(torch.ones(2, 4)).sum()),
    "step": torch.compile(optimizer_step, backend="eager"),
    "whole": functools.partial(torch.compile(whole_step, backend="eager"), torch.ones(2, 4)),
}
for name, function in compiled.items():
    torch._dynamo.reset()
    counters.clear()
    for _ in range(6):
        function()
    # Its frames are counted per function: those of resumed hooks are ours. Graphs and breaks are the job's.
    print(name, dict(counters["stats"]), dict(counters["recompiles"]), sum(counters["graph_break"].values()))
print(model.weight.sum().item())
