"""Runs one training loop many times, each time with another function of the agent made to raise.

Accelerate is imported once; each trial is a forked child that trains, runs its exit functions and ends.
Prints one JSON object: the name of the function, then exit status, stdout and stderr of the trial.
"""

import atexit
import importlib
import inspect
import json
import os
import pkgutil
import signal
import sys
import tempfile
import threading
import traceback
import types
from pathlib import Path

import torch
from accelerate import Accelerator

import autoprof.agent
import autoprof.run
from autoprof.agent import guard

# These are the net itself, or run in the parent before any trial.
NOT_INJECTED = {
    "guard.entry",
    "guard.on_fault",
    "guard.caught",
    "guard.fault",
    "guard.say",
    "hooks.install",
    "hooks._install_optimizer",
    "hooks._install_accelerator",
    "agent.Agent.retire",  # a part of the net
    "agent.Agent._go",
    "hooks._find_is_compiling",
    "hooks._hide_from_dynamo",
    "dynamo.hide",
    "dynamo.run_while_tracing",
    "hooks._wrap",
    "hooks._around",
    "hooks._phase",
    "hooks._subclasses",
    "agent.Agent.__init__",
    "plan.CapturePlan.__init__",
    "clock.StepClock.__init__",
    "clock.Pacemaker.__init__",
    "finisher.Finisher.__init__",
    "lifecycle.AbruptEnds.__init__",
}
# Wrappers around the user's own call: what they raise is the user's. Their own parts are entry points.
WRAPPERS = {
    "lifecycle.AbruptEnds._exit_after_saving",
    "lifecycle.AbruptEnds._terminate_after_saving",
    "hooks._instance",
    "hooks._Range.__init__",
    "hooks._accelerator_built",
    "hooks._optimizer_built",
    "hooks._torch_optimizer_built",
    "hooks._backward",
    "hooks._optimizer_step",
    "hooks._engine_step",
    "hooks._iterate",
    "hooks._batches",
    "hooks._foreign_step",
    "hooks._profiler_starting",
    "hooks._profiler_stopped",
    "hooks._note_compiled_step",
}


class Injected(RuntimeError):
    pass


def functions():
    """Yield name, owner and attribute of every function of the agent and of what it shares."""
    for package in (autoprof.agent, autoprof.run):
        for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            module = importlib.import_module(info.name)
            short = info.name.removeprefix("autoprof.").removeprefix("agent.")
            for owner, prefix in [(module, short), *_classes(module, short)]:
                for attribute, value in list(vars(owner).items()):
                    plain = isinstance(value, types.FunctionType | property)
                    defined_here = (
                        getattr(value, "__module__", None) or getattr(value.fget, "__module__", None)
                        if plain
                        else None
                    )
                    dunder = attribute.startswith("__") and attribute != "__init__"
                    name = f"{prefix}.{attribute}"
                    if (
                        plain
                        and defined_here == info.name
                        and not dunder
                        and name not in NOT_INJECTED | WRAPPERS
                    ):
                        yield name, owner, attribute


def _classes(module, short):
    return [
        (value, f"{short}.{name}")
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and value.__module__ == module.__name__
        and not issubclass(value, tuple | BaseException)
    ]


def inject(owner, attribute):
    def raising(*args, **kwargs):
        raise Injected(f"injected into {attribute}")

    value = vars(owner)[attribute]
    if isinstance(value, types.FunctionType) and value in guard.ENTRIES.values():
        # Inside the net, as a fault in the body would be.
        for name, cell in zip(value.__code__.co_freevars, value.__closure__, strict=True):
            if name == "function":
                cell.cell_contents = raising
    elif isinstance(value, property):
        setattr(owner, attribute, property(raising))
    else:
        setattr(owner, attribute, raising)
        for module in list(sys.modules.values()):  # names imported by others
            if (
                getattr(module, "__name__", "").startswith("autoprof")
                and vars(module).get(attribute) is value
            ):
                setattr(module, attribute, raising)


def train():
    torch.manual_seed(0)
    accelerator = Accelerator()
    model = torch.nn.Linear(8, 1)
    data = torch.utils.data.DataLoader(torch.randn(48, 8), batch_size=4)
    model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), data)
    for batch in data:
        loss = model(batch).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    print(loss.item(), model.weight.sum().item())
    helper = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))])
    helper.step()


def trial(target, folder):
    out, err = folder / "out", folder / "err"
    child = os.fork()
    if child == 0:
        for path, descriptor in ((out, 1), (err, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        status = 0
        try:
            if target is not None:
                inject(*target)
            train()
        except BaseException:  # noqa: BLE001  the trial's own end
            traceback.print_exc()
            status = 1
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(status)
    killer = threading.Timer(60, os.kill, (child, signal.SIGKILL))  # a hang is a failure, not the suite's end
    killer.start()
    _, waited = os.waitpid(child, 0)
    killer.cancel()
    return {"status": os.waitstatus_to_exitcode(waited), "stdout": out.read_text(), "stderr": err.read_text()}


def warm_up():
    """Import what torch imports late, so that the trials inherit it."""
    importlib.import_module("torch._dynamo")
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    for optimizer in (torch.optim.SGD([parameter], lr=0.1), torch.optim.Adam([parameter])):
        optimizer.step()
    list(torch.utils.data.DataLoader(torch.ones(4, 8)))


if __name__ == "__main__":
    warm_up()
    # Not a TemporaryDirectory: each child's exit functions would remove it.
    folder = Path(tempfile.mkdtemp(dir="."))
    results = {"": trial(None, folder)}
    for name, owner, attribute in functions():
        results[name] = trial((owner, attribute), folder)
    print(json.dumps(results))
