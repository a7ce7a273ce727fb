"""Every patch of Accelerate and torch, and nothing else.

Hooks time what they wrap, tell the agent what happened and pass everything else through. They ask first
whether Dynamo is tracing (see dynamo.py).
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from time import perf_counter
from types import ModuleType
from typing import Any

from autoprof.agent import dynamo, guard
from autoprof.agent.agent import Agent
from autoprof.agent.recorder import drive, driving
from autoprof.settings import resolve

_MARK = "_autoprof_wrapped"

Call = Callable[..., Any]

_PHASES = ("clip_grad_norm_", "clip_grad_value_", "gather_for_metrics", "save_state", "load_state")
"""Methods of an Accelerator that get a range in the trace, beside those that end steps."""

_optimizers: dict[int, weakref.ref[Any]] = {}
"""Every optimizer that exists, prepared or not, each once, by its ``id``: it may have a hash of its own."""
_accelerators: dict[int, weakref.ref[Any]] = {}
"""Every Accelerator that exists, in the same way."""
_with_megatron = False
"""Whether an engine of Megatron-LM has stepped."""


class _Calls:
    """The calls that one thread is inside of."""

    __slots__ = ("depth", "stepped")

    def __init__(self) -> None:
        self.depth = 0
        """How many of them have optimizer steps of their own that are part of them."""
        self.stepped = False
        """Whether an optimizer has stepped inside the latest backward, as gradient hooks may have it do."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.calls = _Calls()


_thread = _Thread()
_backwards: list[_Calls] = []  # of the threads that are inside ``Accelerator.backward``
_agent: Agent | None = None
_is_compiling: Callable[[], bool] = bool  # torch's own, both, once torch is there
_is_grad_enabled: Callable[[], bool] = bool


def install(module: ModuleType) -> None:
    """Patch a module of Accelerate that has just been executed. What is patched already is left alone.

    The two modules come one after the other, whatever the threads that import them:
    ``accelerate.accelerator`` imports ``accelerate.optimizer``.

    Raises:
        SystemExit: a setting cannot be used and ``ACCELPROF_STRICT`` is on.
    """
    global _agent, _is_compiling, _is_grad_enabled  # noqa: PLW0603  one agent per process
    if _agent is None:
        import torch

        _is_compiling, _is_grad_enabled = _find_is_compiling(), torch.is_grad_enabled
        _hide_from_dynamo()
        resolved = resolve(os.environ)
        if resolved.problems and resolved.settings.strict:
            raise SystemExit("\n".join(f"autoprof: {problem}" for problem in resolved.problems))
        _agent = Agent(resolved, lambda: len(_optimizers))
    try:
        if module.__name__ == "accelerate.optimizer":
            _install_optimizer(module)
        elif module.__name__ == "accelerate.accelerator":
            _install_accelerator(module)
    except BaseException:
        _agent.retire()  # half the hooks would tell half the truth
        raise


def _install_optimizer(module: ModuleType) -> None:
    import torch
    from torch.autograd import profiler_legacy

    _wrap(module.AcceleratedOptimizer, "__init__", _around(_optimizer_built))
    _wrap(module.AcceleratedOptimizer, "step", _optimizer_step)
    profiler = torch.autograd.profiler
    _wrap(profiler.profile, "_prepare_trace", _around(_profiler_starting))
    others = (profiler.emit_nvtx, profiler.emit_itt, profiler_legacy.profile)
    for cls in others:
        _wrap(cls, "__enter__", _around(_profiler_starting))
    for cls in (profiler.profile, *others):
        _wrap(cls, "__exit__", _around(_profiler_stopped))
    base = torch.optim.Optimizer
    _wrap(base, "_patch_step_function", _around(_torch_optimizer_built))
    for cls in _subclasses(base):
        if getattr(cls.__dict__.get("step"), "hooked", False):
            _wrap(cls, "step", _foreign_step)


