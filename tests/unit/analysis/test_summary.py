"""``autoprof summary``: where the time went."""

from __future__ import annotations

import json

import numpy as np
import pytest
from traces import document, kernel, slice_, step

from autoprof.analysis.cover import Cover
from autoprof.analysis.reader import read_trace
from autoprof.cli import main
from autoprof.run import layout


def summary(place, capsys, *options, status=0):
    assert main(["summary", str(place), "--json", *options]) == status
    return json.loads(capsys.readouterr().out)


def mark(name, ts, dur, **fields):
    return slice_(name, ts, dur, cat="user_annotation", **fields)


def training_step(number, ts):
    """1000 us: 100 data, 200 forward, 300 backward, 150 optimizer, 250 the rest."""
    return [
        step(number, ts, 1000),
        mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", ts + 50, 100),
        mark("DistributedDataParallel.forward", ts + 200, 200),
        mark("Accelerator.backward", ts + 500, 300),
        mark("DistributedDataParallel.forward", ts + 600, 50),  # recomputed: backward has it
        mark("gloo:all_reduce", ts + 700, 80, tid=2),
        mark("AcceleratedOptimizer.step", ts + 820, 150),
        mark("Optimizer.step#AdamW.step", ts + 830, 130),
    ]


def test_a_step_is_made_of_phases_that_add_up(write, capsys):
    path = write(document([event for i in range(3) for event in training_step(i, 1000.0 * i)]))
    (trace,) = summary(path, capsys)["traces"]
    wanted = {
        "data_us": 100.0,
        "forward_us": 200.0,
        "backward_us": 300.0,
        "optimizer_us": 150.0,
        "other_us": 250.0,
        "collective_us": 80.0,
        "collective_alone_us": 80.0,
    }
    assert [one["phases"] for one in trace["steps"]] == [wanted] * 3
    assert [one["number"] for one in trace["steps"]] == [0, 1, 2]
    del wanted["collective_alone_us"]
    assert trace["phases_median"] == wanted
    assert trace["device"] is None
    assert (trace["forward_from"], trace["backward_from"]) == ("ranges", "ranges")


def test_forward_without_a_range_lies_between_the_batch_and_backward(write, capsys):
    events = [event for event in training_step(4, 0) if "forward" not in event["name"]]
    (trace,) = summary(write(document(events)), capsys)["traces"]
    assert trace["phases_median"]["forward_us"] == 350.0  # from the end of the batch at 150 to 500
    assert "between the batch" in trace["forward_from"]


def test_backward_without_a_range_is_told_by_autograd(write, capsys):
    events = [
        step(1, 0, 100),
        slice_("autograd::engine::evaluate_function: MmBackward0", 40, 20, tid=9),
        slice_("autograd::engine::evaluate_function: AddBackward0", 60, 10, tid=9),
    ]
    (trace,) = summary(write(document(events)), capsys)["traces"]
    assert trace["phases_median"]["backward_us"] == 30.0
    assert "autograd" in trace["backward_from"]


def test_what_a_trace_does_not_tell_is_null_not_zero(write, capsys):
    (trace,) = summary(write(document([step(1, 0, 100), slice_("aten::mm", 10, 20)])), capsys)["traces"]
    told = {name for name, value in trace["phases_median"].items() if value is not None}
    assert told == {"other_us"}


def test_step_time_has_a_median_and_a_spread(write, capsys):
    lengths = [100, 110, 90, 100, 300]
    events = [step(i, 1000 * i, length) for i, length in enumerate(lengths)]
    events.append(mark("step 5 (cut short)", 5000, 40))
    (trace,) = summary(write(document(events)), capsys)["traces"]
    assert trace["step_time"] == {
        "count": 5,
        "median_us": 100.0,
        "min_us": 90.0,
        "max_us": 300.0,
        "spread_us": 10.0,
    }


def test_the_device_computes_communicates_copies_or_idles(write, capsys):
    events = [
        step(0, 0, 100),
        step(1, 100, 100),
        kernel("gemm", 10, 40),
        kernel("gemm", 30, 30, stream=8),  # runs beside the other: counted once
        kernel("ncclDevKernel_AllReduce_Sum_f32", 50, 30, stream=20),
        kernel("Memcpy HtoD (Pageable -> Device)", 85, 5, cat="gpu_memcpy"),
        kernel("gemm", 190, 20),
    ]
    (trace,) = summary(write(document(events)), capsys)["traces"]
    assert trace["device"] == {
        "busy_us": 95.0,
        "idle_us": 105.0,
        "computation_us": 70.0,
        "communication_us": 30.0,
        "memory_us": 5.0,
        "overlap_us": 10.0,
        "exposed_us": 20.0,
        "host_wait_us": None,
    }
    assert [one["device"]["busy_us"] for one in trace["steps"]] == [75.0, 10.0]
    assert [one["device"]["exposed_us"] for one in trace["steps"]] == [20.0, 0.0]


