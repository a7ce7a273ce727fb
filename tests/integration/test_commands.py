"""`autoprof check` and `autoprof run` on real interpreters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import SCRIPTS

AUTOPROF = Path(sys.executable).with_name("autoprof")


def autoprof(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ACCELPROF_")} | env
    return subprocess.run(
        [AUTOPROF, *arguments], env=environ, capture_output=True, text=True, timeout=200, check=False
    )


def test_check_tells_what_a_job_would_do(tmp_path):
    env = {"ACCELPROF_OUTPUT_DIR": str(tmp_path / "traces"), "ACCELPROF_STEPS": "4-6"}
    checked = autoprof("check", "--json", "--", sys.executable, "train.py", **env)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    report = json.loads(checked.stdout)
    assert report["profiled"]
    assert report["interpreter"]["armed"]
    assert all(report["interpreter"]["hooks"].values())
    assert report["interpreter"]["activities"] == ["cpu"]
    assert report["sources"]["ACCELPROF_STEPS"] == "environment"
    assert report["plan"] == "steps 4-6 of ranks all"
    assert report["output"]["free_bytes"] > 0
    assert not (tmp_path / "traces").exists()


@pytest.mark.parametrize(
    ("command", "env", "reason"),
    [
        ([sys.executable, "-S", "train.py"], {}, "-S, -I or -E"),
        ([sys.executable], {"ACCELPROF_ACTIVE": "0"}, "whole number of 1 or more"),
        ([sys.executable], {"ACCELPROF_ACTIVITIES": "hpu"}, "hpu, which this machine lacks"),
        ([sys.executable], {"ACCELPROF_OUTPUT_DIR": f"{__file__}/x"}, "is not a folder"),
    ],
)
def test_check_says_why_a_job_would_not_be_profiled(command, env, reason):
    checked = autoprof("check", "--", *command, **env)
    assert checked.returncode == 1
    assert reason in checked.stdout
    assert "Traceback" not in checked.stderr


def test_check_of_a_command_that_is_not_there():
    checked = autoprof("check", "--", "no-such-command")
    assert (checked.returncode, checked.stdout) == (1, "")
    assert checked.stderr == "autoprof check: 'no-such-command' is not a command that can be found\n"


def test_run_passes_the_exit_status_through(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = str(SCRIPTS / "ends.py")
    ended = autoprof(
        "run", "--steps", "4-6", "--output-dir", str(tmp_path), "--", sys.executable, script, "exit", "5"
    )
    assert ended.returncode == 3
    assert "recorded step 4 (partial: 4-6 was planned)" in ended.stderr


def test_run_passes_signals_through():
    code = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    assert autoprof("run", "--", sys.executable, "-c", code).returncode == -signal.SIGTERM


def test_run_refuses_what_the_job_would_refuse():
    refused = autoprof("run", "--active", "0", "--", sys.executable, "-c", "print('ran')")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "ACCELPROF_ACTIVE='0' is not usable" in refused.stderr
    assert autoprof("run").stderr.startswith("autoprof run: no command")
