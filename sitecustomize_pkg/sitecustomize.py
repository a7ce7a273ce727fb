"""Switches autoprof on where nothing can be installed: ``PYTHONPATH=<folder>/sitecustomize_pkg``.

Every interpreter that inherits PYTHONPATH runs this, older ones included. It imports what an interpreter has
loaded by itself and stands alone, so that the sitecustomize behind it runs even if autoprof is not there.
"""

import os
import sys
from _frozen_importlib import module_from_spec  # `importlib.util` adds almost half to an interpreter's start
from _frozen_importlib_external import PathFinder


def arm() -> None:
    """Arm the agent, from the folder that holds this one if no other has the package."""
    parent = os.path.dirname(os.path.dirname(__file__))
    try:
        try:
            from autoprof import _startup
        except ImportError:
            sys.path.append(parent)  # last: nothing that the job imports may come from here instead
            from autoprof import _startup
    except Exception as error:  # noqa: BLE001  the interpreter starts as it would without us
        say(f"not active: {type(error).__name__}: {error}")
        return
    _startup.arm()


def say(line: str) -> None:
    """Write one prefixed line to stderr, if there is one.

    Past the stream's buffer: what cannot be written from there makes the interpreter end with status 120.
    """
    try:
        os.write(sys.stderr.fileno(), f"autoprof: {line}\n".encode("utf-8", "backslashreplace"))
    except (AttributeError, OSError, ValueError):  # absent, full or closed: there is nobody to tell
        return


def run_shadowed() -> None:
    """Run the sitecustomize that would have run without us. What it raises is site.py's to handle."""
    here = os.path.dirname(__file__)
    behind = sys.path[sys.path.index(here) + 1 :] if here in sys.path else sys.path
    spec = PathFinder.find_spec("sitecustomize", [entry for entry in behind if entry != here])
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if any(name.startswith("ACCELPROF_EN") for name in os.environ):
    arm()
run_shadowed()
