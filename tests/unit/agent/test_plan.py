"""The plan against torch's documented schedule, restated here by counting, and explicit steps."""

from __future__ import annotations

import itertools

import pytest

from autoprof.agent.plan import Action, Capture, CapturePlan
from autoprof.settings import load


def plan_for(**values: object) -> CapturePlan:
    return CapturePlan(load({f"ACCELPROF_{name.upper()}": str(value) for name, value in values.items()}))


def counted_schedule(skip_first: int, wait: int, warmup: int, active: int, repeat: int, skip_first_wait: int):
    """Walk the cycles one step at a time, as the documentation of torch.profiler.schedule tells it."""
    yield from itertools.repeat(Action.IDLE, skip_first)
    for cycle in itertools.count():
        if repeat and cycle >= repeat:
            break
        if cycle or not skip_first_wait:
            yield from itertools.repeat(Action.IDLE, wait)
        yield from itertools.repeat(Action.WARMUP, warmup)
        yield from itertools.repeat(Action.RECORD, active - 1)
        yield Action.SAVE
    yield from itertools.repeat(Action.IDLE)


@pytest.mark.parametrize("skip_first", [0, 3])
@pytest.mark.parametrize("wait", [0, 2])
@pytest.mark.parametrize("warmup", [0, 2])
@pytest.mark.parametrize("active", [1, 3])
@pytest.mark.parametrize("repeat", [0, 1, 2])
@pytest.mark.parametrize("skip_first_wait", [0, 1])
def test_schedule_is_torchs(skip_first, wait, warmup, active, repeat, skip_first_wait):
    plan = plan_for(
        skip_first=skip_first,
        wait=wait,
        warmup=warmup,
        active=active,
        repeat=repeat,
        skip_first_wait=skip_first_wait,
    )
    expected = counted_schedule(skip_first, wait, warmup, active, repeat, skip_first_wait)
    captures = [plan.next_capture(step) for step in range(40)]
    actions = [capture.action(step) if capture else Action.IDLE for step, capture in enumerate(captures)]
    assert actions == list(itertools.islice(expected, 40))


def test_default_is_one_small_trace_early():
    plan = plan_for(enable=1)
    assert plan.next_capture(0) == Capture(warmup_from=5, first=7, last=9)
    assert plan.next_capture(10) is None
    assert str(plan) == "steps 7-9"


def test_explicit_steps_are_each_preceded_by_warmup():
    plan = plan_for(steps="3,10-12", warmup=2)
    assert plan.next_capture(0) == Capture(1, 3, 3)
    assert plan.next_capture(4) == Capture(8, 10, 12)
    assert plan.next_capture(13) is None
    assert str(plan) == "steps 3,10-12"


def test_warmup_never_reaches_into_the_capture_before_or_below_zero():
    plan = plan_for(steps="0-1,3-4", warmup=5)
    assert plan.next_capture(0) == Capture(0, 0, 1)
    assert plan.next_capture(2) == Capture(2, 3, 4)


def test_a_repeating_schedule_says_how_often():
    assert str(plan_for(skip_first=0, wait=8, warmup=1, active=1, repeat=0)) == (
        "step 9, then every 10 steps, to the end"
    )
