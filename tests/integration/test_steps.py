"""Steps are real optimizer steps, on every kind of training loop."""

from __future__ import annotations

import ast
import json

import pytest
from jobs import SCRIPTS, read_trace, slices, step_numbers

LOOPS = [
    node.name
    for node in ast.parse((SCRIPTS / "loops.py").read_text()).body
    if isinstance(node, ast.FunctionDef) and any(getattr(d, "id", "") == "loop" for d in node.decorator_list)
]

# Where the boundaries of the very first steps are known only later (several optimizers may set the pace).
LATE_START = {
    "gan",
    "second_phase",
    "two_accelerators",
    "executable_batch_size",
    "wrapped_optimizer",
    "own_optimizer",
}
NO_OPTIMIZER_RANGE = {"inference", "own_optimizer", "deepspeed_stand_in", "megatron_stand_in"}


@pytest.mark.parametrize("loop", LOOPS)
def test_steps_are_the_optimizers(launch, loop):
    outcome = launch(SCRIPTS / "loops.py", loop, env={"ACCELPROF_STEPS": "0-999", "ACCELPROF_WARMUP": "0"})
    assert outcome.status == 0, outcome.stderr
    expected = json.loads(outcome.stdout.splitlines()[-1])[loop]
    rank = outcome.rank()
    assert rank["steps"] == expected
    assert rank["skipped_steps"] == (2 if loop == "skipped_steps" else 0)
    assert rank["faults"] == []
    document = read_trace(outcome.traces[0].path)
    numbers = step_numbers(document)
    if loop in LATE_START:
        assert numbers == sorted(set(numbers))
        assert set(numbers) <= set(range(expected))
        assert numbers[-1] == expected - 1
        return
    assert numbers == list(range(expected))
    if loop in NO_OPTIMIZER_RANGE:
        return
    optimizers = slices(document, "Optimizer.step#")
    for step in slices(document, "ProfilerStep#"):
        inside = [
            inner
            for inner in optimizers
            if step["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= step["ts"] + step["dur"]
        ]
        skipped = loop == "skipped_steps" and step["name"] in ("ProfilerStep#1", "ProfilerStep#4")
        assert len(inside) == (0 if skipped else 1)


def test_the_planned_steps_and_no_others_are_recorded(launch):
    outcome = launch(SCRIPTS / "loops.py", "plain", env={"ACCELPROF_STEPS": "1-2,5", "ACCELPROF_WARMUP": "1"})
    first, second = (read_trace(trace.path) for trace in outcome.traces)
    assert (step_numbers(first), step_numbers(second)) == ([1, 2], [5])
    assert not slices(first, "step ")


def test_micro_steps_are_counted_and_every_accumulation_is_one_step(launch):
    outcome = launch(SCRIPTS / "loops.py", "accumulate", env={"ACCELPROF_STEPS": "1-3"})
    rank = outcome.rank()
    assert (rank["steps"], rank["micro_steps"]) == (5, 18)
    document = read_trace(outcome.traces[0].path)
    for step in slices(document, "ProfilerStep#"):
        backwards = [
            b
            for b in slices(document, "Accelerator.backward")
            if step["ts"] <= b["ts"] < step["ts"] + step["dur"]
        ]
        assert len(backwards) == 4


def test_the_run_says_what_it_counts_as_steps(launch):
    outcome = launch(SCRIPTS / "loops.py", "own_optimizer")
    assert any("counting backward passes as steps" in line for line in outcome.said)
    assert outcome.rank()["step_source"] == "backward"
    assert launch(SCRIPTS / "loops.py", "inference").rank()["step_source"] == "batch"


@pytest.mark.parametrize(("step_on", "steps"), [("micro-step", 18), ("batch", 18), ("optimizer", 5)])
def test_step_on_overrides_the_rule(launch, step_on, steps):
    outcome = launch(SCRIPTS / "loops.py", "accumulate", env={"ACCELPROF_STEP_ON": step_on})
    assert outcome.rank()["steps"] == steps
