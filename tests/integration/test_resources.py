"""Disks that are full, slow or gone cost a capture, never the job."""

from __future__ import annotations

import subprocess

import pytest
from jobs import REPOSITORY, SCRIPTS, read_trace

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
    assert [line for line in outcome.said if str(small_disk) in line]
    for trace in outcome.traces:  # what fitted is whole events of strict JSON
        assert read_trace(trace.path)["traceEvents"]


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


def test_hundreds_of_captures_leave_threads_and_files_as_they_were(launch):
    outcome = launch(SCRIPTS / "soak.py", "40", env={"ACCELPROF_STEPS": ",".join(map(str, range(2, 82, 2)))})
    assert outcome.status == 0, outcome.stderr
    early, late = (line.split() for line in outcome.stdout.splitlines())
    assert late == early  # threads and open files
    assert len(outcome.traces) == 40
    assert len(outcome.said) <= 6
