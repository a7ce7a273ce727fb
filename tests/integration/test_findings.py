"""Each finding is told of a job that has its fault, and not of one in which its advice was followed."""

from __future__ import annotations

import json

import pytest
from jobs import SCRIPTS

from autoprof.cli import main

RANKS = {"straggler": 2, "exposed-communication": 2}
# What a machine with few cores may add to a job on its own.
INCIDENTAL = {"profiler-cost", "exposed-communication", "straggler", "slow-steps"}


def findings(launch, capsys, reason, *options):
    env = {"ACCELPROF_ACTIVE": "10"}
    outcome = launch(SCRIPTS / "speed.py", reason, *options, ranks=RANKS.get(reason, 1), env=env)
    assert outcome.status == 0, outcome.stderr
    assert main(["summary", str(outcome.run), "--json"]) == 0
    return {found["slug"]: found for found in json.loads(capsys.readouterr().out)["findings"]}


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("input-bound", "went by waiting for a batch"),
        ("optimizer-loop", "operators a step in the optimizer"),
        ("recompilation", "frames were compiled in"),
        ("slow-steps", "more than usual in waiting for data"),
        ("straggler", "until rank 1 comes"),
        ("exposed-communication", "went to collectives while nothing was computed"),
    ],
)
def test_a_fault_is_found_and_gone_once_advice_is_followed(launch, capsys, reason, says):
    found = findings(launch, capsys, reason)[reason]
    assert says in found["evidence"]
    assert 0 <= found["saves_us_per_step"]["low"] <= found["saves_us_per_step"]["high"] <= found["step_us"]
    assert found["steps"]
    fixed = findings(launch, capsys, reason, "--fixed")
    if reason == "slow-steps":
        assert says not in fixed.get(reason, {"evidence": ""})["evidence"]  # a busy machine has stalls too
    elif reason == "exposed-communication":
        # Less of it is left, not none.
        share = fixed.get(reason, {"share_of_step": {"high": 0.0}})["share_of_step"]["high"]
        assert share < found["share_of_step"]["high"]
    else:
        assert reason not in fixed
    assert set(fixed) <= INCIDENTAL
