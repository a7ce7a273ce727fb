"""What every step cost, as real jobs leave it: with traces and without, whatever becomes of the job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from jobs import BIN, REPOSITORY, SCRIPTS

from autoprof.cli import main
from autoprof.run import pace, steps

TRAIN = REPOSITORY / "examples" / "train.py"
READS = SCRIPTS / "reads_data.py"
NO_CAPTURE = {"ACCELPROF_STEPS": "1000000"}


def records_of(outcome, rank=0):
    paths, older = steps.find(outcome.run)
    assert older == 0
    file = next(file for file in map(steps.read, paths) if file.rank == rank)
    assert not file.cut_off
    return file.records


def test_every_step_has_a_record_and_says_whether_it_was_profiled(launch):
    outcome = launch(TRAIN)
    records = records_of(outcome)
    assert [one[:3] for one in records] == [(step, step, 1) for step in range(20)]
    # Two of warmup, three recorded, and the one in which the recording was stopped.
    assert [one.first_step for one in records if one.profiled] == [5, 6, 7, 8, 9, 10]
    assert all(one.micro_steps == 1 and not one.skipped for one in records)
    for one in records:
        assert 0 < one.optimizer_s < one.wall_s
        assert 0 < one.wait_s < one.wall_s
    assert outcome.rank()["step_records"] == str(steps.find(outcome.run)[0][0].relative_to(outcome.run))
    assert outcome.said[-2].startswith("autoprof: rank 0: 20 steps, median ")
    assert "of the time waiting for data: the input pipeline " in outcome.said[-2]


def test_accumulation_and_skipped_updates_are_on_record(launch):
    accumulated = records_of(launch(SCRIPTS / "loops.py", "accumulate", env=NO_CAPTURE))
    assert [one.micro_steps for one in accumulated] == [4, 4, 4, 4, 2]
    skipped = records_of(launch(SCRIPTS / "loops.py", "skipped_steps", env=NO_CAPTURE))
    assert [one.skipped for one in skipped] == [0, 1, 0, 0, 1, 0]


def test_steps_known_late_and_batches_before_training(launch):
    late = records_of(launch(SCRIPTS / "loops.py", "own_optimizer", env=NO_CAPTURE))
    assert [one[:3] for one in late] == [(0, 0, 3), *((step, step, 1) for step in range(3, 8))]
    early = launch(SCRIPTS / "loops.py", "evaluation_before_there_is_an_optimizer", env=NO_CAPTURE)
    assert [one.first_step for one in records_of(early)] == list(range(6))


def test_a_dataset_that_sleeps_is_named(launch, capsys):
    outcome = launch(READS, 20, 0.02, "0", env=NO_CAPTURE)
    assert outcome.said[-2].endswith("of the time waiting for data: the input pipeline is to blame")
    assert outcome.said[-1].startswith("autoprof: nothing recorded: the run ended after 20 steps")
    assert outcome.traces == []
    assert main(["steps", str(outcome.run)]) == 0
    assert "the input pipeline is to blame: rank 0 spent " in capsys.readouterr().out
    assert main(["summary", str(outcome.output_dir)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"no trace in {outcome.run}; this is from its step records\n")
    assert "the input pipeline is to blame" in shown
    assert main(["summary", str(outcome.run), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["traces"] == []
    assert document["step_records"]["verdict"]["input_pipeline"] == pace.TO_BLAME


def test_the_rank_that_reads_slowly_is_named(launch, capsys):
    outcome = launch(READS, 20, 0.03, "1", ranks=2, env=NO_CAPTURE)
    assert outcome.statuses == [0, 0], outcome.stderr
    assert "the input pipeline" not in outcome.stderr  # rank 0 speaks and does not know
    assert "`autoprof steps` tells of all 2 ranks" in outcome.said[-2]
    assert [len(records_of(outcome, rank)) for rank in (0, 1)] == [20, 20]
    assert main(["steps", str(outcome.run), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"]["input_pipeline"] == pace.TO_BLAME
    assert (document["verdict"]["waiting_rank"], document["verdict"]["slow_rank"]) == (1, 1)
    assert [one["rank"] for one in document["ranks"]] == [0, 1]
    assert document["ranks"][1]["wait_share"] > 0.5


def test_ranks_that_record_no_trace_have_records(launch):
    outcome = launch(TRAIN, ranks=2, env={"ACCELPROF_RANKS": "0"})
    assert [len(records_of(outcome, rank)) for rank in (0, 1)] == [20, 20]
    assert not any(one.profiled for one in records_of(outcome, 1))


def test_switched_off_nothing_is_kept(launch, capsys):
    outcome = launch(TRAIN, env={"ACCELPROF_STEP_RECORDS": "0"})
    assert not (outcome.run / steps.FOLDER).exists()
    assert "waiting for data" not in outcome.stderr
    assert main(["steps", str(outcome.run)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"autoprof steps: no step records in {outcome.run}; ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(("end", "status"), [("terminate", -signal.SIGTERM), ("_exit", 4)])
def test_a_job_that_ends_abruptly_leaves_what_had_been_written(launch, end, status):
    outcome = launch(READS, 150, 0.015, "0", end, env=NO_CAPTURE)
    assert outcome.status == status
    written = [one.first_step for one in records_of(outcome)]
    assert written == list(range(len(written)))
    assert len(written) > 1


@pytest.mark.parametrize(("end", "status"), [("terminate", -signal.SIGTERM), ("_exit", 4)])
def test_during_a_capture_nothing_is_lost(launch, end, status):
    outcome = launch(READS, 12, 0.0, "0", end, env={"ACCELPROF_STEPS": "4-99"})
    assert outcome.status == status
    assert len(records_of(outcome)) == 12


def test_a_fork_writes_nothing(launch):
    outcome = launch(READS, 12, 0.0, "0", "fork", env=NO_CAPTURE)
    assert (outcome.status, outcome.stdout) == (0, "the child ended with 5\ntrained to the end\n")
    assert len(records_of(outcome)) == 12


def test_a_job_that_is_killed_while_it_runs_can_be_looked_at_before_and_after(tmp_path, capsys):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ACCELPROF_")}
    environment |= NO_CAPTURE | {"ACCELPROF_ENABLE": "1", "ACCELPROF_OUTPUT_DIR": str(tmp_path / "traces")}
    environment |= {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    with (tmp_path / "out").open("w") as out:
        job = subprocess.Popen(
            [BIN / "python", READS, "100000", "0.01", "0"], env=environment, stdout=out, stderr=out
        )
        try:
            deadline = time.monotonic() + 120
            while not (written := list(Path(tmp_path).glob("traces/*/steps/*.steps"))):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            while len(steps.read(written[0]).records) < 10:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            job.kill()
            job.wait()
    assert main(["steps", str(tmp_path / "traces")]) == 0
    assert "the input pipeline is to blame" in capsys.readouterr().out
