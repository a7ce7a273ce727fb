"""Looks at an interpreter from inside and prints one JSON object. `autoprof check` runs its source there.

Runs with any flags and without the package on the path: it imports ours only where they can be imported.
"""

import json
import os
import sys


def interpreter():
    """Describe what the interpreter has read at its start."""
    import site

    folders = [path for path in sys.path if os.path.isdir(path)]
    name = "accelerate_autoprof.pth"
    sitecustomize = sys.modules.get("sitecustomize")
    shadowed = [path for path in folders if os.path.isfile(os.path.join(path, "sitecustomize.py"))]
    return {
        "executable": sys.executable,
        "version": sys.version.split()[0],
        "flags": {
            flag: bool(getattr(sys.flags, flag)) for flag in ("no_site", "isolated", "ignore_environment")
        },
        "user_site": bool(getattr(site, "ENABLE_USER_SITE", False)),
        "pth": [os.path.join(path, name) for path in folders if os.path.isfile(os.path.join(path, name))],
        "sitecustomize": getattr(sitecustomize, "__file__", None),
        "sitecustomize_on_path": [os.path.join(path, "sitecustomize.py") for path in shadowed],
        "armed": any(type(finder).__module__ == "autoprof._startup" for finder in sys.meta_path),
    }


def versions_and_hooks():
    """Import Accelerate as a job would and describe what the agent found."""
    found: dict[str, object] = {"versions": {}, "devices": [], "activities": [], "hooks": {}, "problem": None}
    try:
        import accelerate
        import torch
    except Exception as error:
        found["problem"] = f"{type(error).__name__}: {error}"
        return found
    found["versions"] = {"torch": torch.__version__, "accelerate": accelerate.__version__}
    if torch.cuda.is_available():
        found["devices"] = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    found["hooks"] = {name: hasattr(target, "_autoprof_wrapped") for name, target in targets().items()}
    try:
        from autoprof.agent.recorder import present_activities
        from autoprof.settings import resolve

        present, absent = present_activities(resolve(os.environ).settings)
        found["activities"], found["activities_absent"] = present, absent
    except ImportError:
        found["problem"] = "autoprof cannot be imported there"
    return found


def targets():
    """Return what the agent patches, by name."""
    import torch
    from accelerate import Accelerator, data_loader, optimizer

    return {
        "Accelerator.backward": Accelerator.backward,
        "AcceleratedOptimizer.step": optimizer.AcceleratedOptimizer.step,
        "DataLoaderShard.__iter__": data_loader.DataLoaderShard.__iter__,
        "DataLoaderDispatcher.__iter__": data_loader.DataLoaderDispatcher.__iter__,
        "torch.optim.Optimizer": torch.optim.Optimizer._patch_step_function,
        "torch.profiler.profile": torch.autograd.profiler.profile._prepare_trace,
    }


if __name__ == "__main__":
    print(json.dumps(interpreter() | versions_and_hooks()))
