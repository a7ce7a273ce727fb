"""The ends of a process: normal exit, SIGTERM, ``os._exit`` and fork."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import atexit
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from autoprof.agent.guard import entry

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


class AbruptEnds:
    """While held, SIGTERM and ``os._exit`` first save what is being recorded and then do what they do.

    Held only while there is something to save: a handler in Python runs when the main thread next runs
    Python, so a rank that hangs in a collective would not die of SIGTERM as it does without one.
    """

    def __init__(self, save: Callable[[], None], *, busy: Callable[[], bool]) -> None:
        self._save = save
        self._busy = busy  # whether saving has to wait: torch's profiler must not be re-entered
        self._waiting_signal: int | None = None
        self._pid = -1
        self._exits: tuple[Callable[[int], Any], Callable[[int], Any]] | None = None
        self._handler = _Handler(self._terminate_after_saving)

    @property
    def held(self) -> bool:
        """Whether the ends are being caught."""
        return self._exits is not None

    @property
    def waiting(self) -> bool:
        """Whether a signal has come that :meth:`catch_up` has still to act on."""
        return self._waiting_signal is not None

    def hold(self) -> None:
        """Begin to catch them. A handler of the script's own stays in place: it decides what happens."""
        if self._exits is not None:
            return
        self._pid = os.getpid()
        self._exits = os._exit, self._saving_before(os._exit)
        os._exit = self._exits[1]  # type: ignore[assignment]
        if _on_main_thread() and _is_default(signal.SIGTERM):
            self._handler.install(signal.SIGTERM)

    def release(self) -> None:
        """Stop catching them, where nobody has put something else in place since."""
        if self._exits is None or not _on_main_thread():
            return
        theirs, ours = self._exits
        if os._exit == ours:
            os._exit = theirs  # type: ignore[assignment]
        if self._handler.is_installed(signal.SIGTERM):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._exits = None

    def catch_up(self) -> None:
        """Act on a signal that came while the agent was busy."""
        waiting, self._waiting_signal = self._waiting_signal, None
        if waiting is not None and _on_main_thread():
            self._terminate_after_saving(waiting, None)

    @entry
    def _save_here(self) -> bool:
        """Save, in the process that holds; false where that has to wait."""
        if os.getpid() != self._pid:
            return True
        if self._busy():
            return False
        self._save()
        return True

    def _saving_before(self, theirs: Callable[[int], Any]) -> Callable[[int], Any]:
        """Return what takes the place of ``theirs``, an ``os._exit``, and leads to it for good.

        The script may have wrapped it by the time it is released, and it pickles as what it stands for.
        """

        def _exit(status: int) -> None:
            self._save_here()
            theirs(status)

        _exit.__module__, _exit.__qualname__ = "os", "_exit"
        return _exit

    def _terminate_after_saving(self, signum: int, _: FrameType | None) -> None:
        if self._save_here() is False:  # a fault of ours gives None, and the signal its way
            self._waiting_signal = signum
            return
        if self._handler.is_installed(signum):
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)


class _Handler(int):
    """A signal handler that scripts see as ``SIG_DFL``, which is what it has taken the place of.

    A handler of the script's own that is put in its place chains to what was there before it, or does not.
    """

    _function: Callable[[int, FrameType | None], None]

    def __new__(cls, function: Callable[[int, FrameType | None], None]) -> _Handler:
        handler = super().__new__(cls, signal.SIG_DFL)
        handler._function = function
        return handler

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        self._function(signum, frame)

    # The functions of `signal` itself make members of an enum out of whole numbers.

    def install(self, signum: int) -> None:
        _signal.signal(signum, self)

    def is_installed(self, signum: int) -> bool:
        return _signal.getsignal(signum) is self


def _is_default(signum: int) -> bool:
    """Say whether nothing handles the signal, in Python or in C (``faulthandler.register``, say)."""
    if signal.getsignal(signum) is not signal.SIG_DFL:
        return False
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            caught = next(line for line in status if line.startswith("SigCgt:"))
    except (OSError, StopIteration):  # no Linux
        return True
    return not int(caught.split()[1], 16) >> (signum - 1) & 1


def skip_exit_handlers_of_libraries() -> None:
    """In a forked child, once torch has profiled in its parent: leave by ``_exit`` when Python is done.

    libkineto's ConfigLoader is destroyed by libc's ``exit`` and waits there, forever, for a thread that
    only the parent has (torch 2.13). Children of ``multiprocessing`` end by ``os._exit`` and never get there.
    """
    import ctypes

    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # glibc; the latest that is registered is called first
        libc.on_exit(libc._exit, None)
        libc.__cxa_atexit(libc.fflush, None, None)


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
