"""What runs when an interpreter starts with the agent switched on: a tripwire on the import of Accelerate.

Every process that inherits ``ACCELPROF_ENABLE`` pays for this module, ``pip`` and shell one-liners included.
It imports nothing that an interpreter has not loaded by itself, not even ``__future__`` or ``typing``.
"""

import os
import sys
from _thread import get_ident  # `threading` would be a new import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

HOOKED = ("accelerate.optimizer", "accelerate.accelerator")
"""Modules whose execution wakes ``autoprof.agent.hooks``, in the order Accelerate executes them."""

_OFF = ("", "0", "false", "no", "off")
_LAUNCHERS = (
    "accelerate-launch",
    "torchrun",
    "deepspeed",
    "deepspeed.pt",
    "-m accelerate.commands.launch",
    "-m torch.distributed.run",
    "-m torch.distributed.launch",
    "-m deepspeed.launcher.runner",
)

_failed = False  # what failed once is not tried again: one line a process


def arm() -> None:
    """Put the tripwire in place if ``ACCELPROF_ENABLE`` asks for it. Further calls change nothing.

    Raises:
        SystemExit: Accelerate is imported already, a setting cannot be used and ``ACCELPROF_STRICT`` is on.
    """
    try:
        if not is_wanted() or any(type(finder) is _Finder for finder in sys.meta_path):
            return
        # torch 2.13 prints "USDT: profiler_start" and more on stderr; it reads this while it is imported.
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
        named = os.environ.get("ACCELPROF_RUN_ID") or os.environ.get("_ACCELPROF_RUN_ID")
        if not named and is_launcher():
            os.environ["_ACCELPROF_RUN_ID"] = new_run_id()
        sys.meta_path.insert(0, _Finder())
        for name in HOOKED:
            module = sys.modules.get(name)
            if module is not None and not _is_executing(module):
                _install_hooks(module)
    except Exception as error:  # noqa: BLE001  nothing of ours may disturb an interpreter that starts
        _say_not_active(error)


def _is_executing(module: "ModuleType") -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def is_wanted() -> bool:
    """Say whether the environment switches the agent on.

    A misspelt ``ACCELPROF_ENABLE`` counts: the settings then say which name was meant.
    """
    value = os.environ.get("ACCELPROF_ENABLE")
    if value is None:
        return any(name.startswith("ACCELPROF_EN") for name in os.environ)
    return value.strip().lower() not in _OFF


def is_launcher(command: "Sequence[str] | None" = None) -> bool:
    """Say whether ``command`` starts the ranks of a job rather than being one of them.

    ``command`` is an interpreter's full command line; default: the one of this process.
    """
    program, arguments = _program(getattr(sys, "orig_argv", ()) if command is None else command)
    if program in ("accelerate", "-m accelerate.commands.accelerate_cli"):
        return arguments[:1] == ["launch"]
    return program in _LAUNCHERS


def _program(command: "Sequence[str]") -> "tuple[str, list[str]]":
    """Split an interpreter's command line into ``-m <module>`` or a script's file name, and its arguments."""
    rest = list(command[1:])
    while rest:
        word = rest.pop(0)
        if word == "-" or not word.startswith("-"):
            return os.path.basename(word), rest
        if word == "--check-hash-based-pycs":
            del rest[:1]
        if word.startswith("--"):
            continue
        for position, letter in enumerate(word[1:], 2):
            if letter == "c":
                return "-c", []
            if letter in "mWX":  # these take a value, attached or as the next word
                value = word[position:] or (rest.pop(0) if rest else "")
                if letter == "m":
                    return "-m " + value, rest
                break
    return "", []


def new_run_id() -> str:
    """Return a run id that sorts by time (UTC) and does not repeat."""
    import time

    return time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + os.urandom(3).hex()


class _Finder:
    """Stands first on ``sys.meta_path`` and stays, so that a reloaded module is hooked again.

    ``find_spec`` runs under the import lock: it must not lock, import or log.
    """

    def __init__(self) -> None:
        self._asking: set[tuple[int, str]] = set()

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name not in HOOKED:
            return None
        question = (get_ident(), name)
        if question in self._asking:  # a finder that asks every other one, as we do, has come back to us
            return None
        self._asking.add(question)
        try:
            for finder in self._later_finders():
                find_spec = getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = find_spec and find_spec(name, path, target)
                if spec is not None:
                    return _watched(spec)
            return None
        finally:
            self._asking.discard(question)

    def _later_finders(self) -> "Iterable[Any]":
        finders: list[Any] = list(sys.meta_path)
        # Those in front of us have been asked and know nothing.
        return finders[finders.index(self) + 1 :] if self in finders else finders


def _watched(spec: "ModuleSpec") -> "ModuleSpec":
    loader: Any = spec.loader
    if hasattr(loader, "exec_module") and type(loader) is not _Loader:
        watched: Any = _Loader(loader)
        spec.loader = watched
    return spec


class _Loader:
    """Stands in for a module's loader from the search for the module until its execution.

    To everybody else (``importlib.util.find_spec`` hands it out) it is the loader, ``isinstance`` included.
    """

    def __init__(self, loader: "Any") -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> "Any":
        if name == "_loader":  # a copy being made, which has nothing yet
            raise AttributeError(name)
        return getattr(self._loader, name)

    @property  # type: ignore[misc]
    def __class__(self) -> "Any":
        return self._loader.__class__

    def exec_module(self, module: "ModuleType") -> None:
        # Before the execution: what the module's own body sees is what it would see without us.
        spec: Any = module.__spec__
        if spec is not None and spec.loader is self:
            spec.loader = self._loader
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = self._loader
        self._loader.exec_module(module)
        _install_hooks(module)


def _install_hooks(module: "ModuleType") -> None:
    global _failed  # noqa: PLW0603
    if _failed:
        return
    try:
        from autoprof.agent import hooks

        hooks.install(module)
    except Exception as error:  # noqa: BLE001  the import of Accelerate must succeed as it would without us
        _failed = True
        _say_not_active(error)


def _say_not_active(error: Exception) -> None:
    try:
        line = f"autoprof: not active: {type(error).__name__}: {' '.join(str(error).split())}\n"
        # Past the stream's buffer: what cannot be written from there ends the interpreter with status 120.
        os.write(sys.stderr.fileno(), line.encode("utf-8", "backslashreplace"))
    except Exception:  # noqa: BLE001  stderr is closed or absent: there is nobody to tell
        return
