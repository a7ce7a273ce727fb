"""The command line: one line for a mistake, and nothing heavy imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from autoprof import __version__
from autoprof.cli import COMMANDS, main
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


def test_a_folder_that_cannot_be_read_is_one_line(tmp_path, capsys, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(layout, "find_runs", refuse)
    assert main(["traces", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("autoprof traces: ")
    assert f"Permission denied: '{tmp_path}'" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(("arguments", "status"), [([], 2), (["nonsense"], 2), (["--version"], 0)])
def test_the_exit_status_of_a_command_line_that_runs_nothing(capsys, arguments, status):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == status
    captured = capsys.readouterr()
    assert (__version__ in captured.out) is (status == 0)
    assert ("usage: autoprof" in captured.err) is (status == 2)


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("    ")]
    assert [name for name in listed if name in COMMANDS] == list(COMMANDS)


def test_a_reader_that_has_gone_is_no_error_of_ours():
    reading, writing = os.pipe()
    os.close(reading)
    code = "import sys; from autoprof.cli import main; sys.exit(main(['settings']))"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    finished = subprocess.run(
        [sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, env=environment, check=False
    )
    os.close(writing)
    assert (finished.returncode, finished.stderr) == (141, b"")


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
