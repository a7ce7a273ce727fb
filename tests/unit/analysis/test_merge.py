"""``autoprof merge``: all ranks on one timeline, each as it was in its own trace."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from traces import document, kernel, slice_, step

from autoprof.cli import main
from autoprof.run import layout

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32"


def merged(folder, tmp_path, *options):
    output = tmp_path / "out" / "merged.json.gz"
    output.parent.mkdir(exist_ok=True)
    status = main(["merge", str(folder), "-o", str(output), *options])
    assert status == 0

    def no_constants(name):
        raise AssertionError(f"{name} is not strict JSON")

    with gzip.open(output) as file:
        return json.load(file, parse_constant=no_constants)


def rows(trace, name):
    return [event for event in trace["traceEvents"] if event["name"] == name]


def labels(trace):
    return {row["pid"]: row["args"]["name"] for row in rows(trace, "process_name")}


def flow(phase, flow_id, ts, **fields):
    return {"ph": phase, "id": flow_id, "cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 1, "ts": ts} | fields


def two_ranks(write, *, shift_us=0.0, **fields):
    """Two ranks with three collectives each; the second one's clock is ``shift_us`` ahead."""
    for rank, ahead in ((0, 0.0), (1, shift_us)):
        events = []
        for number in range(3):
            at = 1000.0 * number + ahead
            events += [
                step(number, at, 900),
                slice_("aten::mm", at + 10, 100),
                slice_("cudaLaunchKernel", at + 20, 5, cat="cuda_runtime", args={"correlation": number + 1}),
                kernel(
                    "ncclDevKernel_AllReduce_Sum_f32", at + 300, 200 + rank, args={"correlation": number + 1}
                ),
                flow("s", number + 1, at + 20),
                flow("f", number + 1, at + 300, pid=0, tid=7, bp="e"),
            ]
        write(document(events, rank, **fields), f"job/rank{rank}.json")


def test_ids_that_clash_are_kept_apart(case, tmp_path):
    folder = case("merge_collide")
    originals = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    trace = merged(folder, tmp_path)
    pids = {}
    for pid, label in labels(trace).items():
        pids.setdefault(label.partition(":")[0], set()).add(pid)
    assert set(pids) == {"rank 0", "rank 1"}
    assert not pids["rank 0"] & pids["rank 1"]
    events = [event for event in trace["traceEvents"] if event["ph"] != "M"]
    assert len(events) == sum(event["ph"] != "M" for one in originals for event in one["traceEvents"])
    for rank, original in enumerate(originals):
        of_rank = [event for event in events if event["pid"] in pids[f"rank {rank}"]]
        wanted = Counter(event["name"] for event in original["traceEvents"] if event["ph"] != "M")
        assert Counter(event["name"] for event in of_rank) == wanted
        described = {event["pid"] for event in trace["traceEvents"] if event["name"] == "process_labels"}
        assert described <= pids["rank 0"] | pids["rank 1"]
    arrows = {}
    for event in events:
        if event["ph"] in "sf":
            arrows.setdefault(event["id"], []).append((event["ph"], event["pid"]))
    assert len(arrows) == 2
    for ends in arrows.values():
        assert [phase for phase, _ in ends] == ["s", "f"]
        assert {pid for _, pid in ends} <= pids["rank 0"] or {pid for _, pid in ends} <= pids["rank 1"]


def test_real_numbers_equal_to_new_ones_do_not_clash(write, tmp_path):
    for rank in range(3):
        events = [slice_(f"rank{rank}-pid{pid}", pid, 1, pid=pid) for pid in range(8)]
        write(document(events, rank), f"job/rank{rank}.json")
    trace = merged(tmp_path / "job", tmp_path)
    pids = {event["name"]: event["pid"] for event in trace["traceEvents"] if event["ph"] == "X"}
    assert len(set(pids.values())) == len(pids) == 24
    assert 0 not in pids.values()


def test_correlations_of_ranks_are_kept_apart_and_still_connect(write, tmp_path):
    two_ranks(write)
    trace = merged(tmp_path / "job", tmp_path)
    label = labels(trace)
    seen = {}
    for event in trace["traceEvents"]:
        number = event.get("args", {}).get("correlation")
        if number is not None:
            seen.setdefault(number, []).append((event["cat"], label[event["pid"]].partition(":")[0]))
    assert len(seen) == 6
    for pair in seen.values():
        assert sorted(category for category, _ in pair) == ["cuda_runtime", "kernel"]
        assert len({rank for _, rank in pair}) == 1


