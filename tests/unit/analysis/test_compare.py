"""``autoprof compare``: what differs, and whether that is more than noise."""

from __future__ import annotations

import json

import pytest
from traces import SHARED, document, slice_, step

from autoprof.cli import main


def run(lengths, ops=("aten::mm",), rank=0):
    events, at = [], 0
    for number, length in enumerate(lengths):
        events.append(step(number, at, length))
        for place, name in enumerate(ops):
            events.append(slice_(name, at + 10 + 40 * place, 30))
        at += length
    return document(events, rank=rank)


SLOW = [1100, 1130, 1090, 1120, 1140, 1105, 1115, 1125]
FAST = [1000, 1020, 990, 1010, 1030, 995, 1005, 1015]


@pytest.fixture
def compared(write, capsys):
    def compared_(before, after, *options):
        before, after = write(before, "a/rank0.json").parent, write(after, "b/rank0.json").parent
        status = main(["compare", str(before), str(after), *options])
        return status, capsys.readouterr()

    return compared_


def told(output):
    return json.loads(output.out)


def test_a_slower_run_is_told_from_noise(compared):
    _, output = compared(run(FAST), run(SLOW), "--json")
    found = told(output)
    (whole,) = [figure for figure in found["figures"] if figure["name"] == "step"]
    assert (found["steps_before"], found["steps_after"]) == (8, 8)
    assert (whole["before_us"], whole["after_us"]) == (1007.5, 1117.5)
    assert whole["change"] == pytest.approx(1117.5 / 1007.5 - 1)
    assert whole["low"] < whole["change"] < whole["high"]
    assert whole["significant"] is True


def test_the_same_run_twice_is_noise(compared):
    _, output = compared(run(FAST), run(FAST[4:] + FAST[:4]), "--json")
    assert [figure["significant"] for figure in told(output)["figures"]] == [False, False]


def test_few_steps_say_nothing(compared):
    status, output = compared(run(FAST[:3]), run(SLOW[:3]), "--json")
    assert status == 0
    assert told(output)["figures"][0]["significant"] is None
    status, output = compared(run(FAST[:3]), run(SLOW[:3]), "--fail-above", "5%")
    assert status == 1
    assert "3 and 3 steps are too few to say" in output.err


@pytest.mark.parametrize(
    ("before", "after", "limit", "status"),
    [(FAST, SLOW, "5%", 3), (FAST, SLOW, "0.2", 0), (SLOW, FAST, "0", 0), (FAST, FAST, "0%", 0)],
)
def test_a_limit_fails_a_check(compared, before, after, limit, status):
    found, output = compared(run(before), run(after), "--fail-above", limit)
    assert found == status
    assert ("steps took 10.9% longer, allowed are 5.0%" in output.err) is (status == 3)


def test_operators_are_listed_by_what_differs_most(compared):
    _, output = compared(
        run(FAST, ("aten::mm", "aten::add")), run(SLOW, ("aten::mm", "aten::mm", "aten::x")), "--json"
    )
    rows = {row["name"]: row for row in told(output)["operators"]}
    assert rows["aten::mm"]["difference_us"] == 30.0
    assert (rows["aten::add"]["after_us"], rows["aten::x"]["before_us"]) == (None, None)


@pytest.mark.parametrize("value", ["five", "-5%", "5 %", ""])
def test_a_limit_that_is_none_is_one_line(compared, value):
    status, output = compared(run(FAST), run(SLOW), f"--fail-above={value}")
    assert status == 1
    assert (
        output.err == f"autoprof compare: --fail-above is {value!r}; it must be a share such as 5% or 0.05\n"
    )


def test_traces_without_steps_are_said_to_have_none(compared):
    status, output = compared(run([]), run(SLOW))
    assert status == 0
    assert "without whole steps in both runs nothing can be set side by side" in output.out


@pytest.mark.skipif(not SHARED.exists(), reason="the real traces are not here")
def test_two_machines_differ(capsys):
    folder = SHARED / "traces/v100_vs_a100"
    before, after = sorted(path for path in folder.iterdir() if path.is_dir())
    assert main(["compare", str(before), str(after)]) == 0
    output = capsys.readouterr().out
    assert "kernels by what differs most" in output
    assert "device computing" in output
