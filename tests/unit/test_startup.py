"""What a person sees of an interpreter that starts with the package installed."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from sandbox import Sandbox, write_files

from autoprof._startup import is_launcher, new_run_id

ON = {"ACCELPROF_ENABLE": "1"}
FINDERS = "import sys; print(sum(type(finder).__module__ == 'autoprof._startup' for finder in sys.meta_path))"
CALLS = "from autoprof.agent.hooks import calls; print(*calls)"
BOTH = "accelerate.optimizer accelerate.accelerator"


def test_without_the_variable_nothing_of_ours_is_imported(sandbox: Sandbox) -> None:
    code = "import sys, accelerate; print([name for name in sys.modules if 'autoprof' in name])"
    assert sandbox.output(code, ACCELPROF_OUTPUT_DIR="/somewhere") == "[]"


@pytest.mark.parametrize("value", ["", "0", "false", "No", "OFF", " 0 "])
def test_a_value_that_means_no_arms_nothing(sandbox: Sandbox, value: str) -> None:
    code = f"{FINDERS}; import os; print(os.environ.get('KINETO_LOG_LEVEL'))"
    assert sandbox.output(code, ACCELPROF_ENABLE=value) == "0\nNone"


@pytest.mark.parametrize(
    "variables", [{"ACCELPROF_ENABLE": "1"}, {"ACCELPROF_ENABLE": "maybe"}, {"ACCELPROF_ENABEL": "1"}]
)
def test_any_other_value_arms_and_so_does_a_misspelt_name(
    sandbox: Sandbox, variables: dict[str, str]
) -> None:
    assert sandbox.output(FINDERS, **variables) == "1"


def test_a_right_name_that_says_no_wins_over_a_misspelt_one(sandbox: Sandbox) -> None:
    assert sandbox.output(FINDERS, ACCELPROF_ENABLE="0", ACCELPROF_ENABLED="1") == "0"


def test_armed_process_that_never_imports_accelerate_imports_two_small_modules(sandbox: Sandbox) -> None:
    code = "import sys; print(*sorted(sys.modules))"
    added = set(sandbox.output(code, **ON).split()) - set(sandbox.output(code).split())
    assert added == {"autoprof", "autoprof._startup"}


def test_armed_one_liner_prints_nothing_and_writes_nothing(sandbox: Sandbox) -> None:
    before = sorted(sandbox.path.rglob("*"))
    result = sandbox.run("pass", **ON)
    assert (result.stdout, result.stderr) == ("", "")
    assert sorted(sandbox.path.rglob("*")) == before


@pytest.mark.parametrize(("flag", "finders"), [("-E", "1"), ("-I", "1"), ("-s", "1"), ("-S", "0")])
def test_flags_that_keep_the_pth_file_and_one_that_does_not(
    sandbox: Sandbox, flag: str, finders: str
) -> None:
    assert sandbox.output(FINDERS, flag, **ON) == finders


def test_arming_again_changes_nothing(sandbox: Sandbox) -> None:
    assert sandbox.output(f"from autoprof._startup import arm; arm(); arm(); {FINDERS}", **ON) == "1"


def test_hooks_see_each_module_once_after_its_execution(sandbox: Sandbox) -> None:
    code = f"""
        import accelerate, accelerate.optimizer, accelerate.other
        from accelerate import accelerator, optimizer
        {CALLS}
        print(accelerator.patched, optimizer.patched, hasattr(accelerate.other, "patched"))
    """
    assert sandbox.output(code, **ON) == f"{BOTH}\n1 1 False"


def test_a_module_looks_as_it_does_without_us(sandbox: Sandbox) -> None:
    code = """
        import inspect, sys
        from accelerate import accelerator, optimizer
        print("autoprof.agent.hooks" in sys.modules, file=sys.stderr)
        print(accelerator.seen)
        for module in (accelerator, optimizer):
            spec = module.__spec__
            print(repr(module), spec, type(spec.loader), type(module.__loader__))
            print(spec.loader is module.__loader__)
            print(vars(spec).keys(), module.__file__, module.__cached__, module.__package__)
            print(inspect.getsource(module), inspect.getmodule(module))
    """
    without, armed = (sandbox.run(code, PYTHONHASHSEED="0", **variables) for variables in ({}, ON))
    assert (without.stderr, armed.stderr) == ("False\n", "True\n")
    assert _no_addresses(armed.stdout) == _no_addresses(without.stdout)


def _no_addresses(text: str) -> list[str]:
    return [word for word in text.split() if not word.startswith("0x")]


def test_a_reloaded_module_is_hooked_again(sandbox: Sandbox) -> None:
    code = f"""
        import importlib
        from accelerate import optimizer
        importlib.reload(optimizer)
        {CALLS}
        print(type(optimizer.__spec__.loader).__name__, type(optimizer.__loader__).__name__)
    """
    assert sandbox.output(code, **ON) == f"{BOTH} accelerate.optimizer\nSourceFileLoader SourceFileLoader"


def test_a_module_that_was_removed_is_hooked_again(sandbox: Sandbox) -> None:
    code = f"""
        import sys, accelerate
        for name in [name for name in sys.modules if name.startswith("accelerate")]:
            del sys.modules[name]
        import accelerate
        {CALLS}
    """
    assert sandbox.output(code, **ON) == f"{BOTH} {BOTH}"


def test_accelerate_in_a_zip_file_is_hooked(sandbox: Sandbox) -> None:
    package = sandbox.path / "packages/accelerate"
    archive = sandbox.path / "accelerate.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for path in package.glob("*.py"):
            zipped.write(path, f"accelerate/{path.name}")
    shutil.rmtree(package)
    code = f"from accelerate import accelerator; print(type(accelerator.__loader__).__name__); {CALLS}"
    assert sandbox.output(code, path=[archive], **ON) == f"zipimporter\n{BOTH}"


def test_looking_for_accelerate_does_not_wake_the_agent(sandbox: Sandbox) -> None:
    code = """
        import sys, importlib.util, pkgutil
        print(importlib.util.find_spec("accelerate").name)
        print([module.name for module in pkgutil.iter_modules() if module.name == "accelerate"])
        print([name for name in sys.modules if name.startswith(("accelerate", "autoprof.agent"))])
    """
    assert sandbox.output(code, **ON) == "accelerate\n['accelerate']\n[]"


def test_a_spec_that_is_only_looked_at_answers_like_any_other(sandbox: Sandbox) -> None:
    (sandbox.path / "packages/accelerate/__init__.py").write_text("")
    code = f"""
        import copy, importlib.abc, importlib.machinery, importlib.util
        spec = importlib.util.find_spec("accelerate.optimizer")
        for loader in (spec.loader, copy.copy(spec.loader)):
            print(isinstance(loader, importlib.machinery.SourceFileLoader), end=" ")
            print(isinstance(loader, importlib.abc.InspectLoader), end=" ")
            print(loader.is_package(spec.name), loader.get_source(spec.name), end="")
        {CALLS}
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        print(module.patched, type(spec.loader).__name__)
        from accelerate import optimizer
        {CALLS}
    """
    answer = "True True False class AcceleratedOptimizer: pass\n"
    expected = f"{answer}{answer}\n1 SourceFileLoader\naccelerate.optimizer accelerate.optimizer"
    assert sandbox.output(code, **ON) == expected


def test_a_lazily_loaded_module_is_hooked_when_it_is_used(sandbox: Sandbox) -> None:
    (sandbox.path / "packages/accelerate/__init__.py").write_text("")
    code = f"""
        import importlib.util, sys
        spec = importlib.util.find_spec("accelerate.optimizer")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        print("autoprof.agent.hooks" in sys.modules)
        module.AcceleratedOptimizer
        {CALLS}
        print(type(module.__loader__).__name__, type(module.__spec__.loader).__name__)
    """
    assert sandbox.output(code, **ON) == "False\naccelerate.optimizer\nSourceFileLoader SourceFileLoader"


def test_modules_imported_before_arming_are_hooked_at_once(sandbox: Sandbox) -> None:
    code = f"import accelerate; from autoprof._startup import arm; arm(); {CALLS}"
    assert sandbox.output(code, "-S", path=[sandbox.site_packages], **ON) == BOTH


ASKING_FINDER = f"""
    import sys
    class Asks:
        asked = []
        def find_spec(self, name, path=None, target=None):
            self.asked.append(name)
            others = [finder for finder in sys.meta_path if finder is not self]
            return next(filter(None, (other.find_spec(name, path, target) for other in others)), None)
    sys.meta_path.insert({{position}}, Asks())
    from accelerate import accelerator
    {CALLS}
    print(type(accelerator.__loader__).__name__, Asks.asked.count("accelerate.accelerator"))
    try:
        import accelerate.nowhere
    except ModuleNotFoundError as error:
        print(error)