def test_processes_are_named_and_sorted_by_rank_with_the_cpu_first(write, tmp_path):
    for rank in (1, 0):
        described = [
            {"ph": "M", "name": "process_name", "pid": 50, "tid": 0, "args": {"name": "python"}},
            {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "python"}},
            {"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "args": {"labels": "GPU 0"}},
            {"ph": "M", "name": "process_sort_index", "pid": 50, "tid": 0, "args": {"sort_index": 50}},
        ]
        events = [kernel("k", 5, 1), slice_("op", 1, 2, pid=50), slice_("span", 0, 9, pid="Spans", tid="x")]
        write(document(described + events, rank), f"job/rank{rank}.json")
    trace = merged(tmp_path / "job", tmp_path)
    label = labels(trace)
    order = {row["pid"]: row["args"]["sort_index"] for row in rows(trace, "process_sort_index")}
    assert [label[pid] for pid in sorted(order, key=order.get)] == [
        "rank 0: python",
        "rank 0: python (GPU 0)",
        "rank 0: Spans",
        "rank 1: python",
        "rank 1: python (GPU 0)",
        "rank 1: Spans",
    ]
    assert {event["tid"] for event in rows(trace, "span")} == {"x"}


def test_a_clock_that_is_ahead_is_set_back_by_collectives(write, tmp_path, capsys):
    two_ranks(write, shift_us=5000)
    trace = merged(tmp_path / "job", tmp_path)
    ends = {}
    for event in rows(trace, ALL_REDUCE):
        ends.setdefault(event["pid"], []).append(event["ts"] + event["dur"])
    first, second = ends.values()
    assert first == pytest.approx(second, abs=1e-3)
    about = {one["rank"]: one for one in trace["autoprof"]["merged"]}
    assert (about[1]["shift_ns"], about[1]["collectives_matched"]) == (5_001_000, 3)
    assert about[1]["residual_skew_max_ns"] == 0
    assert "rank 1  aligned by 3 collectives, moved by -5.001 ms" in capsys.readouterr().out


def test_clocks_that_agree_as_well_as_can_be_told_are_left_alone(write, tmp_path, capsys):
    for rank, ends in enumerate(([100, 200, 300], [140, 130, 310])):
        events = [step(number, number * 1000, 900) for number in range(3)] + [
            slice_("gloo:all_reduce", number * 1000, end, cat="user_annotation", tid=2)
            for number, end in enumerate(ends)
        ]
        write(document(events, rank), f"job/rank{rank}.json")
    trace = merged(tmp_path / "job", tmp_path)
    assert [one["shift_ns"] for one in trace["autoprof"]["merged"]] == [0, 0]
    said = capsys.readouterr().out
    assert "clocks agree, not moved; remaining skew 40.0 us (median), 70.0 us (largest)" in said


def test_base_times_are_used_where_no_collective_can_be(write, tmp_path, capsys):
    for rank in (0, 1):
        write(
            document([slice_("op", 10, 1)], rank, baseTimeNanoseconds=10**18 + rank * 2_500),
            f"job/rank{rank}.json",
        )
    trace = merged(tmp_path / "job", tmp_path)
    first, second = (event["ts"] for event in rows(trace, "op"))
    assert second - first == pytest.approx(2.5)
    assert trace["baseTimeNanoseconds"] + round(first * 1000) == 10**18 + 10_000
    assert "rank 1  aligned by base time only" in capsys.readouterr().out


def test_a_run_merges_the_newest_trace_of_each_rank_and_says_so(tmp_path, capsys):
    run = tmp_path / "run"
    for first_step in (7, 20):
        for rank in (0, 1):
            for time_ns in (1, 2):
                folder = layout.capture_dir(run, first_step)
                folder.mkdir(parents=True, exist_ok=True)
                events = [slice_(f"capture {first_step} rank {rank} time {time_ns}", first_step, 1)]
                name = layout.trace_name(rank, "host", 9, time_ns, gzip=False)
                (folder / name).write_text(json.dumps(document(events, rank)))
    trace = merged(run, tmp_path)
    assert sorted(event["name"] for event in trace["traceEvents"] if event["ph"] == "X") == [
        f"capture {first_step} rank {rank} time 2" for first_step in (20, 7) for rank in (0, 1)
    ]
    assert len(labels(trace)) == 2
    assert capsys.readouterr().err.count("is newer and used") == 4
    assert {event["name"] for event in merged(run, tmp_path, "--capture", "20")["traceEvents"]} >= {
        "capture 20 rank 0 time 2",
        "capture 20 rank 1 time 2",
    }


def test_a_rank_may_be_in_the_name_only(write, tmp_path):
    write([slice_("op", 1, 1)], "job/rank-4.json")
    write([slice_("op", 1, 1)], "job/rank_5.json")
    assert {label.partition(":")[0] for label in labels(merged(tmp_path / "job", tmp_path)).values()} == {
        "rank 4",
        "rank 5",
    }


