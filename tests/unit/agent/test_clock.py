"""The rule for a step, as event sequences that training loops produce."""

from __future__ import annotations

import pytest

from autoprof.agent.clock import StepClock

A, B = 1, 2
LOADER, OTHER_LOADER = 11, 12


class Loop:
    """Sends a clock the events of a training loop and notes the step count after each."""

    def __init__(self, optimizers: int = 1, step_on: str = "auto") -> None:
        self.optimizers = optimizers
        self.evaluating = False
        self.seconds = 0.0
        self.clock = StepClock(step_on, optimizers=lambda: self.optimizers, now=lambda: self.seconds)
        self.counts: list[int] = []

    def play(self, events: str) -> list[int]:
        """``b`` backward, ``u`` unsynced, ``A`` ``B`` optimizer steps, ``a`` unsynced, ``|`` batch.

        ``[`` begins an evaluation and ``]`` ends it.
        """
        for event in events:
            self.seconds += 1
            if event == "|":
                self.clock.batch_wanted(LOADER, evaluating=lambda: self.evaluating)
                self.clock.batch(LOADER, waited_s=0.5, evaluating=lambda: self.evaluating)
            elif event in "[]":
                self.evaluating = event == "["
            elif event in "bu":
                self.clock.backward(synced=event == "b")
            elif event in "AB":
                self.clock.optimizer_step(A if event == "A" else B, synced=True, seconds=0.25)
            elif event == "a":
                self.clock.optimizer_step(A, synced=False)
            self.counts.append(self.clock.steps)
        return self.counts


@pytest.mark.parametrize(
    ("events", "optimizers", "steps"),
    [
        pytest.param("|bA" * 5, 1, 5, id="plain"),
        pytest.param("|ua|ua|ua|bA" * 3, 1, 3, id="accumulate"),
        pytest.param("|b|b|b|bA" * 3, 1, 3, id="accumulation by hand"),
        pytest.param("|bAbB" * 5, 2, 5, id="gan"),
        pytest.param("|bA" * 4 + "|bB" * 3, 2, 7, id="second phase, old optimizer alive"),
        pytest.param("bbbA" * 3, 1, 3, id="closure calls backward"),
        pytest.param("|||" + "|bA" * 3, 1, 3, id="evaluation before training"),
        pytest.param("|bA|||" * 3, 1, 3, id="evaluation inside training"),
        pytest.param("|b" * 8, 0, 8, id="an optimizer of the user's own"),
        pytest.param("|b" * 64 + "A" + ("|b" * 64 + "A") * 2, 1, 3, id="long accumulation by hand"),
    ],
)
def test_count(events, optimizers, steps):
    assert Loop(optimizers).play(events)[-1] == steps


def test_a_single_optimizer_ends_its_step_at_once():
    assert Loop().play("|bA|bA") == [0, 0, 1, 1, 1, 2]


def test_the_boundary_of_a_gan_falls_at_the_end_of_the_loop():
    counts = Loop(optimizers=2).play("AB" * 4)
    # The first round is known to be one only when A comes again; from then on B ends each step.
    assert counts == [0, 0, 1, 2, 2, 3, 3, 4]


def test_the_optimizer_that_steps_more_often_sets_the_pace():
    assert Loop(optimizers=2).play("AAAB" * 3)[-1] == 9


def test_a_new_optimizer_takes_over_at_once_when_the_old_one_is_gone():
    loop = Loop()
    loop.play("bAbA")
    assert loop.play("bB")[-1] == 3


def test_an_aside_of_another_optimizer_is_no_step():
    loop = Loop(optimizers=1)
    loop.play("AAA")
    loop.optimizers = 2
    assert loop.play("BAAABAAA")[-1] == 9


def test_batches_are_the_steps_of_an_inference_job():
    loop = Loop(optimizers=0)
    loop.play("|||")
    loop.clock.batch_wanted(LOADER)  # the loop asks once more and finds the end
    assert loop.clock.steps == 3
    assert loop.clock.source == "batch"


def test_the_first_real_step_ends_the_fallback_to_backward():
    loop = Loop(optimizers=0)
    assert loop.play("bbbb")[-1] == 4
    assert loop.clock.source == "backward"
    loop.optimizers = 1
    assert loop.play("bA" * 3)[-1] in (7, 8)
    assert loop.clock.source == "optimizer"


@pytest.mark.parametrize(
    ("step_on", "events", "steps"),
    [("micro-step", "|uauA|ub", 4), ("batch", "|bA|bA|", 2), ("optimizer", "|b|b|b|b", 0)],
)
def test_step_on_overrides(step_on, events, steps):
    assert Loop(step_on=step_on).play(events)[-1] == steps


def test_a_skipped_update_ends_the_step_and_is_counted():
    loop = Loop()
    loop.clock.optimizer_step(A, synced=True, skipped=True)
    loop.clock.optimizer_step(A, synced=True)
    assert (loop.clock.steps, loop.clock.skipped_steps) == (2, 1)


def test_what_a_step_was_made_of():
    loop = Loop()
    loop.play("|u|bA")
    parts = loop.clock.last
    assert (parts.wall_s, parts.wait_s, parts.optimizer_s, parts.micro_steps) == (5.0, 1.0, 0.25, 2)
    loop.play("|bA")
    assert loop.clock.last.wall_s == 3.0


def test_training_after_batches_without_an_optimizer_counts_from_0():
    loop = Loop(optimizers=0)
    assert loop.play("[|||||]")[-1] == 4
    assert loop.clock.source == "batch"
    loop.optimizers = 1
    assert loop.play("[||]|bA|bA")[-4:] == [0, 1, 1, 1, 2][-4:]
    assert (loop.clock.restarts, loop.clock.discarded_steps, loop.clock.source) == (1, 4, "optimizer")
    assert loop.clock.last.wall_s == 3


def test_training_without_a_dataloader_after_evaluation_counts_from_0_too():
    loop = Loop(optimizers=0)
    loop.play("[||||]")
    loop.optimizers = 1
    assert loop.play("bAbA")[-4:] == [0, 1, 1, 2]


@pytest.mark.parametrize("step_on", ["batch", "auto"])
def test_batches_of_evaluation_are_no_steps_where_batches_are(step_on):
    loop = Loop(step_on=step_on)
    loop.clock.step_compiled = step_on == "auto"
    assert loop.play("|||[|||]|||")[-1] == 5
