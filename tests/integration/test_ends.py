"""However a job ends: its exit status and output are its own, and what is on disk is whole."""

from __future__ import annotations

import json
import signal

import pytest
from jobs import SCRIPTS, read_trace, step_numbers

# With ACCELPROF_STEPS=4-6 and two steps of warmup.
PHASES = {"idle": 0, "warmup": 3, "active": 5, "after": 12}
# What each does to a job on its own; tests of two ranks run the job without us as well.
WAYS = {
    "exit": (3, ""),
    "raise": (1, ""),
    "interrupt": (-signal.SIGINT, ""),
    "terminate": (-signal.SIGTERM, ""),
    "_exit": (4, ""),
    "handler-before": (7, "the script's own handler\n"),
    "handler-after": (7, "the script's own handler\n"),
    "kill": (-signal.SIGKILL, ""),
    "fork": (0, "the child ended with 5\ntrained to the end\n"),
    "thread": (0, "trained to the end\n"),
}


@pytest.mark.parametrize("how", WAYS)
def test_an_end_inside_a_capture(launch, how):
    check(launch, how, "active")


@pytest.mark.parametrize(
    ("how", "phase"), [("exit", "warmup"), ("terminate", "idle"), ("terminate", "after")]
)
def test_an_end_outside_a_capture(launch, how, phase):
    check(launch, how, phase)


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


def check(launch, how, phase):
    outcome = launch(SCRIPTS / "ends.py", how, PHASES[phase], env={"ACCELPROF_STEPS": "4-6"})
    status, stdout = WAYS[how]
    assert (outcome.status, outcome.stdout) == (status, stdout), outcome.stderr
    # What comes without a handler of ours may come while the first file is being written.
    check_files(outcome, may_leave_temporary=how == "kill" or (how, phase) == ("terminate", "idle"))
    documents = [read_trace(trace.path) for trace in outcome.traces]
    goes_on = status == 0
    if how == "kill" or (phase in ("idle", "warmup") and not goes_on):
        assert documents == []
        return
    (document,) = documents
    whole = phase == "after" or goes_on
    assert document["autoprof"]["partial"] is not whole
    assert step_numbers(document) == ([4, 5, 6] if whole else [4])


def check_files(outcome, *, may_leave_temporary=False):
    assert "fault" not in "".join(outcome.said)
    for name in outcome.left():
        if name.endswith(".json"):
            json.loads((outcome.output_dir / name).read_text())
        assert may_leave_temporary or not name.endswith(".tmp")
