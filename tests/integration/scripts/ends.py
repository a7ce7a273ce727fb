"""A training loop that ends in the way and at the step its arguments name."""

import os
import signal
import sys
import threading

import torch
from accelerate import Accelerator

from autoprof.agent.finisher import Finisher


def handler(signum, frame):
    print("the script's own handler", flush=True)
    sys.exit(7)


def terminate_in(name):
    """Have SIGTERM come in the middle of what the profiler does."""
    name, _, at_once = name.partition("-")
    if at_once:  # what a fast disk may do: everything is in place before the training thread looks
        Finisher.submit = lambda self, job: job()
    original = getattr(torch.profiler.profile, name)

    def terminated(self, *args, **kwargs):
        os.kill(os.getpid(), signal.SIGTERM)
        return original(self, *args, **kwargs)

    setattr(torch.profiler.profile, name, terminated)


def main(how, at, heavy=0):
    """``heavy`` is the number of additional operations of a step: writing the trace then takes a while."""
    accelerator = Accelerator()
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    if how.startswith("terminate-in-"):
        terminate_in(how.removeprefix("terminate-in-"))
    if how == "handler-before":
        signal.signal(signal.SIGTERM, handler)
    for step in range(20):
        if step == at and heavy:  # at once: no other rank to wait for
            end(how)
        values = torch.ones(2, 8)
        for _ in range(heavy):
            values = values + 0.0
        accelerator.backward(model(values).sum())
        if step == at and (accelerator.is_main_process or how not in ("raise-in-one-rank",)):
            end(how)
        optimizer.step()
        optimizer.zero_grad()
    print("trained to the end", flush=True)


def end(how):
    with open("threads.txt", "a") as threads:
        print(*(thread.name for thread in threading.enumerate()), file=threads)
    if how == "exit":
        sys.exit(3)
    if how.startswith("raise"):
        raise RuntimeError("a bug of the script's own")
    if how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    if how == "handler-after":
        signal.signal(signal.SIGTERM, handler)
    if how in ("terminate", "handler-before", "handler-after"):
        os.kill(os.getpid(), signal.SIGTERM)
    if how == "_exit":
        sys.stdout.flush()
        os._exit(4)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "fork":
        child = os.fork()
        if child == 0:
            torch.stack([torch.ones(3)] * 3).sum()
            sys.exit(5)  # through Python's and libc's whole exit
        print("the child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    how, at, heavy = sys.argv[1], int(sys.argv[2]), int([*sys.argv, 0][3])
    if how == "thread":
        thread = threading.Thread(target=main, args=(how, at))
        thread.start()
        thread.join()
    else:
        main(how, at, heavy)