def _install_accelerator(module: ModuleType) -> None:
    from accelerate import data_loader

    _wrap(module.Accelerator, "__init__", _around(_accelerator_built))
    _wrap(module.Accelerator, "backward", _backward)
    for name in _PHASES:
        if hasattr(module.Accelerator, name):
            _wrap(module.Accelerator, name, _phase(f"Accelerator.{name}"))
    if (scheduler := getattr(module, "AcceleratedScheduler", None)) is not None:
        _wrap(scheduler, "step", _phase("AcceleratedScheduler.step"))
    for cls in (data_loader.DataLoaderShard, data_loader.DataLoaderDispatcher):
        _wrap(cls, "__iter__", _around(_iterate))
    try:
        from accelerate.utils.megatron_lm import MegatronEngine
    except ImportError:  # this Accelerate does not know it
        return
    _wrap(MegatronEngine, "train_step", _around(_engine_step))


def _hide_from_dynamo() -> None:
    # The hooks that come through `_around`; `_wrap` hides what it puts in place itself.
    for hook in (
        _accelerator_built,
        _optimizer_built,
        _torch_optimizer_built,
        _engine_step,
        _iterate,
        _batches,
    ):
        dynamo.hide(hook.__code__, callees=False)
    for event in guard.ENTRIES.values():  # one code object, shared by all
        dynamo.hide(event.__code__, callees=True)


@dynamo.run_while_tracing
def _note_compiled_step() -> bool:
    """Runs when Dynamo takes a step into a graph: from then on no hook sees that step."""
    if _agent is not None:
        _agent.step_compiled()
    return True


# Hooks: each calls what it stands for, exactly once, and tells the agent.


def _accelerator_built(wrapped: Call, args: Any, kwargs: Any) -> Any:
    result = wrapped(*args, **kwargs)
    if _agent is not None and _agent.live:
        _register_accelerator(_instance(args, kwargs))
        _agent.accelerator_built()
    return result


def _optimizer_built(wrapped: Call, args: Any, kwargs: Any) -> Any:
    result = wrapped(*args, **kwargs)
    if _agent is not None and _agent.live:
        _register_prepared(_instance(args, kwargs))
    return result


def _torch_optimizer_built(wrapped: Call, args: Any, kwargs: Any) -> Any:
    result = wrapped(*args, **kwargs)
    if _agent is not None and _agent.live:
        _register_foreign(_instance(args, kwargs))
    return result


@guard.entry
def _register_accelerator(instance: Any) -> None:
    _register(_accelerators, instance)


@guard.entry
def _register_prepared(instance: Any) -> None:
    _register(_optimizers, getattr(instance, "optimizer", instance))


@guard.entry
def _register_foreign(instance: Any) -> None:
    _register(_optimizers, instance)
    _wrap(type(instance), "step", _foreign_step)


def _register(registry: dict[int, weakref.ref[Any]], instance: Any) -> None:
    key = id(instance)
    try:
        registry[key] = weakref.ref(instance, lambda _: registry.pop(key, None))
    except TypeError:  # some engine's optimizer that cannot be referred to weakly
        return


# The next three are in every step of a job: they make no call that they do not need, and are entry points
# written out, without the call that `guard.entry` takes.


def _backward(original: Call) -> Call:
    def backward(*args: Any, **kwargs: Any) -> Any:
        if _is_compiling():
            return original(*args, **kwargs)
        agent = _agent
        if agent is None or not agent.live or not (args or "self" in kwargs):
            return original(*args, **kwargs)
        instance = args[0] if args else kwargs["self"]
        calls = _thread.calls
        synced = True
        try:
            synced = instance.gradient_state.sync_gradients
        except Exception as error:  # noqa: BLE001
            guard.caught("hooks._backward", error)
        calls.stepped = False
        calls.depth += 1
        _backwards.append(calls)
        try:
            if agent.recording:
                with _Range("Accelerator.backward"):
                    result = original(*args, **kwargs)
            else:
                result = original(*args, **kwargs)
        finally:
            calls.depth -= 1
            _backwards.remove(calls)
        try:
            if calls.stepped or _with_megatron or "deepspeed_engine_wrapped" in instance.__dict__:
                _after_odd_backward(agent, instance, synced, calls.stepped)
            else:
                agent.backward(synced)
        except Exception as error:  # noqa: BLE001
            guard.caught("hooks._backward", error)
        return result

    return backward


