"""A mistake in the settings costs one clear line; the job runs on as if nothing had happened."""

from __future__ import annotations

import os

import pytest
from jobs import SCRIPTS

CASES = {
    "ACCELPROF_ACTIVE=0": "whole number of 1 or more",
    "ACCELPROF_ACTIVE=-1": "whole number of 1 or more",
    "ACCELPROF_ACTIVE=three": "whole number of 1 or more",
    "ACCELPROF_STEPS=9-7": "ascending step ranges",
    "ACCELPROF_RANKS=x": "0-63:8",
    "ACCELPROF_ENABEL=1": "did you mean ACCELPROF_ENABLE?",
    "ACCELPROF_CONFIG=missing.toml": "cannot be read",
}


def setting(case: str) -> dict[str, str]:
    name, _, value = case.partition("=")
    return {name: value}


@pytest.fixture
def clean(launch):
    return launch(SCRIPTS / "loops.py", "plain", enable=False)


def test_one_line_each_and_the_job_goes_on(launch, clean):
    for case, accepted in CASES.items():
        outcome = launch(SCRIPTS / "loops.py", "plain", env=setting(case))
        (line,) = outcome.said
        assert case.partition("=")[0] in line
        assert accepted in line
        assert (outcome.status, outcome.stdout) == (0, clean.stdout)
        assert not outcome.output_dir.exists()


@pytest.mark.parametrize(
    ("case", "by"),
    [
        ("ACCELPROF_ACTIVE=0", "accelerate"),  # the launcher has read it too
        ("ACCELPROF_RANKS=x", ""),
        ("ACCELPROF_ENABEL=1", "accelerate"),
        ("ACCELPROF_ACTIVITIES=hpu", ""),
        (f"ACCELPROF_OUTPUT_DIR={__file__}/x", ""),
    ],
)
def test_two_ranks_say_it_once(launch, case, by):
    name, _, value = case.partition("=")
    outcome = launch(SCRIPTS / "loops.py", "accumulate", ranks=2, by=by, env=setting(case))
    assert outcome.status == 0, outcome.stderr
    (line,) = outcome.said
    assert name in line
    assert value in line or name == "ACCELPROF_ENABEL"
    assert outcome.stdout.replace("\n", "") == '{"accumulate": 3}' * 2  # two ranks interleave within a line
    assert not outcome.output_dir.exists() or outcome.traces == []


@pytest.mark.parametrize("name", ["ACCELPROF_ENABEL", "ACCELPROF_ENABLED"])
def test_a_misspelt_switch_is_noticed_on_its_own(launch, name):
    outcome = launch(SCRIPTS / "loops.py", "plain", enable=False, env={name: "1"})
    (line,) = outcome.said
    assert f"{name} is not a setting; did you mean ACCELPROF_ENABLE?" in line
    assert outcome.status == 0


def test_an_output_folder_that_cannot_be_made(launch, clean, tmp_path):
    (tmp_path / "file").write_text("in the way")
    folder = str(tmp_path / "file" / "traces")
    outcome = launch(SCRIPTS / "loops.py", "plain", env={"ACCELPROF_OUTPUT_DIR": folder})
    (line,) = outcome.said
    assert folder in line
    assert "cannot be written" in line
    assert (outcome.status, outcome.stdout) == (0, clean.stdout)
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_scratch_folder_that_cannot_be_made(launch, clean):
    env = {"ACCELPROF_SCRATCH_DIR": f"{__file__}/x", "ACCELPROF_STEPS": "0-2", "ACCELPROF_WARMUP": "0"}
    outcome = launch(SCRIPTS / "loops.py", "plain", env=env)
    (line,) = outcome.said
    assert "ACCELPROF_SCRATCH_DIR=" in line
    assert (outcome.status, outcome.stdout) == (0, clean.stdout)


def test_an_output_folder_that_fails_while_a_capture_begins(launch, clean):
    env = {"ACCELPROF_OUTPUT_DIR": f"{__file__}/x", "ACCELPROF_STEPS": "0-2", "ACCELPROF_WARMUP": "0"}
    outcome = launch(SCRIPTS / "loops.py", "plain", env=env)
    assert [line for line in outcome.said if "ACCELPROF_OUTPUT_DIR=" in line]
    assert (outcome.status, outcome.stdout) == (0, clean.stdout)


def test_an_output_folder_that_is_a_pipe_stays_one(launch, clean, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    outcome = launch(SCRIPTS / "loops.py", "plain", env={"ACCELPROF_OUTPUT_DIR": str(tmp_path / "pipe")})
    (line,) = outcome.said
    assert "cannot be written" in line
    assert (outcome.status, outcome.stdout) == (0, clean.stdout)
    assert (tmp_path / "pipe").is_fifo()


def test_an_activity_that_this_machine_lacks(launch, clean):
    outcome = launch(
        SCRIPTS / "loops.py", "plain", env={"ACCELPROF_ACTIVITIES": "cpu,hpu", "ACCELPROF_STEPS": "3"}
    )
    (line,) = [line for line in outcome.said if "ACCELPROF_ACTIVITIES" in line]
    assert "hpu, which this machine lacks; recording cpu" in line
    assert (outcome.status, outcome.stdout) == (0, clean.stdout)
    assert len(outcome.traces) == 1


def test_no_activity_that_this_machine_has(launch, clean):
    outcome = launch(SCRIPTS / "loops.py", "plain", env={"ACCELPROF_ACTIVITIES": "hpu"})
    (line,) = outcome.said
    assert "recording nothing" in line
    assert (outcome.status, outcome.stdout) == (0, clean.stdout)


@pytest.mark.parametrize(
    "case",
    [
        "ACCELPROF_ACTIVE=three",
        "ACCELPROF_ENABEL=1",
        "ACCELPROF_ACTIVITIES=hpu",
        f"ACCELPROF_OUTPUT_DIR={__file__}/x",
    ],
)
def test_strict_ends_the_job_before_it_trains(launch, case):
    outcome = launch(SCRIPTS / "loops.py", "plain", env={"ACCELPROF_STRICT": "1", **setting(case)})
    assert outcome.status != 0
    assert outcome.stdout == ""
    (line,) = outcome.said
    assert case.partition("=")[0] in line
    assert "Traceback" not in outcome.stderr


@pytest.mark.parametrize("case", ["ACCELPROF_ACTIVE=three", f"ACCELPROF_OUTPUT_DIR={__file__}/x"])
def test_strict_ends_a_job_of_two_ranks_before_it_trains(launch, case):
    env = {"ACCELPROF_STRICT": "1", **setting(case)}
    outcome = launch(SCRIPTS / "loops.py", "plain", ranks=2, env=env)
    assert outcome.status != 0
    assert outcome.stdout == ""
    assert outcome.said
    assert all(case.partition("=")[0] in line for line in outcome.said)
