"""Steps are real optimizer steps, on every kind of training loop."""

from __future__ import annotations

import ast
import json
import re

import pytest
from jobs import SCRIPTS, read_trace, slices, step_numbers

LOOPS = [
    node.name
    for node in ast.parse((SCRIPTS / "loops.py").read_text()).body
    if isinstance(node, ast.FunctionDef) and any(getattr(d, "id", "") == "loop" for d in node.decorator_list)
]

# Where the boundaries of the very first steps are known only later: several optimizers may set the pace.
LATE_START = {
    "gan",
    "gan_with_many_critic_steps",
    "gan_accumulated",
    "gan_half_prepared",
    "wrapped_optimizer_prepared",
    "sharpness_aware",
    "two_accelerators_at_once",
    "optimizers_in_backward",
    "second_phase",
    "two_accelerators",
    "executable_batch_size",
    "wrapped_optimizer",
    "own_optimizer",
}
# No event before the first step has returned.
NOTICED_AT_ITS_END = {"megatron_stand_in", "raw_backward"}
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
    document = read_trace(outcome.traces[-1].path)
    numbers = step_numbers(document)
    if loop in LATE_START:
        assert covered_steps(document) == list(range(expected))
        assert len(numbers) >= expected - 3
        assert document["autoprof"]["partial"]
        return
    assert numbers == list(range(loop in NOTICED_AT_ITS_END, expected))
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


def covered_steps(document):
    """Return the steps that the ranges of the trace stand for, whole or together."""
    covered = []
    for step in slices(document, "ProfilerStep#") + slices(document, "step"):
        if "cut short" in step["name"]:
            continue
        numbers = [int(number) for number in re.findall(r"\d+", step["name"])]
        covered += range(numbers[0], numbers[-1] + 1)
    return sorted(covered)


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


@pytest.mark.parametrize("loop", ["accumulate", "gan", "inference"])
def test_every_rank_counts_its_own_steps(launch, loop):
    outcome = launch(SCRIPTS / "loops.py", loop, ranks=2, env={"ACCELPROF_STEPS": "1-2"})
    assert outcome.status == 0, outcome.stderr
    counts = [int(count) for count in re.findall(r": (\d+)}", outcome.stdout)]
    assert [outcome.rank(rank)["steps"] for rank in range(2)] == counts
    assert [step_numbers(read_trace(trace.path)) for trace in outcome.traces] == [[1, 2]] * 2


@pytest.mark.parametrize(("stage", "micro_steps", "ranks"), [(0, 1, 1), (1, 4, 1), (2, 4, 2)])
def test_deepspeed_itself(launch, stage, micro_steps, ranks):
    pytest.importorskip("deepspeed")
    outcome = launch(
        SCRIPTS / "real_deepspeed.py",
        *(stage, micro_steps),
        ranks=ranks,
        by="torchrun",
        env={"ACCELPROF_STEPS": "1-2", "ACCELERATE_USE_CPU": "false"},
    )
    assert outcome.status == 0, outcome.stderr
    steps = 12 // micro_steps
    assert json.loads(outcome.stdout.splitlines()[-1]) == {
        "steps": steps,
        "engine": steps,
        "type": "DEEPSPEED",
    }
    for rank in range(ranks):
        assert (outcome.rank(rank)["steps"], outcome.rank(rank)["micro_steps"]) == (steps, 12)
    for trace in outcome.traces:
        document = read_trace(trace.path)
        assert step_numbers(document) == [1, 2]
        assert len(slices(document, "Accelerator.backward")) == 2 * micro_steps


@pytest.mark.parametrize(
    ("loop", "missed"),
    [
        ("raw_backward", "step 0 not recorded: over before it was known what a step is"),
        ("optimizers_in_backward", ""),
    ],
)
def test_a_step_that_was_over_before_it_was_known_is_said_to_be_missing(launch, loop, missed):
    env = {"ACCELPROF_STEPS": "0,3", "ACCELPROF_WARMUP": "0"}
    outcome = launch(SCRIPTS / "loops.py", loop, env=env)
    numbers = [step_numbers(read_trace(trace.path)) for trace in outcome.traces]
    if not missed:  # recorded, with the step after it in one range
        assert numbers == [[], [3]]
        assert slices(read_trace(outcome.traces[0].path), "steps 0-1")
        return
    assert numbers == [[3]]
    assert missed in outcome.rank()["missed"][0]
    assert any(missed in line for line in outcome.said)


def test_a_capture_of_evaluation_before_training_is_kept_apart(launch):
    loop = "evaluation_before_there_is_an_optimizer"
    env = {"ACCELPROF_STEPS": "1-2", "ACCELPROF_WARMUP": "0"}
    outcome = launch(SCRIPTS / "loops.py", loop, env=env)
    assert [trace.path.parent.name for trace in outcome.traces] == ["step_00000001", "step_00000001-2"]
    evaluation, training = (read_trace(trace.path) for trace in outcome.traces)
    assert step_numbers(evaluation) == step_numbers(training) == [1, 2]
    assert evaluation["autoprof"]["step_source"] == "batch"
    assert training["autoprof"]["step_source"] == "optimizer"
    assert any("training begins after 4 batches" in line for line in outcome.said)
    assert not any("partial" in line for line in outcome.said)


def test_batches_of_evaluation_inside_training_are_no_steps(launch):
    outcome = launch(SCRIPTS / "loops.py", "evaluation", env={"ACCELPROF_STEP_ON": "batch"})
    assert outcome.rank()["steps"] == json.loads(outcome.stdout.splitlines()[-1])["evaluation"]