def _optimizer_step(original: Call) -> Call:
    def step(*args: Any, **kwargs: Any) -> Any:
        if _is_compiling():
            _note_compiled_step()
            return original(*args, **kwargs)
        agent, calls = _agent, _thread.calls
        if agent is None or not agent.live or ((calls.depth or _backwards) and _is_nested(calls)):
            return original(*args, **kwargs)
        if not (args or "self" in kwargs):
            return original(*args, **kwargs)
        instance = args[0] if args else kwargs["self"]
        synced = True
        try:
            synced = instance.gradient_state.sync_gradients
        except Exception as error:  # noqa: BLE001
            guard.caught("hooks._optimizer_step", error)
        calls.depth += 1
        began = perf_counter()
        try:
            if agent.recording:
                with _Range("AcceleratedOptimizer.step"):
                    result = original(*args, **kwargs)
            else:
                result = original(*args, **kwargs)
        finally:
            calls.depth -= 1
        now = perf_counter()
        try:
            agent.optimizer_step(id(instance.optimizer), synced, instance.step_was_skipped, now - began, now)
        except Exception as error:  # noqa: BLE001
            guard.caught("hooks._optimizer_step", error)
        return result

    return step


def _foreign_step(original: Call) -> Call:
    def step(*args: Any, **kwargs: Any) -> Any:
        if _is_compiling():
            _note_compiled_step()
            return original(*args, **kwargs)
        agent, calls = _agent, _thread.calls
        if calls.depth and not _backwards:  # inside a prepared one, nearly always
            return original(*args, **kwargs)
        if agent is None or not agent.live or ((calls.depth or _backwards) and _is_nested(calls)):
            return original(*args, **kwargs)
        calls.depth += 1
        began = perf_counter()
        try:
            result = original(*args, **kwargs)
        finally:
            calls.depth -= 1
        _after_engine_step(agent, _instance(args, kwargs), perf_counter() - began)
        return result

    return step


@guard.entry
def _is_nested(calls: _Calls) -> bool:
    """Say whether an optimizer's step that begins here is part of a call that is being watched."""
    # On a GPU, gradient hooks run on a thread of autograd's own, which Python knows as a dummy.
    if not calls.depth and not isinstance(threading.current_thread(), threading._DummyThread):
        return False
    if _backwards:
        _backwards[-1].stepped = True
    return True


@guard.entry
def _after_engine_step(agent: Agent, instance: Any, seconds: float) -> None:
    agent.optimizer_step(id(instance), True, False, seconds)


def _after_odd_backward(agent: Agent, instance: Any, synced: bool, stepped: bool) -> None:
    kind = instance.distributed_type.value
    if kind == "MEGATRON_LM":  # accelerate/accelerator.py: does nothing; the engine's train_step is the step
        return
    agent.backward(synced)
    if kind == "DEEPSPEED":  # accelerate/utils/deepspeed.py: where synced, the engine has stepped in there
        if synced:
            agent.optimizer_step(id(instance.deepspeed_engine_wrapped.engine), True, False, 0.0)
    elif stepped:
        agent.optimizer_step(id(instance), True, False, 0.0)


def _phase(name: str) -> Callable[[Call], Call]:
    """Make a hook for :func:`_wrap` that gives the call a range in the trace."""

    def hook(original: Call) -> Call:
        def phase(*args: Any, **kwargs: Any) -> Any:
            if _is_compiling() or _agent is None or not _agent.recording:
                return original(*args, **kwargs)
            with _Range(name):
                return original(*args, **kwargs)

        return phase

    return hook


def _engine_step(wrapped: Call, args: Any, kwargs: Any) -> Any:
    global _with_megatron  # noqa: PLW0603
    agent, calls = _agent, _thread.calls
    if agent is None or not agent.live:
        return wrapped(*args, **kwargs)
    _with_megatron = True
    calls.depth += 1
    began = perf_counter()
    try:
        result = wrapped(*args, **kwargs)
    finally:
        calls.depth -= 1
    _after_engine_step(agent, _instance(args, kwargs), perf_counter() - began)
    return result


