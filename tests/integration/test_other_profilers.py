"""A script that profiles itself sees what it sees without us; ours saves what it has and comes back."""

from __future__ import annotations

import pytest
from jobs import SCRIPTS, read_trace, step_numbers

# What is left for ours of steps 7-14.
OURS = {
    "around": [],
    "inside": [[7], [12, 13, 14]],
    "scheduled": [[11, 12, 13, 14]],
    "repeated": None,
    "autograd": [[7], [11, 12, 13, 14]],
    "accelerators_own": [],
    "failing": None,
}


@pytest.mark.parametrize("how", OURS)
def test_theirs_is_untouched_and_ours_makes_way(launch, how):
    script = SCRIPTS / "profiles_itself.py"
    without = launch(script, how, enable=False)
    with_us = launch(script, how, env={"ACCELPROF_STEPS": "7-14"})
    assert (with_us.status, with_us.stdout) == (without.status, without.stdout), with_us.stderr
    assert without.stdout
    assert with_us.rank()["steps"] == 20
    assert with_us.rank()["faults"] == []
    if OURS[how] is not None:
        # A profiler that the script goes on stepping labels steps too, in whatever trace is being recorded.
        ours = [sorted(set(step_numbers(read_trace(trace.path)))) for trace in with_us.traces]
        assert ours == OURS[how]
    if not with_us.traces:
        assert "the script profiled itself" in with_us.said[-1]
    assert sum("standing aside" in line for line in with_us.said) <= 1
