"""``autoprof device``: streams, launches, copies, collectives."""

from __future__ import annotations

import json

import pytest
from traces import document, kernel, slice_, step

from autoprof.cli import main

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


@pytest.fixture
def told(capsys):
    def told_(place, *options):
        assert main(["device", str(place), "--json", *options]) == 0
        return json.loads(capsys.readouterr().out)

    return told_


def launch(ts, dur, correlation, name="cudaLaunchKernel"):
    return slice_(name, ts, dur, cat="cuda_runtime", args={"correlation": correlation})


def work(name, ts, dur, correlation=None, stream=7, **args):
    known = {} if correlation is None else {"correlation": correlation}
    return kernel(name, ts, dur, stream, args=known | args)


def copy(name, ts, dur, size):
    return kernel(name, ts, dur, cat="gpu_memcpy", args={"bytes": size})


def test_a_stream_waits_for_the_cpu_for_starts_for_communication_or_for_something_else(write, told):
    events = [
        launch(0, 5, 1),
        work("first", 10, 40, 1),
        launch(6, 5, 2),
        work("second", 70, 30, 2),  # launched long before: 20 us to start
        launch(300, 5, 3),
        work("third", 310, 90, 3),  # launched after the stream fell idle at 100: 210 us for the CPU
        launch(320, 5, 4),
        work("fourth", 500, 100, 4),  # launched before: of 100 us idle, 60 with communication elsewhere
        launch(321, 5, 5),
        work(ALL_REDUCE, 430, 60, 5, stream=20),
    ]
    (trace,) = told(write(document(events)))["traces"]
    compute, communication = trace["streams"]
    assert compute == {
        "stream": "0:7",
        "events": 4,
        "busy_us": 260.0,
        "idle_us": 330.0,
        "host_wait_us": 210.0,
        "start_us": 20.0,
        "communication_wait_us": 60.0,
        "other_us": 40.0,
        "queue_mean": 0.528,  # 264 us of waiting work over 500 us
        "queue_mean_at_changes": 0.75,
        "queue_longest": 2,
    }
    assert (communication["stream"], communication["idle_us"]) == ("0:20", 0.0)


def test_the_device_as_a_whole_waits_for_the_cpu_where_work_came_late(write, told):
    events = [
        step(0, 0, 100),
        step(1, 100, 100),
        launch(0, 5, 1),
        work("first", 10, 40, 1),
        launch(60, 5, 2),
        work("late", 70, 10, 2),
        launch(61, 5, 3),
        work("in time", 150, 50, 3),
    ]
    (trace,) = told(write(document(events)))["traces"]
    assert trace["device"]["idle_us"] == 90.0
    assert trace["device"]["host_wait_us"] == 20.0
    assert trace["device_per_step_median"]["host_wait_us"] == 10.0  # 20 in one step, none in the other


def test_launches_have_calls_delays_and_work(write, told):
    events = [
        launch(0, 10, 1),
        work("longer than its call", 15, 20, 1),
        launch(20, 30, 2),
        work("shorter than its call", 40, 5, 2),
        launch(60, 10, 3, name="cudaGraphLaunch"),  # two pieces, together longer than the call
        work("one of a graph", 80, 6, 3),
        work("another", 90, 6, 3),
        work("of unknown origin", 200, 5),
    ]
    (trace,) = told(write(document(events)))["traces"]
    made = trace["launches"]
    assert (made["calls"], made["pieces"], made["short"]) == (3, 4, 1)
    assert made["call"] == {"median_us": 10.0, "p95_us": 28.0, "max_us": 30.0, "total_us": 50.0}
    assert made["delay"] == {"median_us": 7.5, "p95_us": 18.5, "max_us": 20.0, "total_us": 35.0}
    assert made["work"]["total_us"] == 37.0


def test_a_trace_without_launches_says_so_and_not_zero(write, told):
    (trace,) = told(write(document([kernel("gemm", 0, 10), kernel("gemm", 20, 10)])))["traces"]
    assert trace["launches"] is None
    assert trace["device"]["host_wait_us"] is None
    (stream,) = trace["streams"]
    assert stream["queue_longest"] is None
    assert (stream["idle_us"], stream["start_us"]) == (10.0, 10.0)


