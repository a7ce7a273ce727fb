"""However a job ends: its exit status and output are its own, and what is on disk is whole."""

from __future__ import annotations

import json
import signal

import pytest
from jobs import SCRIPTS, read_trace, step_numbers

# With ACCELPROF_STEPS=4-6 and two steps of warmup.
PHASES = {"idle": 0, "warmup": 3, "active": 5, "finishing": 7}
# What each does to a job on its own.
WAYS = {
    "exit": (3, ""),
    "raise": (1, ""),
    "interrupt": (-signal.SIGINT, ""),
    "terminate": (-signal.SIGTERM, ""),
    "_exit": (4, ""),
    "handler-before": (7, "the script's own handler\n"),
    "handler-after": (7, "the script's own handler\n"),
    "kill": (-signal.SIGKILL, ""),
}

UNHELD = ("terminate", "_exit")  # while nothing is being recorded they are left alone


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("how", WAYS)
def test_an_end_in_any_phase(launch, how, phase, ranks):
    heavy = 3000 if phase == "finishing" else 0
    outcome = launch(
        SCRIPTS / "ends.py", how, PHASES[phase], heavy, ranks=ranks, env={"ACCELPROF_STEPS": "4-6"}
    )
    status, stdout = WAYS[how]
    assert outcome.statuses == [status] * ranks, outcome.stderr
    # Two ranks interleave within a line.
    assert outcome.stdout.replace("\n", "") == stdout.replace("\n", "") * ranks
    # What comes without a handler of ours may come while the first file is being written.
    check_files(outcome, may_leave_temporary=how == "kill" or (phase == "idle" and how in UNHELD))
    if phase == "finishing":
        threads = (outcome.output_dir.parent / "threads.txt").read_text().splitlines()
        assert all("autoprof-finisher" in line for line in threads)
    documents = [read_trace(trace.path) for trace in outcome.traces]
    if how == "kill" and phase == "finishing":
        return  # whole, or not there: read_trace has read what there is
    if phase in ("idle", "warmup") or how == "kill":
        assert documents == []
        return
    assert [document["autoprof"]["rank"] for document in documents] == list(range(ranks))
    for document in documents:
        assert document["autoprof"]["partial"] is (phase == "active")
        assert step_numbers(document) == ([4] if phase == "active" else [4, 5, 6])


@pytest.mark.parametrize(
    ("inside", "recorded"),
    [
        ("start", []),
        ("step", []),
        ("stop", [4, 5, 6]),
        ("stop-at-once", [4, 5, 6]),
        ("export_chrome_trace", [4, 5, 6]),
    ],
)
def test_sigterm_waits_for_torchs_profiler(launch, inside, recorded):
    how = f"terminate-in-{inside}"
    outcome = launch(SCRIPTS / "ends.py", how, 99, env={"ACCELPROF_STEPS": "4-6"})
    assert (outcome.status, outcome.stdout) == (-signal.SIGTERM, ""), outcome.stderr
    check_files(outcome)
    assert [step_numbers(read_trace(trace.path)) for trace in outcome.traces] == (
        [recorded] if recorded else []
    )


@pytest.mark.parametrize(
    ("how", "stdout"),
    [
        ("fork", "the child ended with 5\ntrained to the end\n"),
        ("thread", "trained to the end\n"),
        ("never", "trained to the end\n"),
    ],
)
def test_what_goes_on_after_it(launch, how, stdout):
    outcome = launch(SCRIPTS / "ends.py", how, PHASES["active"], env={"ACCELPROF_STEPS": "4-6"})
    assert (outcome.status, outcome.stdout) == (0, stdout), outcome.stderr
    check_files(outcome)
    (trace,) = outcome.traces
    assert step_numbers(read_trace(trace.path)) == [4, 5, 6]


@pytest.mark.parametrize("how", ["raise-in-one-rank", "terminate"])
def test_an_end_of_two_ranks(launch, how):
    command = [SCRIPTS / "ends.py", how, PHASES["active"]]
    without = launch(*command, ranks=2, by="torchrun", enable=False)
    with_us = launch(*command, ranks=2, by="torchrun", env={"ACCELPROF_STEPS": "4-6"})
    assert (with_us.status, with_us.stdout) == (without.status, without.stdout), with_us.stderr
    check_files(with_us)
    assert with_us.traces
    for trace in with_us.traces:  # the launcher ends a rank wherever it is
        document = read_trace(trace.path)
        assert document["autoprof"]["partial"]
        assert step_numbers(document) in ([4], [4, 5])


def check_files(outcome, *, may_leave_temporary=False):
    assert "fault" not in "".join(outcome.said)
    for name in outcome.left():
        if name.endswith(".json"):
            json.loads((outcome.output_dir / name).read_text())
        assert may_leave_temporary or not name.endswith(".tmp")