def test_operators_are_listed_by_self_time(write, capsys):
    events = [
        slice_("outer", 0, 100),
        slice_("inner", 10, 60),
        slice_("inner", 75, 20),
        slice_("cudaLaunchKernel", 20, 5, cat="cuda_runtime"),
    ]
    hottest = summary(write(document(events)), capsys)["operators"]
    assert [(one["name"], one["calls"], one["self_us"], one["total_us"]) for one in hottest] == [
        ("inner", 2, 75.0, 80.0),
        ("outer", 1, 20.0, 100.0),
    ]


def test_an_overlong_slice_is_counted_to_the_next_one_and_said(case, capsys):
    found = summary(case("overlong_dur"), capsys)
    (trace,) = found["traces"]
    copies = {one["name"]: one for one in trace["kernels"]}["Memcpy DtoH"]
    assert copies["total_us"] == 760.0
    assert copies["total_us"] < 0.5 * sum(one["total_us"] for one in trace["kernels"])
    assert trace["device"]["memory_us"] == 760.0
    (note,) = trace["notes"]
    assert "Memcpy DtoH" in note
    assert "recorded 3,400.000 ms, counted 0.760 ms" in note


def test_sub_microsecond_kernels_have_their_length(case, capsys):
    (trace,) = summary(case("sub_us"), capsys)["traces"]
    found = {one["name"]: one for one in trace["kernels"]}
    assert found["k_tiny"]["mean_us"] == pytest.approx(0.2)
    assert found["k_zero"]["mean_us"] == 0
    assert all(one["min_us"] >= 0 for one in trace["kernels"])


