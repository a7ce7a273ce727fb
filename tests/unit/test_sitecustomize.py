"""What a person sees when PYTHONPATH=<folder>/sitecustomize_pkg is all the set-up there is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from sandbox import REPOSITORY, Sandbox, make_venv, pythons, write_files

ON = {"ACCELPROF_ENABLE": "1"}
FINDERS = "import sys; print(sum(type(finder).__module__ == 'autoprof._startup' for finder in sys.meta_path))"
USERS = "print('sitecustomize of the user')\n"


@pytest.fixture(scope="module", params=list(pythons()))
def empty_venv(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    return make_venv(tmp_path_factory.mktemp("venv"), pythons()[request.param])


@pytest.fixture
def bare(empty_venv: tuple[str, Path], tmp_path: Path) -> Sandbox:
    """An interpreter that has nothing of ours installed."""
    return Sandbox(*empty_venv, tmp_path)


def _target(directory: Path) -> Path:
    """Lay out what `pip install --target` would, and return what goes into PYTHONPATH."""
    for name in ("autoprof/__init__.py", "autoprof/_startup.py", "sitecustomize_pkg/sitecustomize.py"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, directory / name)
    return directory / "sitecustomize_pkg"


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    return _target(tmp_path / "target")


@pytest.fixture
def users(tmp_path: Path) -> Path:
    return write_files(tmp_path / "user", {"sitecustomize.py": USERS})


def test_pythonpath_alone_arms_and_adds_its_folder_last(bare: Sandbox, ours: Path) -> None:
    output = bare.output(f"{FINDERS}; print(sys.path[-1])", path=[ours], **ON)
    assert output == f"1\n{ours.parent}"


def test_a_relative_path_is_good_enough(bare: Sandbox, ours: Path) -> None:
    assert bare.output(FINDERS, path=[ours.relative_to(bare.path)], **ON) == "1"


def test_an_armed_process_imports_two_modules_and_the_sitecustomize(bare: Sandbox, ours: Path) -> None:
    code = "import sys; print(*sorted(sys.modules))"
    added = set(bare.output(code, path=[ours], **ON).split()) - set(bare.output(code).split())
    assert added == {"autoprof", "autoprof._startup", "sitecustomize"}


def test_without_the_variable_nothing_else_of_ours_is_imported(bare: Sandbox, ours: Path) -> None:
    code = "import sys; print(sys.path); print(*sorted(sys.modules))"
    path, modules = bare.output(code, path=[ours]).splitlines()
    bare_path, bare_modules = bare.output(code, path=[bare.path]).splitlines()
    assert path == bare_path.replace(repr(str(bare.path)), repr(str(ours)))
    assert set(modules.split()) - set(bare_modules.split()) == {"sitecustomize"}


def test_the_package_that_is_installed_wins_over_the_one_beside_us(sandbox: Sandbox, ours: Path) -> None:
    output = sandbox.output(
        f"{FINDERS}; import autoprof; print(autoprof.__file__, sys.path[-1])", path=[ours], **ON
    )
    installed = sandbox.site_packages
    assert output == f"1\n{installed / 'autoprof/__init__.py'} {installed}"


@pytest.mark.parametrize("variables", [{}, ON], ids=["off", "on"])
@pytest.mark.parametrize("ours_first", [True, False])
def test_the_users_own_runs_exactly_once_in_either_order(
    bare: Sandbox, ours: Path, users: Path, variables: dict[str, str], ours_first: bool
) -> None:
    path = [ours, users] if ours_first else [users, ours]
    code = "import sys; print(sys.modules['sitecustomize'].__file__)"
    expected = f"sitecustomize of the user\n{users / 'sitecustomize.py'}"
    assert bare.output(code, path=path, **variables) == expected


def test_behind_the_users_own_ours_does_not_run(bare: Sandbox, ours: Path, users: Path) -> None:
    assert bare.output(FINDERS, path=[users, ours], **ON) == "sitecustomize of the user\n0"


def test_the_users_own_sees_itself_as_it_would_without_us(bare: Sandbox, ours: Path, users: Path) -> None:
    (users / "sitecustomize.py").write_text(
        "import sys, sitecustomize\n"
        "assert sitecustomize is sys.modules[__name__]\n"
        "print(__name__, __file__, __spec__, __package__ == '')\n"
        "sys.path.append('/added'); marker = 1\n"
    )
    code = "import sys, sitecustomize; print(sitecustomize.marker, '/added' in sys.path)"
    with_us = [
        line.partition(" object at ") for line in bare.output(code, path=[ours, users], **ON).splitlines()
    ]
    without = [line.partition(" object at ") for line in bare.output(code, path=[users]).splitlines()]
    assert [(before, after.partition(">")[2]) for before, _, after in with_us] == [
        (before, after.partition(">")[2]) for before, _, after in without
    ]


def test_only_the_first_one_behind_us_runs(bare: Sandbox, ours: Path, users: Path) -> None:
    other = write_files(bare.path / "other", {"sitecustomize.py": "print('never')"})
    assert bare.output("pass", path=[users.parent, ours, users, other], **ON) == "sitecustomize of the user"


@pytest.mark.parametrize(
    ("raised", "rc"),
    [
        ("RuntimeError('boom')", 0),
        ("ImportError('no', name='other')", 0),
        ("ImportError('no', name='sitecustomize')", 0),
        ("SystemExit(4)", 1),
    ],
)
def test_what_the_users_own_raises_ends_as_it_would_without_us(
    bare: Sandbox, ours: Path, users: Path, raised: str, rc: int
) -> None:
    (users / "sitecustomize.py").write_text(f"print('before', flush=True)\nraise {raised}\n")
    code = "import sys; print('job', 'sitecustomize' in sys.modules)"
    without = bare.run(code, path=[users], rc=rc)
    for variables in ({}, ON):
        with_us = bare.run(code, path=[ours, users], rc=rc, **variables)
        assert with_us.stdout == without.stdout
        assert with_us.stderr.splitlines()[-1:] == without.stderr.splitlines()[-1:]
        assert with_us.stderr.count("Error in sitecustomize") == without.stderr.count(
            "Error in sitecustomize"
        )


@pytest.mark.parametrize("arguments", [["-I"], ["-E"], ["-S"]])
def test_flags_that_switch_it_off(bare: Sandbox, ours: Path, users: Path, arguments: list[str]) -> None:
    assert bare.output(FINDERS, *arguments, path=[ours, users], **ON) == "0"


def test_no_user_site_keeps_it(bare: Sandbox, ours: Path, users: Path) -> None:
    assert bare.output(FINDERS, "-s", path=[ours, users], **ON) == "sitecustomize of the user\n1"


def test_without_the_package_one_line_says_so_and_the_users_own_runs(
    bare: Sandbox, ours: Path, users: Path
) -> None:
    shutil.rmtree(ours.parent / "autoprof")
    result = bare.run("print('job')", path=[ours, users], **ON)
    assert result.stdout == "sitecustomize of the user\njob\n"
    assert result.stderr == "autoprof: not active: ModuleNotFoundError: No module named 'autoprof'\n"
    assert bare.output("print('job')", path=[ours, users]) == "sitecustomize of the user\njob"


def test_a_missing_package_told_to_a_full_device_leaves_the_status(bare: Sandbox, ours: Path) -> None:
    shutil.rmtree(ours.parent / "autoprof")
    command = f"'{bare.python}' -c 'print(1)' 2> /dev/full"
    environ = {"PYTHONPATH": str(ours), **ON}
    finished = subprocess.run(["sh", "-c", command], env=environ, capture_output=True, check=False)
    assert (finished.returncode, finished.stdout) == (0, b"1\n")


def test_a_package_that_fails_to_load_is_one_line(bare: Sandbox, ours: Path, users: Path) -> None:
    (ours.parent / "autoprof/_startup.py").write_text("this is no Python\n")
    result = bare.run("print('job')", path=[ours, users], **ON)
    assert result.stdout == "sitecustomize of the user\njob\n"
    assert result.stderr.startswith("autoprof: not active: SyntaxError: ")
    assert result.stderr.count("\n") == 1


def test_two_copies_of_ours_and_a_link_to_one_arm_once_and_end(
    bare: Sandbox, ours: Path, users: Path
) -> None:
    second = _target(bare.path / "second")
    link = bare.path / "link"
    link.symlink_to(ours)
    output = bare.output(FINDERS, path=[ours, ours, link, second, ours, users], **ON)
    assert output == "sitecustomize of the user\n1"


def test_with_the_package_installed_as_well_the_finder_is_one(
    sandbox: Sandbox, ours: Path, users: Path
) -> None:
    output = sandbox.output(
        f"import accelerate; {FINDERS}; from autoprof.agent.hooks import calls; print(*calls)",
        path=[ours, users],
        **ON,
    )
    assert output == "sitecustomize of the user\n1\naccelerate.optimizer accelerate.accelerator"


def test_a_folder_called_sitecustomize_is_not_run(bare: Sandbox, ours: Path) -> None:
    folder = bare.path / "folder"
    (folder / "sitecustomize").mkdir(parents=True)
    assert bare.output(FINDERS, path=[ours, folder], **ON) == "1"


def test_a_sitecustomize_that_is_a_package_runs(bare: Sandbox, ours: Path) -> None:
    folder = write_files(bare.path / "folder", {"sitecustomize/__init__.py": "from . import inner\n"})
    write_files(folder, {"sitecustomize/inner.py": USERS})
    assert bare.output(FINDERS, path=[ours, folder], **ON) == "sitecustomize of the user\n1"


def test_children_inherit_it(bare: Sandbox, ours: Path, users: Path) -> None:
    child = f"subprocess.check_output([sys.executable, '-c', {FINDERS!r}], text=True)"
    output = bare.output(f"import subprocess, sys; print(repr({child}))", path=[ours, users], **ON)
    assert output == "sitecustomize of the user\n'sitecustomize of the user\\n1\\n'"
