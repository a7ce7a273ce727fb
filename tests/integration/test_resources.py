"""Disks that are full, slow or gone cost a capture, never the job."""

from __future__ import annotations

import json
import subprocess

import pytest
from jobs import REPOSITORY, SCRIPTS, read_trace, step_numbers

TRAIN = REPOSITORY / "examples" / "train.py"


def mount(folder, *options):
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", *options, "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system takes root")


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    mount(folder, "-o", "size=64k")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def expected(launch):
    return launch(TRAIN, enable=False)


def check_job(outcome, expected):
    assert (outcome.status, outcome.stdout) == (0, expected.stdout), outcome.stderr
    assert not [line for line in outcome.said if "fault" in line]


def test_a_full_output_disk_keeps_the_raw_trace_and_says_where(launch, small_disk, tmp_path, expected):
    scratch = tmp_path / "scratch"
    env = {"ACCELPROF_OUTPUT_DIR": str(small_disk / "traces"), "ACCELPROF_SCRATCH_DIR": str(scratch)}
    outcome = launch(TRAIN, env=env)
    check_job(outcome, expected)
    line, last = (line for line in outcome.said if "could not be put into" in line)
    assert last.startswith("autoprof: nothing recorded: ")
    assert "No space left on device" in line
    (raw,) = scratch.iterdir()
    assert str(raw) in line
    assert read_trace(raw)["traceEvents"]
    assert not [path for path in small_disk.rglob("*") if path.name.endswith(".tmp")]


def test_a_full_scratch_disk_is_said(launch, small_disk, expected):
    outcome = launch(TRAIN, env={"ACCELPROF_SCRATCH_DIR": str(small_disk)})
    check_job(outcome, expected)
    assert f"steps 7-9 not recorded: {small_disk} has 0 MB free" in outcome.said[-1]
    assert outcome.traces == []


def test_a_file_size_limit_costs_the_capture_only(launch, tmp_path, expected):
    limited = "import resource, runpy, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    limited += "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)); sys.argv = sys.argv[1:]; "
    limited += "runpy.run_path(sys.argv[0], run_name='__main__')"
    outcome = launch("-c", limited, TRAIN)
    check_job(outcome, expected)
    assert len(outcome.said) >= 2