def test_a_damaged_rank_is_named_and_the_others_are_answered(case, write, capsys):
    found = summary(case("trunc_gz"), capsys)
    assert [trace["rank"] for trace in found["traces"]] == [0, 1]
    assert any("cut short" in note for note in found["traces"][0]["notes"])
    write(document([step(0, 0, 10)], 0), "job/rank0.json")
    bad = write(b"garbage", "job/rank1.json")
    assert main(["summary", str(bad.parent), "--json"]) == 1
    captured = capsys.readouterr()
    assert [trace["rank"] for trace in json.loads(captured.out)["traces"]] == [0]
    assert captured.err.startswith(f"autoprof summary: left out: {bad}: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ranks_are_answered_side_by_side_and_told_apart(tmp_path, capsys, jobs):
    folder = layout.capture_dir(tmp_path / "run", 7)
    folder.mkdir(parents=True)
    for rank in (1, 0):
        events = [step(number, 100 * number, 50 + 10 * rank) for number in range(7, 10)]
        name = layout.trace_name(rank, "host", 9, 1, gzip=False)
        (folder / name).write_text(json.dumps(document(events, rank, autoprof={"partial": True})))
    found = summary(tmp_path / "run", capsys, "--jobs", jobs)
    assert [trace["rank"] for trace in found["traces"]] == [0, 1]
    (capture,) = found["captures"]
    assert (capture["first_step"], capture["ranks"]) == (7, [0, 1])
    assert (capture["slowest_rank"], capture["slowest_step_median_us"]) == (1, 60.0)
    assert found["traces"][0]["partial"]


def test_two_traces_of_one_rank_count_once(write, capsys):
    for number, name in enumerate(("a.1700000000000000001.json", "b.1700000000000000002.json")):
        write(document([step(number, 0, 10)], 0), f"job/{name}")
        path = write(document([step(number, 0, 10)], 0), f"job/{name}")
    found = summary(path.parent, capsys)
    assert [one["number"] for trace in found["traces"] for one in trace["steps"]] == [1]
    assert found["notes"] == [
        "two traces of rank 0: b.1700000000000000002.json is newer and used, "
        "a.1700000000000000001.json is not"
    ]


def test_the_terminal_shows_the_same_figures(write, capsys):
    for rank in (0, 1):
        events = [event for i in range(3) for event in training_step(i, 1000.0 * i)]
        events += [kernel("gemm [fused]\x1b[31m", 10, 40), slice_("aten::mm", 210, 30)]
        write(document(events, rank), f"job/rank{rank}.json")
    assert main(["summary", str(write(b"{}", "other/x").parents[1] / "job"), "--steps"]) == 0
    lines = capsys.readouterr().out.splitlines()
    by_first = {}
    for line in lines:
        by_first.setdefault(" ".join(line.split()[:1]), line.split())
    assert by_first["0"] == ["0", "3", *["1.000"] * 3, "0.100", "0.200", "0.300", "0.150", "0.250", "0.080"]
    assert by_first["aten::mm"] == ["aten::mm", "2", "0.060", "0.010", "100.0", "30.0"]
    assert by_first["gemm"][:4] == ["gemm", "[fused]?[31m", "2", "0.080"]
    assert any(line.startswith("slowest rank 0") for line in lines)


@pytest.mark.parametrize("kind", ["missing", "empty", "damaged", "several runs"])
def test_what_cannot_be_summarized_is_one_line(write, tmp_path, capsys, kind):
    place = tmp_path / kind
    if kind == "empty":
        place.mkdir()
    elif kind == "damaged":
        write(b"[{", "damaged/trace.json")
    elif kind == "several runs":
        for name in ("one", "two"):
            write(document([]), f"several runs/{name}/step_00000007/rank00000.h_1.1.pt.trace.json")
    assert main(["summary", str(place)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("autoprof summary: ")
    assert str(place) in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("content", [document([]), document([slice_("aten::mm", 1, 2)], None)])
def test_a_trace_without_steps_or_rank_has_an_answer(write, capsys, content):
    path = write(content)
    (trace,) = summary(path, capsys)["traces"]
    assert (trace["steps"], trace["step_time"]) == ([], None)
    assert main(["summary", str(path)]) == 0
    assert "no whole step is marked in it" in capsys.readouterr().out


# HolisticTraceAnalysis 0.5.0 on the same files with include_last_profiler_step=True, microseconds: idle,
# computation, the rest; and the share of communication that ran beside computation in percent.
REFERENCE = {
    "a100_two_ranks/sampled_rank-0.json.gz": (675_191, 210_320, 337_336, 14.95),
    "a100_two_ranks/sampled_rank-1.json.gz": (651_136, 271_973, 308_077, 19.93),
    "v100_vs_a100/control/control.json.gz": (76_007, 281_336, 107_251, 46.24),
    "v100_single/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": (12_143, 464_915, 2_971, None),
    "old_categories/inference_rank_1.json.gz": (1_599, 30, 0, None),
}


@pytest.mark.parametrize("name", REFERENCE)
def test_the_device_figures_agree_with_holistic_trace_analysis(real, capsys, name):
    path = real(name)
    (trace,) = summary(path, capsys)["traces"]
    device = trace["device"]
    idle, computation, rest, overlap = REFERENCE[name]
    # It takes nanosecond traces as whole microseconds, starts rounded up and ends down: up to 1 us per event.
    table = read_trace(path)
    events = int(table.on_device().sum()) if (table.ts_ns % 1000).any() else 0
    assert idle - events <= device["idle_us"] <= idle
    assert computation <= device["computation_us"] <= computation + events
    assert rest <= device["busy_us"] - device["computation_us"] <= rest + events
    if overlap is None:
        assert device["communication_us"] == 0
    else:
        assert 100 * device["overlap_us"] / device["communication_us"] == pytest.approx(overlap, abs=0.005)


def test_device_events_launched_before_the_recording_count_as_busy(real, capsys):
    # HolisticTraceAnalysis leaves out those whose launch is not in the trace; without them, equal.
    path = real("v100_vs_a100/test/test.json.gz")
    table = read_trace(path)
    on_device = table.on_device()
    launched = np.isin(table.correlation, table.correlation[~on_device & (table.correlation > 0)])
    assert Cover.of_rows(table, on_device & launched).total_ns == (744_514 - 51_692) * 1000
    (trace,) = summary(path, capsys)["traces"]
    assert trace["device"]["busy_us"] == 717_943


@pytest.mark.parametrize(
    "name",
    [
        "amd_mi250/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
        "cpu_gloo/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
        "no_rank/rank_not_found.json.gz",
        "old_categories/inference_rank_1.json.gz",
        "triton_small/triton_example.json.gz",
    ],
)
def test_traces_of_every_kind_have_an_answer(real, capsys, name):
    path = real(name)
    (trace,) = summary(path, capsys)["traces"]
    assert trace["operators"] or trace["kernels"]
    assert main(["summary", str(path)]) == 0
    assert capsys.readouterr().err == ""
