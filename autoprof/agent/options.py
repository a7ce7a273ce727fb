"""What torch.profiler is asked for beside activities, as far as the installed torch has it.

What torch has is found out by asking it: options came and went between its versions, and those in
``_ExperimentalConfig`` are promised to nobody.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

from autoprof.settings import PREFIX, Settings

# Fields of the settings, and what torch/profiler/profiler.py and torch/csrc/profiler call them.
_PLAIN = {
    "record_shapes": "record_shapes",
    "profile_memory": "profile_memory",
    "with_flops": "with_flops",
    "with_modules": "with_modules",
    "post_processing_timeout": "post_processing_timeout_s",
}
_EXPERIMENTAL = {
    "profile_all_threads": "profile_all_threads",
    "cuda_sync_events": "enable_cuda_sync_events",
    "overload_names": "capture_overload_names",
    "python_gc": "record_python_gc_info",
    "verbose_stacks": "verbose",
}
_NEED_STACKS = ("with_stack", "python_gc", "verbose_stacks")


def arguments(settings: Settings) -> dict[str, Any]:
    """Return the keyword arguments for ``torch.profiler.profile`` that the settings come to."""
    known = _plain_options()
    found = {"with_stack": _with_stack(settings)}
    for field, name in _PLAIN.items():
        if (value := getattr(settings, field)) and name in known:
            found[name] = value
    experimental = {
        name: True for field, name in _EXPERIMENTAL.items() if getattr(settings, field) and _has(name)
    }
    # The trace alone, without torch's Python list of events. torch/profiler/profiler.py: not with stacks.
    if not found["with_stack"] and _has("trace_only"):
        experimental["trace_only"] = True
    if experimental:
        found["experimental_config"] = _config(experimental)
    return found


def lacking(settings: Settings) -> list[str]:
    """Return a line for each option that was asked for and that torch or this machine lacks."""
    import torch

    known = _plain_options()
    absent = [field for field, name in _PLAIN.items() if name not in known]
    absent += [field for field, name in _EXPERIMENTAL.items() if not _has(name)]
    lines = [
        f"{_named(settings, field)} asks for what torch {torch.__version__} lacks; it is left out"
        for field in absent
        if getattr(settings, field)
    ]
    if settings.cuda_sync_events and "cuda_sync_events" not in absent and not torch.cuda.is_available():
        lines.append(f"{_named(settings, 'cuda_sync_events')} needs CUDA, which this machine lacks")
    asked = [field for field in _NEED_STACKS if getattr(settings, field)]
    if asked and not _with_stack(settings):
        lines.append(
            f"{_named(settings, asked[0])} needs Python's profile function, which the script uses itself; "
            "no stacks are recorded while it does"
        )
    return lines


def _named(settings: Settings, field: str) -> str:
    value = getattr(settings, field)
    return f"{PREFIX}{field.upper()}={value:g}"


def _with_stack(settings: Settings) -> bool:
    # torch's tracer takes the place of a profile function and puts nothing back.
    return any(getattr(settings, field) for field in _NEED_STACKS) and sys.getprofile() is None


def _plain_options() -> set[str]:
    import torch

    return set(inspect.signature(torch.profiler.profile.__init__).parameters)


def _has(name: str) -> bool:
    try:
        _config({name: True})
    except (ImportError, TypeError):
        return False
    return True


def _config(options: dict[str, Any]) -> Any:
    from torch._C._profiler import _ExperimentalConfig

    return _ExperimentalConfig(**options)
