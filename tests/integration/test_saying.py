"""What a person reads on stderr, and what stays away from stdout."""

from __future__ import annotations

from jobs import SCRIPTS, read_trace, step_numbers

TRAIN = SCRIPTS.parents[2] / "examples" / "train.py"


def test_a_run_that_is_too_short_says_what_would_fit(launch):
    outcome = launch(TRAIN, "--steps", "6")
    assert outcome.said[-1].startswith(
        "autoprof: nothing recorded: the run ended after 6 steps; the capture was planned for steps 7-9"
    )
    assert "ACCELPROF_STEPS=3-5 would fit" in outcome.said[-1]
    assert outcome.traces == []


def test_a_run_that_ends_inside_its_capture_leaves_a_partial_trace(launch):
    outcome = launch(TRAIN, "--steps", "9")
    document = read_trace(outcome.traces[0].path)
    assert step_numbers(document) == [7, 8]
    assert (document["autoprof"]["partial"], document["autoprof"]["last_step"]) == (True, 8)
    assert "partial: 7-9 was planned" in outcome.said[-1]


def test_quiet_says_nothing_when_all_is_well(launch):
    assert launch(TRAIN, env={"ACCELPROF_LOG_LEVEL": "quiet"}).said == []


def test_torchs_chatter_stays_away(launch):
    outcome = launch(TRAIN)
    assert "USDT" not in outcome.stderr
    assert "rofiler" not in "".join(
        line for line in outcome.stderr.splitlines() if not line.startswith("autoprof:")
    )


def test_an_accelerator_that_is_never_used(launch):
    outcome = launch("-c", "import accelerate; accelerate.Accelerator()")
    assert outcome.said == [
        "autoprof: nothing recorded: the Accelerator saw no batch, backward or optimizer step"
    ]
    assert outcome.left() == []


def test_accelerate_without_an_accelerator_is_silent(launch):
    outcome = launch("-c", "import accelerate")
    assert (outcome.said, outcome.left()) == ([], [])


def test_processes_that_are_not_ranks_stay_out_of_it(launch):
    script = "import sys; assert not {'torch', 'wrapt', 'accelerate'} & set(sys.modules); print('ok')"
    outcome = launch("-c", script)
    assert (outcome.stdout, outcome.stderr) == ("ok\n", "")
    outcome = launch("-m", "pip", "--version")
    assert (outcome.status, outcome.stderr) == (0, "")


def test_dataloader_workers_write_nothing(launch):
    outcome = launch(TRAIN, "--workers", "2")
    assert outcome.status == 0
    assert len(outcome.traces) == 1
    assert len(list(outcome.run.glob("ranks/*"))) == 1
