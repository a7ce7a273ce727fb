"""When one optimisation step has ended. A pure state machine: events in, ended steps out.

Every event method returns how many steps have ended with it: almost always 0 or 1. It is more where only
this event shows that earlier ones had been steps already (a second optimizer took over, say), so that the
count is right even where a boundary is seen late. Batches without an optimizer are steps until a backward or
an optimizer's step shows that they came before the training: then the count starts over.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

# `backward` without any optimizer step is taken for the step after this many, ...
_BACKWARDS_WITHOUT_OPTIMIZER = 3
# ... and after this many where an optimizer exists and may just be accumulating by hand.
_BACKWARDS_WITH_IDLE_OPTIMIZER = 256


class StepParts(NamedTuple):
    """What one step was made of, or several that were seen to end at once."""

    first_step: int
    steps: int
    """More than 1 where only the last one's end showed that the others had been steps."""
    wall_s: float
    wait_s: float
    """Seconds spent waiting for batches."""
    optimizer_s: float
    """Seconds inside the optimizers' ``step``."""
    micro_steps: int
    skipped: bool
    """A gradient scaler skipped the update."""


class Pacemaker:
    """Chooses, among several things that each repeat once per loop, the one that ends the loop.

    Elected is the one that came last before the first one came again. Where the others come round
    without it (it is gone, or another phase has begun) there is a new election.
    """

    def __init__(self) -> None:
        self.elected: int | None = None
        self.round: list[int] = []
        """What has come since the elected one last did."""

    def beat(self, key: int, *, alone: Callable[[], bool]) -> int:
        """Take one event of ``key`` and return how many loops have ended.

        ``alone`` says whether nothing else could beat; it is asked only where that matters.
        """
        if key == self.elected:
            if self.round:
                self.round.clear()
            return 1
        if not self.round and alone():
            self.elected = key
            return 1
        self.round.append(key)
        if key == self.round[0] and len(self.round) > 1:
            return self._elect(self.round[-2])
        if self.round.count(key) >= 3:  # the first one has gone for good
            return self._elect(key)
        return 0

    def _elect(self, key: int) -> int:
        ended = self.round.count(key)
        later = [] if key == self.round[-1] else self.round[-1:]
        self.elected, self.round = key, later
        return ended