def test_a_run_directory_that_vanishes(launch, tmp_path, expected):
    code = (
        "import runpy, shutil, sys, torch\n"
        "sys.argv = sys.argv[1:]\n"
        "count = []\n"
        "def remove(*_):\n"
        "    count.append(1)\n"
        "    if len(count) == 6: shutil.rmtree('traces')\n"
        "from torch.optim.optimizer import register_optimizer_step_post_hook as hook\n"
        "hook(remove)\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    outcome = launch("-c", code, TRAIN)
    check_job(outcome, expected)
    assert len(outcome.traces) == 1  # made again


def test_an_output_disk_that_stalls_does_not_hold_the_job_beyond_the_bound(launch, expected):
    code = (
        "import os, runpy, sys, threading\n"
        "sys.argv = sys.argv[1:]\n"
        "rename = os.replace\n"
        "def stall(old, new):\n"
        "    return threading.Event().wait() if 'traces' in str(new) else rename(old, new)\n"
        "os.replace = stall\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    outcome = launch("-c", code, TRAIN, env={"ACCELPROF_EXIT_TIMEOUT": "1"})
    check_job(outcome, expected)
    assert "traces were still being written after 1 s (ACCELPROF_EXIT_TIMEOUT)" in outcome.said[-1]
    assert outcome.traces == []


def test_a_trace_path_that_is_too_long(launch, tmp_path, expected):
    outcome = launch(TRAIN, env={"ACCELPROF_OUTPUT_DIR": str(tmp_path / ("x" * 300))})
    check_job(outcome, expected)
    (line,) = outcome.said
    assert "File name too long" in line


def test_closed_stderr_is_no_reason_to_fail(launch, expected):
    finished = launch(
        "-c",
        "import os, runpy, sys; os.close(2); sys.argv = sys.argv[1:]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')",
        TRAIN,
    )
    assert (finished.status, finished.stdout) == (0, expected.stdout)
    assert len(finished.traces) == 1


PACED = SCRIPTS / "paced.py"


def test_a_capture_is_not_begun_where_memory_is_short(launch):
    code = (
        "import pathlib, runpy, sys\n"
        "from autoprof.agent import room\n"
        "pathlib.Path('meminfo').write_text('MemTotal: 900000 kB\\nMemAvailable: 100000 kB\\n')\n"
        "room._MEMINFO = pathlib.Path('meminfo')\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    outcome = launch("-c", code, PACED, 12, 0)
    assert (outcome.status, outcome.stdout) == (0, "trained to the end\n"), outcome.stderr
    assert "steps 7-9 not recorded: 102 MB of memory are free" in outcome.said[-1]


def test_only_the_newest_captures_stay_and_nothing_of_others_goes(launch, tmp_path):
    env = {"ACCELPROF_KEEP": "2", "ACCELPROF_STEPS": "2,4,6,8,10", "ACCELPROF_RUN_ID": "kept"}
    theirs = tmp_path / "shared/kept/step_00000004/rank00000.theirs_1.1.pt.trace.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("{}")
    outcome = launch(PACED, 14, 0.05, env={**env, "ACCELPROF_OUTPUT_DIR": str(tmp_path / "shared")})
    assert outcome.status == 0
    run = tmp_path / "shared/kept"
    assert sorted(path.name for path in run.glob("step_*")) == [
        *("step_00000004", "step_00000008", "step_00000010")
    ]
    assert [path.name for path in theirs.parent.iterdir()] == [theirs.name]
    captures = json.loads((run / "ranks/rank00000.json").read_text())["captures"]
    assert [capture.get("removed", False) for capture in captures] == [True] * 3 + [False] * 2


def test_no_capture_begins_once_the_bytes_are_there(launch):
    env = {"ACCELPROF_MAX_BYTES": "1kB", "ACCELPROF_STEPS": "2,8,10"}
    outcome = launch(PACED, 14, 0.05, env=env)
    assert [trace.first_step for trace in outcome.traces] == [2]
    assert len([line for line in outcome.said if "ACCELPROF_MAX_BYTES=1,000" in line]) == 2


def test_a_capture_that_lasts_too_long_is_cut_short_at_the_end_of_a_step(launch):
    env = {"ACCELPROF_MAX_SECONDS": "0.5", "ACCELPROF_STEPS": "2-15,18-19"}
    outcome = launch(PACED, 22, 0.1, env=env)
    first, second = (read_trace(trace.path) for trace in outcome.traces)
    recorded = step_numbers(first)
    assert recorded == list(range(2, 2 + len(recorded)))
    assert 1 <= len(recorded) <= 5
    assert first["autoprof"]["partial"]
    assert step_numbers(second) == [18, 19]
    assert any("steps 2-15 cut short before step" in line for line in outcome.said)


def test_a_capture_states_its_cost(launch):
    outcome = launch(PACED, 20, 0.02)
    (capture,) = outcome.rank()["captures"]
    assert capture["blocked_start_s"] > 0
    assert capture["blocked_stop_s"] > 0
    assert capture["raw_bytes"] > capture["bytes"] > 0
    assert min(capture["step_s"], capture["usual_step_s"]) >= 0.02
    manifest = json.loads((outcome.run / "run.json").read_text())
    assert manifest["steps"] == 20
    assert manifest["cost"] == outcome.rank()["cost"]
    assert manifest["cost"]["bytes"] == outcome.traces[0].path.stat().st_size
    assert "training was held up for 0." in outcome.said[-1]


def test_a_child_can_write_the_trace(launch, expected):
    outcome = launch(TRAIN, env={"ACCELPROF_FORK_SAVE": "1"})
    check_job(outcome, expected)
    assert outcome.rank()["captures"][0]["saved_in_child"]
    assert step_numbers(read_trace(outcome.traces[0].path)) == [7, 8, 9]


@pytest.mark.parametrize("doing", ["kills", "reaps", "stops", "handles"])
def test_what_a_script_does_to_children_costs_no_trace(launch, doing):
    outcome = launch(SCRIPTS / "meddles_with_children.py", doing, env={"ACCELPROF_FORK_SAVE": "1"})
    assert (outcome.status, outcome.stdout) == (0, "done\n"), outcome.stderr
    assert step_numbers(read_trace(outcome.traces[0].path)) == [7, 8, 9]
    (capture,) = outcome.rank()["captures"]
    assert capture["saved_in_child"] == (doing == "reaps")
    assert any("the script handles SIGCHLD" in line for line in outcome.said) == (doing == "handles")
    assert not [line for line in outcome.said if "fault" in line]


def test_hundreds_of_captures_leave_threads_and_files_as_they_were(launch):
    outcome = launch(SCRIPTS / "soak.py", "40", env={"ACCELPROF_STEPS": ",".join(map(str, range(2, 82, 2)))})
    assert outcome.status == 0, outcome.stderr
    early, late = (line.split() for line in outcome.stdout.splitlines())
    assert late == early  # threads and open files
    assert len(outcome.traces) == 40
    assert len(outcome.said) <= 6
