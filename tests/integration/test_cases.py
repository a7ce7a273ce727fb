"""Faults that people reported of other profilers, each with the outcome it should have had.

The rest of the reported cases are covered where they belong: start-up hooks that shadow each other in
tests/unit/test_sitecustomize.py, micro-batches and step labels in test_steps.py, ranks that share a path in
test_ranks.py, ends and signals in test_ends.py, full disks and pipes in test_resources.py and
test_bad_input.py, profilers inside profilers in test_other_profilers.py, late references in
test_transparency.py, memory over a long run in benchmarks/soak.py.
"""

from __future__ import annotations

import pytest
from jobs import SCRIPTS, read_trace, step_numbers

from autoprof.settings import load


def test_names_that_are_hard_to_write_leave_strict_json(launch):
    outcome = launch(SCRIPTS / "names.py")
    assert outcome.status == 0, outcome.stderr
    document = read_trace(outcome.traces[0].path)
    assert step_numbers(document) == [7, 8, 9]
    names = {event["name"] for event in document["traceEvents"]}
    assert {'a"b', '"', '{"ph": "X"}, {', "x" * 50000} <= names
    assert outcome.rank()["captures"][0]["repaired_events"] >= 9
    assert outcome.rank()["captures"][0]["dropped_events"] == 0


def test_a_schedule_longer_than_the_job_leaves_what_there_is(launch):
    env = {
        "ACCELPROF_SKIP_FIRST": "0",
        "ACCELPROF_WAIT": "1",
        "ACCELPROF_WARMUP": "1",
        "ACCELPROF_ACTIVE": "50",
    }
    outcome = launch(SCRIPTS / "loops.py", "unprepared_optimizer", env=env)
    document = read_trace(outcome.traces[0].path)
    assert document["autoprof"]["partial"]
    assert step_numbers(document) == [2, 3, 4, 5]
    assert "partial: 2-51 was planned" in outcome.said[-1]


@pytest.mark.parametrize("with_stack", ["0", "1"])
def test_compiling_inside_a_capture_changes_no_loss(launch, with_stack):
    script = SCRIPTS / "compiles_late.py"
    without = launch(script, "8", enable=False)
    with_us = launch(script, "8", env={"ACCELPROF_WITH_STACK": with_stack})
    assert (with_us.status, with_us.stdout) == (0, without.stdout), with_us.stderr
    assert step_numbers(read_trace(with_us.traces[0].path)) == [7, 8, 9]


def test_what_is_costly_is_off_by_default():
    defaults = load({})
    costly = ("with_stack", "profile_memory", "record_shapes", "with_flops", "with_modules")
    assert not any(getattr(defaults, name) for name in costly)
    assert (defaults.active, defaults.repeat) == (3, 1)
