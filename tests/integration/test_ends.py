"""However a job ends: its exit status and output are its own, and what is on disk is whole."""

from __future__ import annotations

import pytest
from conftest import SCRIPTS, read_trace, step_numbers

# With ACCELPROF_STEPS=4-6 and two steps of warmup.
PHASES = {"idle": 0, "warmup": 3, "active": 5, "after": 12}
WAYS = [
    "exit",
    "raise",
    "interrupt",
    "terminate",
    "_exit",
    "handler-before",
    "handler-after",
    "kill",
    "fork",
    "thread",
]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("phase", ["active"])
def test_an_end_inside_a_capture(launch, how, phase):
    check(launch, how, phase, ranks=1)


@pytest.mark.parametrize("phase", ["idle", "warmup", "after"])
@pytest.mark.parametrize("how", ["exit", "terminate"])
def test_an_end_outside_a_capture(launch, how, phase):
    check(launch, how, phase, ranks=1)


@pytest.mark.parametrize("how", ["exit", "raise-in-one-rank", "terminate"])
def test_an_end_of_two_ranks(launch, how):
    check(launch, how, "active", ranks=2)


def check(launch, how, phase, ranks):
    command = [SCRIPTS / "ends.py", how, PHASES[phase]]
    without = launch(*command, ranks=ranks, enable=False)
    with_us = launch(*command, ranks=ranks, env={"ACCELPROF_STEPS": "4-6"})
    assert (with_us.status, with_us.stdout) == (without.status, without.stdout), with_us.stderr
    assert "fault" not in "".join(with_us.said)
    assert not [name for name in with_us.left() if name.endswith(".tmp")]
    documents = [read_trace(trace.path) for trace in with_us.traces]
    goes_on = how in ("fork", "thread")
    if how == "kill" or (phase in ("idle", "warmup") and not goes_on):
        assert documents == []
        return
    assert documents
    whole = phase == "after" or goes_on
    for document in documents:
        assert document["autoprof"]["partial"] is not whole
        assert step_numbers(document) == ([4, 5, 6] if whole else [4])


def test_a_fork_during_a_capture_takes_no_part_in_it(launch):
    outcome = launch(SCRIPTS / "ends.py", "fork", "5", env={"ACCELPROF_STEPS": "4-6"})
    assert "the child ended with 5" in outcome.stdout
    assert len(outcome.traces) == 1
    assert len(list(outcome.run.glob("ranks/*"))) == 1
