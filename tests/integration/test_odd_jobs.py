"""Jobs that do something unusual come to the same end with us, and nothing of ours fails in them."""

from __future__ import annotations

import ast

import pytest
from jobs import SCRIPTS, read_trace, step_numbers

ODD = SCRIPTS / "odd.py"
JOBS = [
    node.name
    for node in ast.parse(ODD.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name not in ("setup", "finish")
]
# What the profiler cannot give: the steps are there, or the run says why they are not.
INCOMPLETE = {
    "thread_per_epoch",
    "watchdog_that_raises",
    "legacy_profiler",
    "two_threads_in_turn",
}


@pytest.mark.parametrize("job", JOBS)
def test_an_odd_job(launch, job):
    env = {"ACCELPROF_WITH_STACK": "1"} if job == "profile_function" else {}
    without = launch(ODD, job, enable=False)
    with_us = launch(ODD, job, env=env)
    assert without.status == 0, without.stderr
    assert (with_us.status, with_us.stdout) == (without.status, without.stdout), with_us.stderr
    rank = with_us.rank()
    assert rank["faults"] == []
    assert not [line for line in with_us.said if "fault" in line]
    recorded = [step_numbers(read_trace(trace.path)) for trace in with_us.traces]
    if job in INCOMPLETE:
        assert recorded or rank["missed"]
    else:
        assert recorded == [[7, 8, 9]]
