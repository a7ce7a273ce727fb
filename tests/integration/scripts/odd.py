"""Training jobs that do something unusual, each as a function. Prints what it came to."""

import copy
import ctypes
import faulthandler
import functools
import os
import pickle
import signal
import sys
import threading
import time
import weakref
from unittest import mock

import torch
from accelerate import Accelerator
from torch.utils._python_dispatch import TorchDispatchMode

STEPS = 16


def setup(optimizer=torch.optim.SGD):
    torch.manual_seed(0)
    accelerator = Accelerator()
    model = torch.nn.Linear(8, 1)
    model, optimizer = accelerator.prepare(model, optimizer(model.parameters(), lr=0.1))

    def step():
        optimizer.zero_grad()
        accelerator.backward(model(torch.ones(2, 8)).sum())
        optimizer.step()

    return accelerator, model, optimizer, step


def finish(model, *more):
    print(model.weight.sum().item(), *more, flush=True)


def thread_per_epoch():
    _, model, _, step = setup()
    for _ in range(4):
        thread = threading.Thread(target=lambda: [step() for _ in range(4)])
        thread.start()
        thread.join()
    finish(model)


def watchdog_that_raises():
    """As a time limit does: the handler's exception has to reach the loop, wherever it strikes."""

    class TooSlow(Exception):
        pass

    def handler(*_):
        raise TooSlow

    _, model, _, step = setup()
    signal.signal(signal.SIGALRM, handler)
    export = torch.profiler.profile.export_chrome_trace

    def slow_export(*args):
        signal.raise_signal(signal.SIGALRM)
        return export(*args)

    torch.profiler.profile.export_chrome_trace = slow_export
    caught = 0
    for number in range(STEPS):
        try:
            step()
            if number == 9 and not os.environ.get("ACCELPROF_ENABLE"):
                signal.raise_signal(signal.SIGALRM)
        except TooSlow:
            caught += 1
    finish(model, caught)


def legacy_profiler():
    _, model, _, step = setup()
    for number in range(STEPS):
        if number == 8:
            with torch.autograd.profiler_legacy.profile() as profiler:
                step()
            names = sorted({event.name for event in profiler.function_events})
        else:
            step()
    finish(model, len(names))


def handler_in_c():
    _, model, _, step = setup()
    with open(os.devnull, "w") as nowhere:
        faulthandler.register(signal.SIGTERM, file=nowhere)
        for _ in range(STEPS):
            step()
        os.kill(os.getpid(), signal.SIGTERM)
    finish(model, "alive")


def chaining_handler():
    _, model, _, step = setup()
    caught = []

    def handler(signum, frame):
        caught.append(signum)
        if callable(before):
            before(signum, frame)

    for number in range(STEPS):
        if number == 8:
            before = signal.getsignal(signal.SIGTERM)
            signal.signal(signal.SIGTERM, handler)
        step()
    os.kill(os.getpid(), signal.SIGTERM)
    finish(model, len(caught))


def dispatch_mode():
    class Count(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            Count.seen += 1
            if function.namespace != "aten":
                raise NotImplementedError(function)
            return function(*args, **(kwargs or {}))

    _, model, optimizer, _ = setup()
    accelerator = Accelerator()
    for _ in range(STEPS):
        with Count():
            accelerator.backward(model(torch.ones(2, 8)).sum())
        optimizer.step()
        optimizer.zero_grad()
    finish(model, Count.seen)


def optimizer_with_a_hash_of_its_own():
    class Odd(torch.optim.SGD):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.name = "odd"

        def __hash__(self):
            return hash(self.name)

    _, model, _, step = setup(Odd)
    for _ in range(STEPS):
        step()
    finish(model)


def methods_as_values():
    accelerator, model, optimizer, step = setup()

    class Holder:
        def __init__(self):
            self.step = optimizer.step

    copied = copy.deepcopy(Holder())
    print(callable(copied.step), weakref.WeakMethod(optimizer.step)() is not None)
    print(pickle.loads(pickle.dumps(Accelerator.backward)) is Accelerator.backward)
    Accelerator.backward(self=accelerator, loss=model(torch.ones(2, 8)).sum())
    for _ in range(STEPS):
        step()
    finish(model)


def exit_wrapped():
    _, model, _, step = setup()
    for number in range(STEPS):
        if number in (8, 12):
            os._exit = functools.partial(lambda theirs, status: theirs(status), os._exit)
        step()
    finish(model)
    os._exit(0)


def exit_pickled():
    _, model, _, step = setup()
    same = []
    for _ in range(STEPS):
        step()
        same.append(pickle.loads(pickle.dumps(os._exit)) is os._exit)
    finish(model, all(same))


def exit_in_a_forked_child():
    """What the child has written through C is there, and its status."""
    _, model, _, step = setup()
    for number in range(STEPS):
        step()
        if number == 12 and os.fork() == 0:
            ctypes.CDLL(None).printf(b"written by the child\n")
            sys.exit(3)
    finish(model, os.waitstatus_to_exitcode(os.wait()[1]))


def handlers_looked_at():
    _, model, _, step = setup()
    seen = set()
    for _ in range(STEPS):
        step()
        seen.add(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
    finish(model, seen)


def clocks_mocked():
    _, model, _, step = setup()
    names = ("perf_counter", "time", "time_ns", "monotonic", "sleep")
    mocks = [mock.patch.object(time, name, side_effect=ValueError) for name in names]
    for number in range(STEPS):
        if number == 4:
            started = [patch.start() for patch in mocks]
        step()
    called = sum(clock.call_count for clock in started)
    mock.patch.stopall()
    finish(model, called)


def threads_mocked():
    _, model, _, step = setup()
    with mock.patch("threading.Thread") as thread:
        for _ in range(STEPS):
            step()
    finish(model, thread.call_count)


def called_wrongly():
    _, model, optimizer, step = setup()
    for _ in range(STEPS):
        step()
    for function in (Accelerator.backward, type(optimizer).step, torch.optim.SGD.step):
        try:
            function()
        except (TypeError, ValueError) as error:
            print(repr(error))
    finish(model)


def stderr_is_stdout():
    sys.stderr = sys.stdout
    _, model, _, step = setup()
    for _ in range(STEPS):
        step()
    finish(model)
    sys.stderr = sys.__stderr__


def two_threads_in_turn():
    """Both train; one of them may begin what the other sees the end of."""
    accelerator, model, _, step = setup()
    other = accelerator.prepare(torch.optim.SGD(torch.nn.Linear(8, 1).parameters(), lr=0.1))
    mine, theirs = threading.Semaphore(1), threading.Semaphore(0)

    def train(function, before, after):
        for _ in range(STEPS):
            before.acquire()
            function()
            after.release()

    threads = [
        threading.Thread(target=train, args=(step, mine, theirs)),
        threading.Thread(target=train, args=(other.step, theirs, mine)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    finish(model)


def stderr_without_flush():
    class Tee:
        def write(self, text):
            sys.__stderr__.write(text)

    sys.stderr = Tee()
    _, model, _, step = setup()
    for _ in range(STEPS):
        step()
    finish(model)
    sys.stderr = sys.__stderr__


def profile_function():
    calls = []
    _, model, _, step = setup()
    sys.setprofile(lambda frame, event, _: calls.append(1) if frame.f_code is step.__code__ else None)
    for _ in range(STEPS):
        step()
    sys.setprofile(None)
    finish(model, len(calls))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
