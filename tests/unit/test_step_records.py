"""What every step cost: the file's format, thinning, and what the records say."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoprof.agent import step_records
from autoprof.agent.finisher import Finisher
from autoprof.agent.step_records import Kept, StepRecords, packed
from autoprof.run import pace, steps
from autoprof.run.steps import RECORD_BYTES, StepFileError, StepRecord

ABOUT = {"rank": 3, "host": "node", "accelerator": ""}


def record(step, wall_s=0.5, wait_s=0.0, **changes):
    one = StepRecord(step, step, 1, 1, 0, 0, wall_s, wait_s, 0.125, wall_s, wall_s)
    return one._replace(**changes)


def run_of(count, **options):
    return [record(step, **options) for step in range(count)]


def joined(records, most_steps):
    return list(map(StepRecord._make, step_records.joined(records, most_steps)))


def file_of(records, rank=0, **changes):
    return steps.StepFile("file", rank, "node", changes.get("accelerator", ""), records, cut_off=False)


def written(folder, records, rank=3, time_ns=1, **about):
    path = folder / steps.FOLDER / steps.file_name(rank, "node.cluster", 42, time_ns)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(steps.header(**{**ABOUT, "rank": rank, **about}) + steps.pack(records))
    return path


# The file.


def test_what_is_written_is_read(tmp_path):
    records = [*run_of(5), record(9, skipped=1, profiled=1, micro_steps=4)]
    found = steps.read(written(tmp_path, records, accelerator="cuda"))
    assert (found.rank, found.host, found.accelerator, found.cut_off) == (3, "node", "cuda", False)
    assert found.records == records


def test_a_file_cut_anywhere_is_read_up_to_its_last_whole_record(tmp_path):
    path = written(tmp_path, run_of(3))
    whole = path.read_bytes()
    begin = whole.index(b"\n") + 1
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        if size < begin:
            with pytest.raises(StepFileError, match="cut off in its first line"):
                steps.read(path)
            continue
        found = steps.read(path)
        assert len(found.records) == (size - begin) // RECORD_BYTES
        assert found.cut_off is ((size - begin) % RECORD_BYTES > 0)


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([record(0, steps=0)], "stands for no step"),
        ([record(4), record(4)], "begins at step 4, but the one before it reaches step 4"),
        ([record(0, steps=3), record(2)], "reaches step 2"),
        ([record(5, slowest_step=4)], "slowest step is 4, before its first, 5"),
        ([record(0, skipped=2)], "counts more"),
        ([record(0, wall_s=float("nan"))], "not a number of seconds"),
        ([record(0, wait_s=-1.0)], "not a number of seconds"),
    ],
)
def test_damage_is_named_with_its_place(tmp_path, records, why):
    path = written(tmp_path, records)
    with pytest.raises(StepFileError, match=why) as raised:
        steps.read(path)
    assert str(raised.value).startswith(f"{path}: record {len(records) - 1} is damaged")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "cut off in its first line"),
        (b"[1]\n", "not a file of step records"),
        (b"\xff\xfe\n", "not a file of step records"),
        (b"[" * 60000 + b"\n", "not a file of step records"),
        (steps.header(**ABOUT, schema=2), "schema 2; this version reads schema 1"),
        (steps.header(**ABOUT | {"rank": -1}), "lacks rank, host or accelerator"),
        (steps.header(rank=0), "lacks rank, host or accelerator"),
    ],
)
def test_what_is_no_such_file_is_said(tmp_path, content, why):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(StepFileError, match=why):
        steps.read(path)


def test_the_newest_file_of_each_rank_is_found(tmp_path):
    paths = [
        written(tmp_path, [], rank=rank, time_ns=time) for rank, time in ((1, 5), (0, 9), (1, 11), (1, 7))
    ]
    (tmp_path / steps.FOLDER / f".{paths[0].name}.1-2.tmp").touch()
    (tmp_path / steps.FOLDER / "notes.txt").touch()
    assert steps.find(tmp_path) == ([paths[1], paths[2]], 2)
    assert steps.find(tmp_path / "nowhere") == ([], 0)


# Thinning.


@given(st.lists(st.integers(1, 3), min_size=1, max_size=60), st.integers(2, 8))
def test_joining_keeps_sums_order_and_the_slowest_step(lengths, most):
    records, step = [], 0
    for at, length in enumerate(lengths):
        wall = 0.25 + (at * 7 % 5)
        records.append(
            record(step, length * wall, wait_s=0.125 * at, steps=length, one_wall_s=wall, slowest_wall_s=wall)
        )
        step += length
    groups = joined(records, most)
    for name in ("steps", "micro_steps", "wall_s", "wait_s", "optimizer_s"):
        assert sum(getattr(one, name) for one in groups) == sum(getattr(one, name) for one in records)
    assert all(one.steps <= max(most, 3) for one in groups)
    assert groups[0].first_step == 0
    assert all(a.first_step + a.steps == b.first_step for a, b in itertools.pairwise(groups))
    assert max(one.slowest_wall_s for one in groups) == max(one.slowest_wall_s for one in records)
    assert {one.one_wall_s for one in groups} <= {one.one_wall_s for one in records}


def test_a_group_names_its_slowest_step_without_a_profiler():
    group = joined([record(0, 1.0), record(1, 9.0, profiled=1), record(2, 3.0)], 4)
    assert group[0][:6] == (0, 2, 3, 3, 0, 1)
    assert group[0].slowest_wall_s == 3.0


def test_a_long_job_stays_bounded_and_keeps_the_newest_steps_one_by_one():
    kept, count, thinned = Kept(), 200_000, 0
    for first in range(0, count, 500):
        fresh = [record(step, 1.0 if step != 1234 else 8.0) for step in range(first, first + 500)]
        thinned += kept.add(steps.pack(fresh))
        assert len(kept.data) <= 8192 * RECORD_BYTES
    records = steps.unpack(bytes(kept.data))
    assert thinned > 10
    assert len(records) > 4096
    assert sum(one.steps for one in records) == count
    assert sum(one.wall_s for one in records) == count + 7
    assert [one[:3] for one in records[-2048:]] == [(step, step, 1) for step in range(count - 2048, count)]
    assert max(one.steps for one in records) <= 128
    assert max(records, key=lambda one: one.slowest_wall_s).slowest_step == 1234


def test_thinning_leaves_the_draws_of_the_script_alone():
    random.seed(7)
    expected = random.random()
    random.seed(7)
    joined(run_of(100), 4)
    assert random.random() == expected


def test_the_spread_of_thinned_steps_is_that_of_the_steps():
    slow_every_third = [record(step, 4.0 if step % 3 == 0 else 1.0) for step in range(30_000)]
    quarter, median, three_quarters = pace.quantiles(joined(slow_every_third, 8))
    assert (quarter, median, three_quarters) == (1.0, 1.0, 4.0)


def test_steps_that_ended_at_once_share_one_record_and_know_of_the_profiler():
    (one,) = steps.unpack(packed([(4, 3, 1.5, 0.25, 0.125, 3, True)], {2, 5, 7}))
    assert one == StepRecord(4, 4, 3, 3, 1, 1, 1.5, 0.25, 0.125, 0.5, 0.5)


# Writing.


@pytest.fixture
def records(tmp_path):
    told = []
    made = StepRecords(
        tmp_path / "steps" / "rank00000.node_1.1.steps",
        steps.header(**ABOUT),
        Finisher(),
        failed=told.append,
        written=lambda: told.append("written"),
    )
    made.told = told
    return made


def take(records, first, last, seconds=0.5):
    for step in range(first, last):
        records.add((step, 1, seconds, 0.25, 0.125, 1, False), now=-1.0)


def numbers(records):
    return [one.first_step for one in steps.read(records.path).records]


def test_records_are_appended(records):
    take(records, 0, 3)
    records.flush()
    first = records.path.stat().st_ino
    take(records, 3, 5)
    records.flush()
    assert numbers(records) == [0, 1, 2, 3, 4]
    assert records.path.stat().st_ino == first
    records.flush()
    assert records.told == ["written"] * 2


@pytest.mark.parametrize("meddle", ["remove", "cut", "grow"])
def test_a_file_that_somebody_changed_is_written_anew(records, meddle):
    take(records, 0, 3)
    records.flush()
    content = records.path.read_bytes()
    if meddle == "remove":
        records.path.unlink()
    else:
        records.path.write_bytes(content[:-5] if meddle == "cut" else content + b"x")
    take(records, 3, 4)
    records.flush()
    assert numbers(records) == [0, 1, 2, 3]


def test_what_cannot_be_written_is_said_once_and_tried_again(records, tmp_path):
    (tmp_path / "steps").write_text("a file stands where the folder should")
    for first in (0, 2):
        take(records, first, first + 2)
        records.flush()
    assert len(records.told) == 1
    assert isinstance(records.told[0], OSError)
    (tmp_path / "steps").unlink()
    records.flush()
    assert numbers(records) == [0, 1, 2, 3]


def test_batches_that_turn_out_to_be_no_steps_are_dropped(records):
    take(records, 0, 3)
    records.flush()
    take(records, 3, 5)
    records.note_profiled(4)
    records.start_over()
    take(records, 0, 2, seconds=2.0)
    records.flush()
    found = steps.read(records.path).records
    assert [(one.first_step, one.wall_s, one.profiled) for one in found] == [(0, 2.0, 0), (1, 2.0, 0)]


def test_a_step_overtaken_by_another_threads_is_put_in_order_or_counted_as_missing(records):
    for step in (0, 2, 1, 4):
        take(records, step, step + 1)
    records.flush()
    take(records, 3, 4)
    take(records, 5, 6)
    records.flush()
    found = steps.read(records.path)
    assert [one.first_step for one in found.records] == [0, 1, 2, 4, 5]
    assert pace.pace(found).missing == 1


def test_steps_pushed_out_while_the_finisher_is_stuck_are_counted_as_missing(records):
    records._due_at, records._due_count = float("inf"), 10**9  # as while a flush is under way
    take(records, 0, 40_001)
    records.flush()
    found = pace.pace(steps.read(records.path))
    assert (found.steps, found.missing) == (32_768, 7_233)


# What they say.


def judged(*records_of_ranks, **options):
    return pace.verdict(
        [pace.pace(file_of(each, rank, **options)) for rank, each in enumerate(records_of_ranks)]
    )


@pytest.mark.parametrize(
    ("wait_s", "verdict", "words"),
    [
        (0.3, pace.TO_BLAME, "the input pipeline is to blame: rank 0 spent 60% of its time waiting for data"),
        (0.05, pace.COSTS, "the input pipeline costs some time: rank 0 spent 10%"),
        (0.001, pace.NOT_TO_BLAME, "the input pipeline is not to blame: rank 0 spent under 1%"),
        (0.0, pace.UNKNOWN, "is unknown: no prepared dataloader handed out a batch"),
    ],
)
def test_the_input_pipeline_is_judged_by_the_time_spent_waiting(wait_s, verdict, words):
    found = judged(run_of(20, wait_s=wait_s))
    assert found.input_pipeline == verdict
    assert words in found.lines[0]


def test_an_accelerator_may_have_hidden_the_wait():
    found = judged(run_of(20, wait_s=0.3), accelerator="cuda")
    assert "(cuda may have worked meanwhile; a capture tells)" in found.lines[0]


def test_neither_the_first_step_nor_profiled_ones_count():
    records = [record(0, 90.0, 80.0), *run_of(10)[1:], record(10, 50.0, 40.0, profiled=1)]
    found = pace.pace(file_of(records))
    assert (found.steps, found.counted, found.profiled) == (11, 9, 1)
    assert (found.median_s, found.wait_s) == (0.5, 0.0)
    assert found.slowest[0][1] == 0.5
    only = pace.pace(file_of([record(0, 90.0, 80.0)]))
    assert (only.counted, only.median_s) == (1, 90.0)


def test_the_slowest_steps_are_named():
    records = run_of(20)
    records[7] = record(7, 3.0)
    records[3] = record(3, 2.0)
    assert pace.pace(file_of(records)).slowest == [(7, 3.0), (3, 2.0), (1, 0.5)]


def test_a_slow_rank_is_named():
    found = judged(run_of(20), run_of(20, wall_s=0.75), run_of(20, wall_s=0.5))
    assert found.slow_rank == 1
    assert found.lines[1] == "rank 1 is slow: its median step takes 1.50 times that of rank 0"


def test_the_rank_that_others_wait_for_is_the_one_that_waits_for_data():
    found = judged(run_of(20, wait_s=0.01), run_of(20, wait_s=0.3))
    assert (found.slow_rank, found.waiting_rank) == (1, 1)
    assert "the others probably wait for rank 1" in found.lines[1]


def test_ranks_that_keep_step_are_not_told_apart():
    found = judged(run_of(20, wait_s=0.01), run_of(20, wait_s=0.01))
    assert found.slow_rank is None
    assert "takes a capture to tell" in found.lines[1]


def test_one_line_for_the_end_of_a_run():
    one = pace.pace(file_of(run_of(1200, wait_s=0.3)))
    assert pace.in_one_line(one) == (
        "rank 0: 1,200 steps, median 500 ms, half of them 500 ms to 500 ms; "
        "60% of the time waiting for data: the input pipeline is to blame"
    )
    fast = dataclasses.replace(one, wait_s=1.0)
    assert pace.in_one_line(fast).endswith("waiting for data: the input pipeline is not to blame")
    assert pace.in_one_line(fast, ranks=2).endswith(
        "under 1% of its time waiting for data; `autoprof steps` tells of all 2 ranks"
    )
    assert pace.in_one_line(one, ranks=2).endswith("the input pipeline is to blame")
    assert "unknown" in pace.in_one_line(dataclasses.replace(one, wait_s=0.0))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 us"),
        (2e-6, "2 us"),
        (0.0123, "12.3 ms"),
        (0.25, "250 ms"),
        (1.5, "1.50 s"),
        (4000, "4,000 s"),
    ],
)
def test_durations_read_well(seconds, text):
    assert pace.duration(seconds) == text
