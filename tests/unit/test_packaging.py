"""What each way of installing leaves behind, and what uninstalling leaves: builds with real pip and uv.

The build fetches hatchling unless it is installed beside pytest.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from sandbox import REPOSITORY, Sandbox, bare_environ, make_venv, pythons, write_files

ON = {"ACCELPROF_ENABLE": "1"}
FINDERS = "import sys; print(sum(type(finder).__module__ == 'autoprof._startup' for finder in sys.meta_path))"
SOURCES = ("autoprof", "sitecustomize_pkg", "accelerate_autoprof.pth", "accelerate_autoprof.start")
ISOLATION = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
UV = shutil.which("uv")


def _run(*command: str | Path) -> None:
    result = subprocess.run(command, env=bare_environ(), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def _pip(*arguments: str | Path) -> None:
    _run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources: nothing that a build does may reach the repository."""
    copy = tmp_path_factory.mktemp("source")
    for name in (*SOURCES, "pyproject.toml", "LICENSE"):
        if (REPOSITORY / name).is_dir():
            shutil.copytree(REPOSITORY / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(REPOSITORY / name, copy)
    return write_files(copy, {"README.md": "Required by the build.\n"})


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    _pip("wheel", "--no-deps", *ISOLATION, "--wheel-dir", directory, source)
    (path,) = directory.glob("*.whl")
    return path


@pytest.fixture(params=list(pythons()))
def venv(request: pytest.FixtureRequest, tmp_path: Path) -> Sandbox:
    return _venv(tmp_path, pythons()[request.param])


@pytest.fixture
def own_venv(tmp_path: Path) -> Sandbox:
    return _venv(tmp_path, sys.executable)


def _venv(directory: Path, python: str) -> Sandbox:
    return Sandbox(*make_venv(directory / "venv", python), directory)


def _files(venv: Sandbox) -> set[str]:
    """Every file that an installation may touch."""
    root = venv.path / "venv"
    # pip removes a site-packages that it has emptied, so folders do not count.
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def test_the_wheel_holds_the_two_start_up_files_at_its_root(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    roots = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert roots == set(SOURCES)
    assert "sitecustomize_pkg/sitecustomize.py" in names
    assert "autoprof/py.typed" in names
    assert {f"autoprof/report/assets/report.{kind}" for kind in ("html.j2", "css", "js")} <= set(names)


def test_the_pth_file_is_one_short_line_and_sorts_after_an_editable_install() -> None:
    (line,) = (REPOSITORY / "accelerate_autoprof.pth").read_text().splitlines()
    assert line.startswith("import ")
    assert len(line) < 120
    names = ["_editable_impl_accelerate_autoprof.pth", "__editable__.accelerate_autoprof.pth"]
    assert sorted([*names, "accelerate_autoprof.pth"])[-1] == "accelerate_autoprof.pth"


def test_an_installed_wheel_arms_and_uninstalls_without_a_trace(venv: Sandbox, wheel: Path) -> None:
    before = _files(venv)
    _pip("--python", venv.python, "install", "--no-deps", wheel)
    assert {"accelerate_autoprof.pth", "accelerate_autoprof.start"} <= set(os.listdir(venv.site_packages))
    assert venv.output(FINDERS, **ON) == "1"
    assert venv.output("import sys; print([name for name in sys.modules if 'autoprof' in name])") == "[]"
    assert (venv.path / "venv/bin/autoprof").is_file()
    _pip("--python", venv.python, "uninstall", "--yes", "accelerate-autoprof")
    assert _files(venv) == before
    assert venv.output(FINDERS, **ON) == "0"


def test_an_editable_install_arms_and_uninstalls_without_a_trace(own_venv: Sandbox, source: Path) -> None:
    before = _files(own_venv)
    _pip("--python", own_venv.python, "install", "--no-deps", "--editable", source)
    assert own_venv.output(FINDERS, **ON) == "1"
    assert own_venv.output("import autoprof; print(autoprof.__file__)") == str(
        source / "autoprof/__init__.py"
    )
    _pip("--python", own_venv.python, "uninstall", "--yes", "accelerate-autoprof")
    assert _files(own_venv) == before
    assert own_venv.output(FINDERS, **ON) == "0"


@pytest.mark.skipif(UV is None, reason="uv is not installed")
def test_an_editable_install_by_uv_arms_and_uninstalls_without_a_trace(
    own_venv: Sandbox, source: Path
) -> None:
    before = _files(own_venv)
    uv = (str(UV), "--quiet", "pip")
    _run(*uv, "install", "--python", own_venv.python, "--no-deps", "--editable", source)
    assert own_venv.output(FINDERS, **ON) == "1"
    _run(*uv, "uninstall", "--python", own_venv.python, "accelerate-autoprof")
    assert {name for name in _files(own_venv) if not name.endswith(".lock")} == before
    assert own_venv.output(FINDERS, **ON) == "0"


def test_a_target_folder_arms_through_its_sitecustomize_alone(venv: Sandbox, wheel: Path) -> None:
    target = venv.path / "target"
    _pip("--python", venv.python, "install", "--no-deps", "--target", target, wheel)
    assert venv.output(FINDERS, path=[target], **ON) == "0"  # Python reads no .pth file there
    assert venv.output(FINDERS, path=[target / "sitecustomize_pkg"], **ON) == "1"
    assert venv.output(FINDERS, path=[target, target / "sitecustomize_pkg"], **ON) == "1"