"""


@pytest.mark.parametrize("position", [0, 1], ids=["in-front", "behind"])
def test_a_finder_that_asks_every_other_finder_gets_along_with_ours(sandbox: Sandbox, position: int) -> None:
    output = sandbox.output(ASKING_FINDER.format(position=position), **ON)
    assert output == f"{BOTH}\nSourceFileLoader 1\nNo module named 'accelerate.nowhere'"


def test_an_import_that_fails_fails_as_it_would_without_us(sandbox: Sandbox) -> None:
    (sandbox.path / "packages/accelerate/optimizer.py").write_text("import nowhere\n")
    code = """
        import sys
        for attempt in range(2):
            try:
                import accelerate
            except ModuleNotFoundError as error:
                print(error, [name for name in sys.modules if name.startswith(("accelerate", "autoprof.a"))])
    """
    assert (
        sandbox.output(code, **ON) == sandbox.output(code) == "\n".join(["No module named 'nowhere' []"] * 2)
    )


def test_a_fault_of_the_hooks_is_one_line_and_accelerate_works(sandbox: Sandbox) -> None:
    code = "from accelerate import Accelerator, optimizer; print('ok')"
    result = sandbox.run(code, FAKE_FAULT="ValueError('two\\nlines')", **ON)
    assert (result.stdout, result.stderr) == ("ok\n", "autoprof: not active: ValueError: two lines\n")


def test_hooks_that_cannot_be_imported_are_one_line_and_accelerate_works(sandbox: Sandbox) -> None:
    broken = write_files(
        sandbox.path / "broken", {"autoprof/__init__.py": "", "autoprof/agent/__init__.py": ""}
    )
    shutil.copy(sandbox.site_packages / "autoprof/_startup.py", broken / "autoprof")
    result = sandbox.run("import accelerate; print('ok')", path=[broken], **ON)
    assert result.stdout == "ok\n"
    assert result.stderr.startswith("autoprof: not active: ImportError: cannot import name 'hooks'")
    assert result.stderr.count("\n") == 1


def test_a_fault_told_to_a_closed_stderr_leaves_the_status(sandbox: Sandbox) -> None:
    code = "import os; os.close(2); import accelerate; print('ok')"
    assert sandbox.run(code, FAKE_FAULT="OSError()", **ON).stdout == "ok\n"


def test_a_fault_with_nobody_to_tell_does_no_harm(sandbox: Sandbox) -> None:
    command = f"'{sandbox.python}' -c 'import accelerate; print(1)' 2>&-"
    environ = {"PYTHONPATH": str(sandbox.path / "packages"), "FAKE_FAULT": "OSError()", **ON}
    result = subprocess.run(
        ["sh", "-c", command], env=environ, stdout=subprocess.PIPE, timeout=60, check=False
    )
    assert (result.returncode, result.stdout) == (0, b"1\n")


def test_hooks_may_end_the_process_for_strict_settings(sandbox: Sandbox) -> None:
    result = sandbox.run(
        "import accelerate; print('never')", FAKE_FAULT="SystemExit('autoprof: no')", rc=1, **ON
    )
    assert (result.stdout, result.stderr) == ("", "autoprof: no\n")


def test_torch_is_told_to_be_quiet_unless_the_user_chose(sandbox: Sandbox) -> None:
    code = "import os; print(os.environ['KINETO_LOG_LEVEL'])"
    assert sandbox.output(code, **ON) == "6"
    assert sandbox.output(code, KINETO_LOG_LEVEL="0", **ON) == "0"


# Threads. Every round imports all from scratch; a deadlock is caught by the time limit of the process.
IN_THREADS = """
    import importlib, sys, threading
    sys.setswitchinterval(1e-5)
    names = {names}
    for _ in range(20):
        for name in [name for name in sys.modules if name.startswith(("accelerate", "autoprof.agent"))]:
            del sys.modules[name]
        together = threading.Barrier(len(names))
        faults = set()
        def work(name):
            together.wait()
            try:
                importlib.import_module(name)
            except BaseException as error:
                faults.add(type(error).__name__)
        threads = [threading.Thread(target=work, args=[name], daemon=True) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        from accelerate import accelerator, optimizer
        print(accelerator.patched, optimizer.patched, *sorted(faults - {tolerated}))
"""


@pytest.mark.parametrize(
    "names",
    [
        ["accelerate", "accelerate.optimizer"],
        ["accelerate.optimizer", "accelerate.accelerator"],
        ["accelerate", "accelerate.optimizer", "accelerate.other", "accelerate.accelerator"] * 4,
    ],
    ids=["package-and-optimizer", "both-modules", "sixteen"],
)
def test_threads_that_import_parts_at_once_never_hang(sandbox: Sandbox, names: list[str]) -> None:
    # Python itself answers some of these races so, with no finder of anybody's in place.
    code = IN_THREADS.format(names=names, tolerated={"_DeadlockError", "ImportError", "KeyError"})
    assert sandbox.output(code, **ON).splitlines() == ["1 1"] * 20


def test_sixteen_threads_that_import_accelerate_at_once_all_succeed(sandbox: Sandbox) -> None:
    code = IN_THREADS.format(names=["accelerate"] * 16, tolerated="set()")
    assert sandbox.output(code, **ON).splitlines() == ["1 1"] * 20


# The launcher and the run id that its ranks inherit.
@pytest.mark.parametrize(
    "command",
    [
        "python /venv/bin/accelerate launch train.py",
        "python /venv/bin/accelerate launch --num_processes 2 train.py",
        "python -u /venv/bin/accelerate-launch train.py",
        "python -X importtime -W ignore /venv/bin/torchrun train.py",
        "python -Xdev /venv/bin/deepspeed train.py",
        "python -m accelerate.commands.launch train.py",
        "python -um accelerate.commands.accelerate_cli launch train.py",
        "python -mtorch.distributed.run train.py",
        "python --check-hash-based-pycs always -m torch.distributed.launch train.py",
    ],
)
def test_a_launcher_is_known_by_its_command_line(command: str) -> None:
    assert is_launcher(command.split())


@pytest.mark.parametrize(
    "command",
    [
        "python",
        "python -i",
        "python -",
        "python -m",
        "python train.py torchrun",
        "python train.py -m torch.distributed.run",
        "python -c code torchrun",
        "python -uc code -m torch.distributed.run",
        "python -m pip install accelerate launch",
        "python -W torchrun train.py",
        "python /venv/bin/accelerate config",
        "python /venv/bin/accelerate",
        "python -m accelerate.commands.accelerate_cli test",
        "python torchrun.py",
    ],
)
def test_anything_else_is_no_launcher(command: str) -> None:
    assert not is_launcher(command.split())


def test_run_ids_do_not_repeat() -> None:
    assert len({new_run_id() for _ in range(50)}) == 50


RUN_ID = "import os; print(os.environ.get('_ACCELPROF_RUN_ID'))"


def _torchrun(sandbox: Sandbox, code: str) -> list[str]:
    path = sandbox.path / "torchrun"
    path.write_text(code)
    return [str(path), "train.py"]


def test_a_launcher_makes_one_run_id_that_its_ranks_inherit(sandbox: Sandbox) -> None:
    rank = f"subprocess.run([sys.executable, '-c', {RUN_ID!r}])"
    launcher = _torchrun(sandbox, f"import subprocess, sys\nfor _ in range(2): {rank}")
    first, second = sandbox.output(launcher, **ON).split()
    assert first == second
    assert first.replace("-", "").isalnum()
    assert first not in sandbox.output(launcher, **ON)


def test_only_an_armed_launcher_without_a_run_id_makes_one(sandbox: Sandbox) -> None:
    launcher = _torchrun(sandbox, RUN_ID)
    assert sandbox.output(launcher) == "None"
    assert sandbox.output(launcher, ACCELPROF_RUN_ID="mine", **ON) == "None"
    assert sandbox.output(launcher, _ACCELPROF_RUN_ID="outer", **ON) == "outer"
    assert sandbox.output(RUN_ID, **ON) == "None"
    assert (
        sandbox.output(launcher, ACCELPROF_RUN_ID="", **ON) != "None"
    )  # empty is how a job config says unset


def test_the_start_file_names_what_the_pth_file_calls(sandbox: Sandbox) -> None:
    repository = Path(__file__).resolve().parents[2]
    module, function = (repository / "accelerate_autoprof.start").read_text().strip().split(":")
    code = f"import importlib; getattr(importlib.import_module({module!r}), {function!r})(); {FINDERS}"
    assert sandbox.output(code, "-S", path=[sandbox.site_packages], **ON) == "1"
