"""What we wrap looks and computes as it does without us."""

from __future__ import annotations

import pytest
from jobs import SCRIPTS


@pytest.mark.parametrize(("how", "ranks"), [("plain", 1), ("accumulated", 1), ("compiled", 1), ("plain", 2)])
def test_fifty_steps_are_the_same_to_the_last_bit(launch, how, ranks):
    env = {"ACCELPROF_STEPS": "3-4,10-20", "ACCELPROF_RECORD_SHAPES": "1", "ACCELPROF_PROFILE_MEMORY": "1"}
    without = launch(SCRIPTS / "fingerprint.py", how, ranks=ranks, enable=False)
    with_us = launch(SCRIPTS / "fingerprint.py", how, ranks=ranks, env=env)
    assert (with_us.status, sorted(with_us.stdout.splitlines())) == (0, sorted(without.stdout.splitlines()))
    assert len(without.stdout.splitlines()) == ranks
    assert len(with_us.traces) == 2 * ranks
    assert with_us.rank()["steps"] == 50


def test_wrapped_objects_are_what_they_were(launch):
    without = launch(SCRIPTS / "transparency.py", enable=False)
    assert without.status == 0, without.stderr
    with_us = launch(SCRIPTS / "transparency.py", env={"ACCELPROF_STEPS": "2-3,12-14"})
    assert with_us.status == 0, with_us.stderr
    assert with_us.stdout == without.stdout
    assert with_us.rank()["faults"] == []