def _iterate(wrapped: Call, args: Any, kwargs: Any) -> Any:
    iterator = wrapped(*args, **kwargs)
    agent = _agent
    if agent is None or not agent.live:
        return iterator
    return _batches(agent, id(_instance(args, kwargs)), iterator)


def _batches(agent: Agent, key: int, iterator: Iterator[Any]) -> Iterator[Any]:
    while agent.live:
        _batch_wanted(agent, key)
        began = perf_counter()
        try:
            if agent.recording:
                with _Range("waiting for data"):
                    batch = next(iterator)
            else:
                batch = next(iterator)
        except StopIteration:
            return
        _batch(agent, key, perf_counter() - began)
        yield batch
        del batch  # the loader drops its own reference here too, before it fetches the next one
    yield from iterator


@guard.entry
def _batch_wanted(agent: Agent, key: int) -> None:
    agent.batch_wanted(key, _is_evaluating)


@guard.entry
def _batch(agent: Agent, key: int, waited_s: float) -> None:
    agent.batch(key, waited_s, _is_evaluating)


def _is_evaluating() -> bool:
    """Say whether the loop that asks for a batch evaluates: no gradients, or no model in training mode."""
    if not _is_grad_enabled():
        return True
    accelerators = [found for reference in list(_accelerators.values()) if (found := reference()) is not None]
    models = [model for accelerator in accelerators for model in accelerator._models]
    return bool(models) and not any(model.training for model in models)


def _profiler_starting(wrapped: Call, args: Any, kwargs: Any) -> Any:
    enabled = getattr(_instance(args, kwargs), "enabled", True)
    if enabled and _agent is not None and _agent.live and not driving.ours:
        _agent.profiler_starting(_instance(args, kwargs))
    return wrapped(*args, **kwargs)


def _profiler_stopped(wrapped: Call, args: Any, kwargs: Any) -> Any:
    try:
        return wrapped(*args, **kwargs)
    finally:
        if _agent is not None and _agent.live and not driving.ours:
            _agent.profiler_stopped(_instance(args, kwargs))


# Tools.


def _wrap(owner: type[Any], name: str, hook: Callable[[Call], Call]) -> None:
    """Put ``hook(original)`` in the place of a method.

    The replacement is a plain function. A proxy would not pickle, would hide an inherited docstring, and a
    learning-rate scheduler, which takes ``step.__func__`` and calls that (torch/optim/lr_scheduler.py),
    would find what lies below it.
    """
    original = getattr(owner, name)
    if getattr(original, _MARK, False):
        return
    hooked = functools.wraps(original)(hook(original))
    dynamo.hide(getattr(hooked, "__code__"), callees=False)  # noqa: B009  unknown to its type
    setattr(hooked, _MARK, True)
    setattr(owner, name, hooked)


def _around(hook: Callable[[Call, Any, Any], Any]) -> Callable[[Call], Call]:
    """Make a hook for :func:`_wrap` of a function that gets the original and the arguments of a call."""

    def wrap(original: Call) -> Call:
        def hooked(*args: Any, **kwargs: Any) -> Any:
            return hook(original, args, kwargs)

        return hooked

    return wrap


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    for child in cls.__subclasses__():
        yield child
        yield from _subclasses(child)


def _instance(args: Any, kwargs: Any) -> Any:
    return args[0] if args else kwargs.get("self")


class _Range:
    """A range of ours in the trace. What goes wrong with it stays with us."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._range: AbstractContextManager[Any] | None = None

    @guard.entry
    def __enter__(self) -> None:
        import torch

        with drive():
            self._range = torch.profiler.record_function(self._name)
            self._range.__enter__()

    @guard.entry
    def __exit__(self, *_: object) -> None:
        if self._range is not None:
            with drive():
                self._range.__exit__(None, None, None)


def _find_is_compiling() -> Callable[[], bool]:
    import torch

    found = getattr(getattr(torch, "compiler", None), "is_dynamo_compiling", None)
    return found or (lambda: False)  # an older torch