class StepClock:
    """Counts optimisation steps from events of Accelerate and torch; see the rule for a step in the docs.

    Keys identify optimizers and dataloaders (``id`` will do). ``optimizers`` returns how many optimizers
    exist in the process.
    """

    def __init__(
        self,
        step_on: str = "auto",
        *,
        optimizers: Callable[[], int],
        now: Callable[[], float] = perf_counter,
    ) -> None:
        self._step_on = step_on
        self._optimizers = optimizers
        self._now = now
        self._counts_optimizers = step_on in ("auto", "optimizer")
        self._optimizer_pace = Pacemaker()
        self._batch_pace = Pacemaker()
        self._batch_keys: set[int] = set()
        self._optimizer_stepped = False
        self._backwards_without_step = 0
        self.begun_at = now()
        """When the step under way began, by ``now``, which is when the latest one ended."""
        self._wait_s = 0.0
        self._optimizer_s = 0.0
        self._micro_steps = 0
        self._skipped = False
        self._worked = False
        self.step_compiled = False
        """Set when an optimizer's step has gone into compiled code, where no event shows it: until one does,
        batches that pass without any other event are the steps."""
        self.restarts = 0
        """How often the count has started over, because training began."""
        self.discarded_steps = 0
        """Batches that were steps until training began."""
        self._batches_as_steps = 0
        self.steps = 0
        """Steps that have ended, which is also the number of the step under way."""
        self.micro_steps = 0
        self.skipped_steps = 0
        self.source = ""
        """What ended the latest step: ``optimizer``, ``backward``, ``micro-step`` or ``batch``."""
        self.wall_s = 0.0
        """Seconds that the latest step took."""
        self.parts = (0, 0, 0.0, 0.0, 0.0, 0, False)
        """What the latest step was made of: the fields of :class:`StepParts`, which takes longer to make."""

    @property
    def last(self) -> StepParts:
        """What the latest step was made of."""
        return StepParts(*self.parts)

    def begin(self, waited_s: float = 0.0) -> None:
        """The first step begins now, or with the wait for its batch; what was before is no part of it."""
        self.begun_at = self._now() - waited_s

    # These run in every step of a job: what is the same in nearly all of them comes first and calls nothing.

    def backward(self, synced: bool) -> int:
        """A backward pass has returned; ``synced`` where it ended an accumulation."""
        self._worked = True
        if self._batches_as_steps:
            self._start_over()
        self._micro_steps += 1
        self.micro_steps += 1
        if self._step_on == "micro-step":
            return self._end(1, "micro-step")
        if self._step_on != "auto" or self._optimizer_stepped or not synced:
            return 0
        self._backwards_without_step += 1
        if self.source == "backward":
            return self._end(1, "backward")
        patience = _BACKWARDS_WITH_IDLE_OPTIMIZER if self._optimizers() else _BACKWARDS_WITHOUT_OPTIMIZER
        if self._backwards_without_step < patience:
            return 0
        return self._end(self._backwards_without_step, "backward")

    def optimizer_step(
        self,
        key: int,
        synced: bool,
        skipped: bool = False,
        seconds: float = 0.0,
        now: float | None = None,
    ) -> int:
        """The ``step`` of an optimizer, prepared or not, has returned after ``seconds``, ``now``."""
        self._worked = True
        if self._batches_as_steps:
            self._start_over()
        self.step_compiled = False
        self._optimizer_s += seconds
        if not synced:
            return 0
        self._optimizer_stepped = True
        if skipped:
            self._skipped = True
        if not self._counts_optimizers:
            return 0
        pace = self._optimizer_pace
        if key == pace.elected and not pace.round:
            return self._end(1, "optimizer", now)
        return self._end(pace.beat(key, alone=self._single_optimizer), "optimizer", now)

    def batch_wanted(self, key: int, *, evaluating: Callable[[], bool] = bool) -> int:
        """A loop asks a dataloader for its next batch: the work on the one before is done.

        ``evaluating`` says whether no gradients were wanted of it; it is asked only where that matters.
        """
        if key not in self._batch_keys:
            return 0
        self._batch_keys.discard(key)
        unseen_step = self.step_compiled and self._step_on == "auto" and not self._worked
        self._worked = False
        inference = self._is_inference()
        if self._step_on != "batch" and not unseen_step and not inference:
            return 0
        if not inference and evaluating() and self._optimizers():  # evaluation inside training
            return 0
        ended = self._batch_pace.beat(key, alone=lambda: not self._batch_keys)
        if inference:
            self._batches_as_steps += ended
        return self._end(ended, "batch")

    def batch(self, key: int, *, waited_s: float = 0.0, evaluating: Callable[[], bool] = bool) -> None:
        """A dataloader hands out a batch that the loop waited ``waited_s`` for."""
        if self._batches_as_steps and self._optimizers() and not evaluating():
            self._start_over()
        self._batch_keys.add(key)
        self._wait_s += waited_s

    def _start_over(self) -> None:
        self.restarts += 1
        self.discarded_steps = self._batches_as_steps
        self._batches_as_steps = self.steps = self.skipped_steps = self.micro_steps = 0
        self._micro_steps = 0
        self._wait_s = self._optimizer_s = 0.0
        self.begun_at = self._now()
        self.source = ""

    def _is_inference(self) -> bool:
        return (
            self._step_on == "auto"
            and not self._optimizer_stepped
            and not self._backwards_without_step
            and not self._optimizers()
        )

    def _single_optimizer(self) -> bool:
        return self._optimizers() <= 1

    def _end(self, ended: int, source: str, now: float | None = None) -> int:
        if not ended:
            return 0
        if now is None:
            now = self._now()
        # Where two threads train, the other's step may have ended after this one's was timed.
        self.wall_s = wall_s = now - self.begun_at if now > self.begun_at else 0.0
        self.parts = (
            *(self.steps, ended, wall_s),
            *(self._wait_s, self._optimizer_s, self._micro_steps, self._skipped),
        )
        if self._skipped:
            self.skipped_steps += 1
        self.begun_at = now
        self._wait_s = self._optimizer_s = 0.0
        self._micro_steps = 0
        self._skipped = False
        self.steps += ended
        self.source = source
        return ended
