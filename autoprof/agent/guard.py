"""The one place where a fault of ours is caught: said once, and the agent retires for this process.

Everything that the interpreter, Accelerate or torch may call on us is an *entry point* and carries
:func:`entry`. Tests walk :data:`ENTRIES` and make each of them raise.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

ENTRIES: dict[str, Callable[..., Any]] = {}
"""Every entry point by its qualified name."""

_on_fault: Callable[[str, str], None] | None = None


def entry(function: F) -> F:
    """Mark an entry point: what it raises never reaches the caller, who gets ``None`` instead.

    Only :class:`Exception` is caught. ``KeyboardInterrupt`` and ``SystemExit`` are the user's, and so is
    whatever a signal handler of the script raises while it interrupts us.
    """
    name = f"{function.__module__}.{function.__qualname__}".removeprefix("autoprof.agent.")

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  this is the net
            caught(name, error)
            return None

    ENTRIES[name] = guarded
    return guarded  # type: ignore[return-value]


def caught(name: str, error: Exception) -> None:
    """Take an exception that was caught in the entry point ``name``.

    Raises:
        Exception: ``error`` itself, where it is not ours but that of a signal handler of the script.
    """
    if _comes_from_a_signal_handler(error):
        raise error
    fault(name, error)


def _comes_from_a_signal_handler(error: BaseException) -> bool:
    """Find a frame that was called as handlers are: with a signal's number and the interrupted frame."""
    trace = error.__traceback__
    while trace is not None:
        code, known = trace.tb_frame.f_code, trace.tb_frame.f_locals
        values = [known.get(name) for name in code.co_varnames[: code.co_argcount]]
        if code.co_flags & inspect.CO_VARARGS:
            values += known.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())
        if any(isinstance(a, int) and isinstance(b, FrameType) for a, b in itertools.pairwise(values)):
            return True
        trace = trace.tb_next
    return False


def on_fault(retire: Callable[[str, str], None] | None) -> None:
    """Set what retires the agent: called with one line for people and the full traceback."""
    global _on_fault  # noqa: PLW0603  one agent per process, one guard
    _on_fault = retire


def fault(where: str, error: BaseException) -> None:
    """Report a fault of ours and retire the agent. Never raises."""
    try:
        summary = traceback.format_exception_only(type(error), error)[-1].strip()
        line = f"profiling stops here after a fault of the profiler itself in {where}: {summary}"
        details = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        if _on_fault is None:
            say(line)
        else:
            _on_fault(line, details)
    except Exception:  # noqa: BLE001  a fault while reporting a fault: the job matters more
        return


def say(line: str) -> None:
    """Write one prefixed line to stderr, whatever state that is in and whatever the script has put there.

    Nothing stays in the stream's buffer: what cannot be written from there ends the interpreter with status
    120.
    """
    try:
        stream = sys.__stderr__ or sys.stderr
        if stream is None:
            return
        text = f"autoprof: {line}\n"
        try:
            descriptor = stream.fileno()
        except (AttributeError, OSError, ValueError):  # an object of the script's own
            stream.write(text)
            stream.flush()
            return
        stream.flush()
        rest = text.encode("utf-8", "backslashreplace")
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except Exception:  # noqa: BLE001  closed, full, or broken: nobody to tell
        return
