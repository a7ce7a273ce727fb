"""Interpreters of every supported version, and an environment with a make-believe Accelerate to start in."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
STARTUP_FILES = ("autoprof/__init__.py", "autoprof/_startup.py", "accelerate_autoprof.pth")
TIMEOUT = 60
"""Seconds after which a process counts as hung."""

# Records what it is called with. FAKE_FAULT holds an expression for what `install` raises.
FAKE_HOOKS = """
import os
calls = []
def install(module):
    calls.append(module.__name__)
    if "FAKE_FAULT" in os.environ:
        raise eval(os.environ["FAKE_FAULT"])
    module.patched = getattr(module, "patched", 0) + 1
"""

# The shape that matters: __init__ imports accelerator, which imports optimizer.
FAKE_ACCELERATE = {
    "__init__.py": "from accelerate.accelerator import Accelerator\n",
    "accelerator.py": """
from .optimizer import AcceleratedOptimizer
seen = (type(__loader__).__name__, type(__spec__.loader).__name__, __loader__ is __spec__.loader)
class Accelerator: pass
""",
    "optimizer.py": "class AcceleratedOptimizer: pass\n",
    "other.py": "",
}


@functools.cache
def pythons() -> dict[str, str]:
    """Interpreters that run, by version: the one of this process and what the search path offers."""
    running = f"3.{sys.version_info.minor}"
    found = {running: sys.executable}
    for version in ("3.10", "3.11", "3.12", "3.13", "3.14", "3.15"):
        command = shutil.which(f"python{version}")
        if command is None or version == running:
            continue
        # A pyenv shim exists for interpreters that it then declines to run; this is how it picks one.
        environ = os.environ | {"PYENV_VERSION": version}
        probe = subprocess.run(
            [command, "-c", "import sys, venv; print(sys.executable)"],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        if probe.returncode == 0:
            found[version] = probe.stdout.strip()
    return dict(sorted(found.items()))


@functools.cache
def bare_environ() -> dict[str, str]:
    """This process's environment without what would change how an interpreter starts."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ACCELPROF"))}


def make_venv(directory: Path, python: str) -> tuple[str, Path]:
    """Create an empty virtual environment; return its interpreter and its site-packages."""
    subprocess.run([python, "-m", "venv", "--without-pip", directory], env=bare_environ(), check=True)
    interpreter = str(directory / "bin" / "python")
    where = [interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return interpreter, Path(subprocess.check_output(where, env=bare_environ(), text=True).strip())


def write_files(directory: Path, files: dict[str, str]) -> Path:
    """Write ``files`` by their relative names and return ``directory``."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return directory


@dataclass
class Sandbox:
    """A virtual environment that holds the start-up files and recording hooks in place of the real ones."""

    python: str
    site_packages: Path
    path: Path
    """The test's own folder: current directory, home, and where `accelerate` is imported from."""

    def run(
        self,
        code: str | list[str],
        *flags: str,
        path: list[Path] | None = None,
        rc: int = 0,
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run ``code`` (or a command line) and check its exit status.

        ``path`` becomes PYTHONPATH in front of the make-believe Accelerate.
        """
        command = [*flags, "-c", textwrap.dedent(code)] if isinstance(code, str) else code
        search = [*(path or []), self.path / "packages"]
        environ = bare_environ() | {"PYTHONPATH": os.pathsep.join(map(str, search)), "HOME": str(self.path)}
        result = subprocess.run(
            [self.python, *command],
            env=environ | variables,
            cwd=self.path,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert result.returncode == rc, result
        return result

    def output(
        self, code: str | list[str], *flags: str, path: list[Path] | None = None, **variables: str
    ) -> str:
        """Run ``code`` and return its stdout, having checked that it leaves stderr alone."""
        result = self.run(code, *flags, path=path, **variables)
        assert not result.stderr, result.stderr
        return result.stdout.strip()
