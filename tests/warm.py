"""A Python process that has imported torch and Accelerate already and forks jobs off: a job then starts in
a moment instead of seconds. ``jobs.py`` starts one and talks to it in lines of JSON.

A forked job is armed like a process in which Accelerate was imported early. What depends on the start of an
interpreter (the launchers, the chatter of torch's import) is tested in fresh ones.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import signal
import sys
import time
from types import ModuleType
from typing import Any

from autoprof import _startup

_POLL_S = 0.005
_GRACE_S = 3.0
"""How long the other ranks have to end by themselves after the first one has failed."""


def serve() -> dict[str, Any]:
    """Answer requests until the other side goes away; in a forked rank, return the job it is to run."""
    for line in sys.stdin:
        job = json.loads(line)
        pids = []
        for environment in job["ranks"]:
            pid = os.fork()
            if pid == 0:
                _become(job, environment)
                return dict(job)
            pids.append(pid)
        print(json.dumps(_wait(pids, job["timeout_s"])), flush=True)
    raise SystemExit


def _become(job: dict[str, Any], environment: dict[str, str]) -> None:
    os.setsid()
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(environment)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for number, target in ((0, os.devnull), (1, job["stdout"]), (2, job["stderr"])):
        opened = os.open(target, os.O_RDONLY if number == 0 else flags)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv = job["command"]
    sys.orig_argv = [sys.executable, *job["command"]]


def _wait(pids: list[int], timeout_s: float) -> list[int] | None:
    """Return every rank's status. Where one fails the others get SIGTERM, as from torchelastic, but later."""
    statuses: dict[int, int] = {}
    deadline = time.monotonic() + timeout_s
    patience = _GRACE_S
    while len(statuses) < len(pids):
        for pid in pids:
            if pid in statuses:
                continue
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                statuses[pid] = os.waitstatus_to_exitcode(status)
                _signal_group(pid, signal.SIGKILL)  # what it has left behind
        if any(statuses.values()) and patience > 0:
            patience -= _POLL_S
            for pid in pids:
                if patience <= 0 and pid not in statuses:
                    os.kill(pid, signal.SIGTERM)
        if time.monotonic() > deadline:
            for pid in pids:
                _signal_group(pid, signal.SIGKILL)
            return None
        time.sleep(_POLL_S)
    return [statuses[pid] for pid in pids]


def _signal_group(pid: int, signum: int) -> None:
    try:
        os.killpg(pid, signum)
    except ProcessLookupError:
        return


def keep_reducers() -> None:
    """Keep every DistributedDataParallel until the interpreter ends.

    torch 2.13 waits, with the GIL held, for gloo's thread when a reducer goes, and that thread may be waiting
    for the GIL to let go of the last all-reduce: a job that ends within milliseconds of its last step hangs,
    with us or without.
    """
    original = DistributedDataParallel.__init__
    kept = []

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        kept.append(self)

    DistributedDataParallel.__init__ = init


def run(job: dict[str, Any]) -> None:
    """Run the script as ``__main__``, whose names live until the interpreter ends, as they do anywhere."""
    path = job["command"][0]
    sys.path[0] = os.path.dirname(path)
    main = ModuleType("__main__")
    main.__file__ = path
    sys.modules["__main__"] = main
    _startup.arm()
    with open(path, encoding="utf-8") as script:
        code = compile(script.read(), path, "exec")
    exec(code, main.__dict__)


if __name__ == "__main__":
    import accelerate  # noqa: F401
    import torch._dynamo
    import torch.profiler  # noqa: F401
    from torch.nn.parallel import DistributedDataParallel

    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page it looks at
    print("[]", flush=True)
    keep_reducers()
    run(serve())