def test_copies_have_sizes_and_speeds(write, told):
    events = [
        copy("Memcpy HtoD (Pageable -> Device)", 0, 10, 20_000),
        copy("Memcpy HtoD (Pinned -> Device)", 20, 10, 60_000),
        copy("Memcpy HtoD (Pinned -> Device)", 40, 0, 8),
        kernel("Memset (Device)", 60, 5, cat="gpu_memset"),
    ]
    (trace,) = told(write(document(events)))["traces"]
    to_device, fills = trace["copies"]
    assert to_device == {
        "kind": "Memcpy HtoD",
        "count": 3,
        "pageable": 1,
        "time_us": 20.0,
        "sized": 3,
        "size_bytes": 80_008,
        "mean_gb_per_s": 4.0,
        "max_gb_per_s": 6.0,
        "overall_gb_per_s": 4.0,
    }
    assert (fills["kind"], fills["sized"], fills["mean_gb_per_s"]) == ("Memset", 0, None)


def described(ts, dur, elements, **fields):
    about = {
        "Collective name": "allreduce",
        "In msg nelems": elements,
        "dtype": "Float",
        "Process Group Name": "0",
        "Process Group Ranks": "[0, 1]",
    }
    return work(ALL_REDUCE, ts, dur, stream=20, **about) | fields


def test_collectives_have_groups_sizes_and_speeds(write, told):
    events = [described(0, 10, 1000), described(50, 30, 2000), work(ALL_REDUCE, 100, 5, stream=20)]
    (trace,) = told(write(document(events)))["traces"]
    known, unknown = trace["collectives"]
    assert known == {
        "kind": "allreduce",
        "group": "0 [0, 1]",
        "count": 2,
        "time_us": 40.0,
        "sized": 2,
        "size_bytes": 12_000,
        "gb_per_s": 0.3,
    }
    assert (unknown["kind"], unknown["group"], unknown["sized"], unknown["gb_per_s"]) == (
        "allreduce",
        "",
        0,
        None,
    )


def test_ranks_wait_for_the_one_that_comes_last(write, tmp_path, told):
    # Rank 1 comes 30 us late to the first and rank 0 10 us late to the second; the clocks do not agree.
    write(document([described(0, 40, 8), described(100, 20, 8)], rank=0), "rank0.json")
    write(document([described(5030, 10, 8), described(5100, 30, 8)], rank=1), "rank1.json")
    (capture,) = told(tmp_path)["captures"]
    assert capture["waited_in_collectives_us"] == [
        {"rank": 0, "waited_us": 30.0},
        {"rank": 1, "waited_us": 10.0},
    ]


def test_ranks_with_different_collectives_are_not_compared(write, tmp_path, told):
    write(document([described(0, 40, 8)], rank=0), "rank0.json")
    write(document([described(0, 10, 8), described(100, 30, 8)], rank=1), "rank1.json")
    (capture,) = told(tmp_path)["captures"]
    assert capture["waited_in_collectives_us"] == []


def test_the_tables_show_it_all(write, capsys):
    events = [
        launch(0, 5, 1),
        work("gemm", 10, 40, 1),
        copy("Memcpy HtoD (Pageable -> Device)", 60, 10, 20_000),
        described(80, 10, 1000),
    ]
    assert main(["device", str(write(document(events)))]) == 0
    out = capsys.readouterr().out
    for title in ("streams, ms", "launches, us", "copies and fills", "collectives"):
        assert title in out


def test_a_rank_without_an_accelerator_says_so(write, capsys):
    assert main(["device", str(write(document([slice_("aten::mm", 0, 5)])))]) == 0
    assert capsys.readouterr().out == "no trace holds an event of an accelerator\n"


def test_a_rank_that_is_not_there_is_one_line(write, capsys):
    assert main(["device", str(write(document([kernel("gemm", 0, 5)]))), "--rank", "9"]) == 1
    assert "no trace of rank 9" in capsys.readouterr().err