def test_what_is_not_json_does_not_reach_the_output(write, tmp_path):
    text = json.dumps(document([slice_("op", 1, 1, args={"x": "here"}), slice_("other", 2, 1)], 0))
    write(text.replace('"here"', "NaN").replace('"other"', '"a"b"'), "job/rank0.json")
    trace = merged(tmp_path / "job", tmp_path)
    assert rows(trace, "op")[0]["args"]["x"] is None
    assert len(rows(trace, 'a"b')) == 1


def test_absolute_times_keep_their_nanoseconds(write, tmp_path):
    text = json.dumps(document([slice_("a", "first", 1), slice_("b", "second", 2)]))
    for word, time in (("first", "1712195495519689.047"), ("second", "1712195495519689.812")):
        text = text.replace(f'"{word}"', time)
    write(text, "job/rank0.json")
    trace = merged(tmp_path / "job", tmp_path)
    assert (rows(trace, "a")[0]["ts"], rows(trace, "b")[0]["ts"]) == (519689.047, 519689.812)
    assert trace["baseTimeNanoseconds"] == 1712195495 * 10**9


def test_what_can_be_read_of_a_run_is_merged_and_the_rest_is_named(write, tmp_path, capsys):
    write(document([slice_("op", 1, 1)], 0), "job/rank0.json")
    bad = write(b"\x1f\x8bnonsense", "job/rank1.json.gz")
    bad.write_bytes(b"\x1f\x8bnonsense")
    output = tmp_path / "merged.json"
    assert main(["merge", str(tmp_path / "job"), "-o", str(output)]) == 1
    assert len(rows(json.loads(output.read_text()), "op")) == 1
    said = capsys.readouterr().err
    assert f"left out: {bad}: " in said
    assert "Traceback" not in said


def test_a_merged_trace_is_not_merged_again(write, tmp_path, capsys):
    write(document([slice_("op", 1, 1)], 0), "job/rank0.json")
    for name in ("merged.json", "merged.json", "again.json"):
        assert main(["merge", str(tmp_path / "job"), "-o", str(tmp_path / "job" / name)]) == 0
    assert "merged.json is itself a merged trace: left out" in capsys.readouterr().err
    trace = json.loads((tmp_path / "job/again.json").read_text())
    assert len(rows(trace, "op")) == 1


@pytest.mark.parametrize("kind", ["pipe", "folder", "name", "no parent", "an input"])
def test_an_output_that_would_do_harm_is_refused(write, tmp_path, capsys, kind):
    given = write(document([slice_("op", 1, 1)], 0), "job/rank0.json")
    before = given.read_bytes()
    output = {
        "pipe": tmp_path / "pipe.json",
        "folder": tmp_path / "folder.json",
        "name": tmp_path / "merged.txt",
        "no parent": tmp_path / "no" / "merged.json",
        "an input": given,
    }[kind]
    if kind == "pipe":
        os.mkfifo(output)
    elif kind == "folder":
        output.mkdir()
    assert main(["merge", str(tmp_path / "job"), "-o", str(output)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"autoprof merge: {output} ")
    assert said.count("\n") == 1
    assert given.read_bytes() == before
    assert not list(tmp_path.glob("**/.*"))


@pytest.mark.parametrize("kind", ["missing", "empty", "no rank", "no capture"])
def test_input_that_cannot_be_merged_is_one_line(write, tmp_path, capsys, kind):
    place = tmp_path / kind
    options = []
    if kind == "empty":
        place.mkdir()
    elif kind == "no rank":
        write(document([slice_("op", 1, 1)], None), "no rank/trace.json")
    elif kind == "no capture":
        write(document([]), "no capture/step_00000007/rank00000.h_1.1.pt.trace.json")
        options = ["--capture", "8"]
    assert main(["merge", str(place), "-o", str(tmp_path / "merged.json"), *options]) == 1
    said = capsys.readouterr().err
    assert said.startswith("autoprof merge: ")
    assert str(place) in said
    assert said.count("\n") == 1
    assert not (tmp_path / "merged.json").exists()


def test_a_missing_package_is_one_line_that_says_what_to_install():
    code = (
        "import sys; sys.modules['msgspec'] = None\n"
        "from autoprof.cli import main; sys.exit(main(['merge', '.']))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert finished.returncode == 1
    assert finished.stderr == (
        "autoprof merge: reading traces needs msgspec, which is not installed; "
        "pip install 'accelerate-autoprof[analysis]'\n"
    )


def test_real_ranks_keep_every_event(real, tmp_path):
    folder = real("a100_two_ranks")
    wanted = Counter()
    for path in sorted(folder.glob("*.gz")):
        with gzip.open(path) as file:
            wanted += Counter(event["name"] for event in json.load(file)["traceEvents"] if event["ph"] != "M")
    trace = merged(folder, tmp_path)
    assert Counter(event["name"] for event in trace["traceEvents"] if event["ph"] != "M") == wanted
    assert all(0 <= event["ts"] < 10e6 for event in trace["traceEvents"] if "ts" in event)
