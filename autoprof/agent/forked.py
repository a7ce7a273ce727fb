"""A raw trace that a forked child writes while the training goes on: ``ACCELPROF_FORK_SAVE``.

torch's writer holds the GIL for as long as it takes, so that no thread hides it; a child has a GIL of its
own. It calls nothing but that writer, touches no device and leaves by ``_exit``.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

_PATIENCE_S = 10.0
"""How long a child may write nothing: one that waits for a lock which another thread held never will."""
_MAPPINGS = "/proc/self/maps"


def why_not() -> str:
    """Return in words why this process had better not fork; nothing where it may."""
    if not hasattr(os, "fork"):
        return "this system does not fork"
    if signal.getsignal(signal.SIGCHLD) is not signal.SIG_DFL:
        return "the script handles SIGCHLD"
    try:
        with open(_MAPPINGS, "rb") as mappings:
            if any(b"/dev/infiniband/" in line for line in mappings):
                return "memory is registered with an InfiniBand adapter"
    except OSError:
        return f"{_MAPPINGS} cannot be read"
    return ""


class ForkedSave:
    """The trace of ``profile``, a stopped ``torch.profiler.profile``, on its way to ``path``.

    Raises:
        OSError: there is no room for a child.
    """

    def __init__(self, profile: Any, path: Path) -> None:
        self.profile = profile
        self._path = path
        self._unfinished = path.with_name(f".{path.name}.tmp")
        self._child = os.fork()
        if self._child == 0:
            try:
                profile.export_chrome_trace(str(self._unfinished))
                os.replace(self._unfinished, path)
            finally:
                os._exit(0)

    def wait(self) -> bool:
        """Wait for the child, and write the trace here where it has failed; say whether it was the child.

        Raises:
            OSError: the trace could not be written.
        """
        written, since = -1, monotonic()
        pause = threading.Event()
        while not self._has_ended():
            size = self._size()
            if size != written:
                written, since = size, monotonic()
            elif monotonic() - since > _PATIENCE_S:
                self._kill()
                break
            pause.wait(0.01)
        if self._path.is_file():
            return True
        self._unfinished.unlink(missing_ok=True)
        self.profile.export_chrome_trace(str(self._path))
        return False

    def _size(self) -> int:
        try:
            return self._unfinished.stat().st_size
        except OSError:
            return 0

    def _kill(self) -> None:
        with suppress(ProcessLookupError, ChildProcessError):  # a wait of the script's own may have got it
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)

    def _has_ended(self) -> bool:
        try:
            return os.waitpid(self._child, os.WNOHANG)[0] != 0
        except ChildProcessError:  # a wait of the script's own has got it: its file tells
            return True
