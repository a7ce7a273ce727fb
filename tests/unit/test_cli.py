"""The command line: one line for a mistake, and nothing heavy imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

from autoprof.cli import main
from autoprof.run import layout


def test_traces_lists_every_run_and_trace(tmp_path, capsys):
    folder = layout.capture_dir(tmp_path / "run-1", 7)
    folder.mkdir(parents=True)
    name = layout.trace_name(1, "host", 2, 3, gzip=True)
    (folder / name).write_bytes(b"x" * 2000)
    assert main(["traces", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert str(tmp_path / "run-1") in printed
    assert "from step 7  rank 1  2 kB" in printed


@pytest.mark.parametrize("folder", ["missing", "empty"])
def test_a_folder_without_runs_is_one_line(tmp_path, capsys, folder):
    (tmp_path / "empty").mkdir()
    assert main(["traces", str(tmp_path / folder)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("autoprof traces: ")
    assert captured.err.count("\n") == 1


def imported_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(*sys.modules, file=sys.stderr)"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(finished.stderr.split())


def test_the_package_alone_imports_none_of_its_rooms():
    assert {name for name in imported_by("import autoprof") if name.startswith("autoprof.")} <= {
        "autoprof._startup"
    }


def test_the_command_line_imports_nothing_heavy():
    loaded = imported_by(
        "from autoprof.cli import main\ntry: main(['settings', '--json'])\nexcept SystemExit: pass"
    )
    assert not {"torch", "accelerate", "wrapt", "numpy"} & loaded


def test_settings_clock_and_plan_import_the_standard_library_only():
    loaded = imported_by("import autoprof.settings, autoprof.agent.clock, autoprof.agent.plan")
    assert not {"torch", "accelerate", "wrapt", "numpy", "isal"} & loaded
