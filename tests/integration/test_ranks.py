"""Several ranks: one run, one capture directory, one trace each, none overwritten."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from jobs import SCRIPTS, read_trace, step_numbers

TRAIN = SCRIPTS.parents[2] / "examples" / "train.py"


@pytest.mark.parametrize("by", ["accelerate", "torchrun"])
def test_two_ranks_leave_two_traces_in_one_capture(launch, by):
    outcome = launch(TRAIN, ranks=2, by=by)
    assert outcome.status == 0, outcome.stderr
    assert [trace.rank for trace in outcome.traces] == [0, 1]
    assert {trace.path.parent.name for trace in outcome.traces} == {"step_00000007"}
    for trace in outcome.traces:
        document = read_trace(trace.path)
        assert step_numbers(document) == [7, 8, 9]
        assert document["distributedInfo"]["rank"] == trace.rank
        assert document["distributedInfo"]["world_size"] == 2
        about = document["autoprof"]
        assert (about["rank"], about["world_size"], about["run_id"]) == (trace.rank, 2, outcome.run.name)
        assert (about["first_step"], about["last_step"], about["partial"]) == (7, 9, False)
    assert json.loads((outcome.run / "run.json").read_text())["world_size"] == 2
    assert len(outcome.said) <= 4


@pytest.mark.parametrize(
    ("how", "ranks"), [("debug_launcher", 2), ("notebook_launcher", 1), ("fork", 2), ("spawn", 2)]
)
def test_ranks_started_from_inside_python(launch, how, ranks):
    without, with_us = (
        launch(SCRIPTS / "launchers.py", how, by="python", enable=enable) for enable in (False, True)
    )
    # Ranks interleave within a line.
    letters = [sorted(outcome.stdout) for outcome in (without, with_us)]
    assert (with_us.status, letters[1]) == (0, letters[0]), with_us.stderr
    assert f"trained on {ranks}" in with_us.stdout
    assert [trace.rank for trace in with_us.traces] == list(range(ranks))
    assert {trace.path.parent for trace in with_us.traces} == {with_us.run / "step_00000007"}
    for trace in with_us.traces:
        assert step_numbers(read_trace(trace.path)) == [7, 8, 9]
    assert len(list((with_us.run / "ranks").iterdir())) == ranks


def test_one_process_without_a_group_has_its_rank_in_the_trace(launch):
    outcome = launch(TRAIN, by="accelerate")
    (trace,) = outcome.traces
    assert read_trace(trace.path)["distributedInfo"] == {"rank": 0, "world_size": 1}


@pytest.mark.parametrize(("ranks", "recorded"), [("1", [1]), ("0-7:2", [0]), ("local:1", [1]), ("5", [])])
def test_chosen_ranks_record(launch, ranks, recorded):
    outcome = launch(TRAIN, ranks=2, env={"ACCELPROF_RANKS": ranks})
    assert [trace.rank for trace in outcome.traces] == recorded
    assert outcome.rank(1)["steps"] == 20
    if not recorded:
        assert "ACCELPROF_RANKS=5 selects none of the ranks" in outcome.said[-1]


def test_an_output_folder_named_like_a_file_receives_every_rank(launch):
    outcome = launch(TRAIN, ranks=2, env={"ACCELPROF_OUTPUT_DIR": "trace.json"})
    folder = outcome.output_dir.with_name("trace.json")
    traces = sorted(folder.glob("*/step_*/*"))
    assert [read_trace(trace)["distributedInfo"]["rank"] for trace in traces] == [0, 1]


def test_a_second_run_under_the_same_id_overwrites_nothing(launch, tmp_path):
    env = {"ACCELPROF_RUN_ID": "same", "ACCELPROF_OUTPUT_DIR": str(tmp_path / "shared")}
    launch(TRAIN, env=env)
    before = {path: path.read_bytes() for path in (tmp_path / "shared").rglob("*.gz")}
    manifest = (tmp_path / "shared/same/run.json").read_bytes()
    launch(TRAIN, env=env)
    assert all(path.read_bytes() == content for path, content in before.items())
    assert (tmp_path / "shared/same/run.json").read_bytes() == manifest
    assert len(list((tmp_path / "shared/same").glob("run*.json"))) == 2
    assert len(list((tmp_path / "shared/same/step_00000007").iterdir())) == 2
    assert len(list((tmp_path / "shared/same/ranks").iterdir())) == 2


def test_two_runs_at_once_under_the_same_id_keep_their_own_records(launch, tmp_path):
    env = {"ACCELPROF_RUN_ID": "same", "ACCELPROF_OUTPUT_DIR": str(tmp_path / "shared")}

    def run(_):
        return launch(SCRIPTS / "paced.py", 100, 0.05, by="python", env={**env, "ACCELPROF_STEPS": "10,90"})

    with ThreadPoolExecutor() as pool:
        outcomes = list(pool.map(run, range(2)))
    assert [outcome.status for outcome in outcomes] == [0, 0]
    records = [json.loads(path.read_text()) for path in (tmp_path / "shared/same/ranks").iterdir()]
    ended = [record for record in records if record["steps"] == 100]
    assert len({record["pid"] for record in ended}) == 2
    assert all(len(record["captures"]) == 2 and not record["faults"] for record in ended)
    assert len(list((tmp_path / "shared/same").glob("step_*/*"))) == 4


def test_ranges_of_accelerate_nest_within_their_step(launch):
    (trace,) = launch(TRAIN).traces
    events = [
        e
        for e in read_trace(trace.path)["traceEvents"]
        if e.get("ph") == "X" and e["cat"] == "user_annotation"
    ]
    steps = [e for e in events if e["name"].startswith("ProfilerStep#")]
    for name in ("Accelerator.backward", "AcceleratedOptimizer.step"):
        ranges = [e for e in events if e["name"] == name]
        assert len(ranges) == 3
        for inner, step in zip(ranges, steps, strict=True):
            assert step["ts"] <= inner["ts"]
            assert inner["ts"] + inner["dur"] <= step["ts"] + step["dur"]
