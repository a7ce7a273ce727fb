"""The ends of a process: normal exit and fork."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable

_watching_pid: int | None = None


def watch(at_exit: Callable[[], None], after_fork: Callable[[], None]) -> None:
    """Have ``at_exit`` called when this process ends and ``after_fork`` in its children, once each.

    Exit functions are inherited by a fork; ``at_exit`` runs only in the process that asked for it.
    """
    global _watching_pid  # noqa: PLW0603  exit functions are per process
    if _watching_pid == os.getpid():
        return
    first_time = _watching_pid is None
    _watching_pid = pid = os.getpid()

    def at_exit_here() -> None:
        if os.getpid() == pid:
            at_exit()

    atexit.register(at_exit_here)
    if first_time:
        os.register_at_fork(after_in_child=after_fork)
