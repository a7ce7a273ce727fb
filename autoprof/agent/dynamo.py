"""Keeps torch.compile from seeing anything of ours.

A frame of ours that Dynamo compiled would cost compile time, add guards on our state and, folded to the
branch for tracing, lose events. Where Dynamo inlines a hook instead, the hook's first question
(``torch.compiler.is_compiling()``) folds to true and only the wrapped call remains.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any


def hide(code: CodeType, *, callees: bool) -> None:
    """Have Dynamo run frames of ``code`` as they are, and with ``callees`` all that they call too."""
    try:
        from torch._C._dynamo import eval_frame
    except ImportError:  # a torch without Dynamo
        return
    if hasattr(eval_frame, "set_code_exec_strategy"):
        action = eval_frame._FrameAction
        strategy = eval_frame._FrameExecStrategy(action.SKIP, action.SKIP if callees else action.DEFAULT)
        eval_frame.set_code_exec_strategy(code, strategy)
    elif hasattr(eval_frame, "skip_code"):  # before torch 2.7; callees are compiled there
        eval_frame.skip_code(code)


def run_while_tracing(function: Callable[[], Any]) -> Callable[[], Any]:
    """Have Dynamo call ``function`` while it traces, and put the result, a constant, in its place.

    What ``torch._dynamo.assume_constant_result`` does (torch/_dynamo/decorators.py), without the second
    that importing torch._dynamo takes.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
