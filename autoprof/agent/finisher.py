"""A background thread for everything that need not happen on the training thread.

The thread lives while there is something to do, so that an idle process has none of ours and a fork in
between copies none.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from threading import Thread

from autoprof.agent.guard import entry

_QUEUE_LIMIT = 16


class Finisher:
    """Runs jobs one after the other, in order, off the caller's thread."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._working = False

    def submit(self, job: Callable[[], None]) -> None:
        """Queue ``job``. Who has a choice asks :attr:`is_full` before making work."""
        with self._changed:
            self._jobs.append(job)
            if self._working:
                return
            self._working = True
        try:
            Thread(target=self._work, name="autoprof-finisher", daemon=True).start()
        except RuntimeError:  # Python 3.12 starts no threads once the interpreter is going down
            self._work()
        except BaseException:  # what else a script or its tools make of starting one
            self._rest()
            raise

    @property
    def is_full(self) -> bool:
        """Whether so much waits that no further capture should be begun."""
        return len(self._jobs) >= _QUEUE_LIMIT

    @property
    def idle(self) -> bool:
        """Whether every job is done."""
        return not self._working

    def drain(self, timeout_s: float) -> bool:
        """Wait until every job is done; ``False`` where that took longer than ``timeout_s``."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._working, timeout_s)

    @entry
    def _work(self) -> None:
        try:
            while job := self._next_job():
                job()
        except Exception:  # a job that fails ends the agent: what is still queued would only fail after it
            self._rest()
            raise

    def _next_job(self) -> Callable[[], None] | None:
        with self._changed:
            if self._jobs:
                return self._jobs.popleft()
            self._rest()
            return None

    def _rest(self) -> None:
        with self._changed:
            self._working = False
            self._changed.notify_all()
