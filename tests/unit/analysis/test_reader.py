"""What becomes of a trace file, whole or damaged, when it is read."""

from __future__ import annotations

import gzip
import json
import os
import sys
import zlib

import pytest
from traces import document, kernel, slice_, step

from autoprof.analysis import pieces, source
from autoprof.analysis.errors import TraceError
from autoprof.analysis.reader import read_trace


def names(table):
    return [table.names[row] for row in table.name]


def test_a_trace_becomes_columns_sorted_by_start(write):
    events = [
        kernel("gemm", 20.5, 3.25, args={"correlation": 9, "External id": 4, "bytes": 12}),
        slice_("inner", 10, 2),
        slice_("outer", 10, 5),
    ]
    table = read_trace(write(document(events, rank=3, baseTimeNanoseconds=1_000)))
    assert names(table) == ["outer", "inner", "gemm"]
    assert table.ts_ns.tolist() == [10_000, 10_000, 20_500]
    assert table.dur_ns.tolist() == [5_000, 2_000, 3_250]
    assert table.correlation.tolist() == [-1, -1, 9]
    assert (table.stream[2], table.device[2], table.external_id[2], table.size_bytes[2]) == (7, 0, 4, 12)
    assert (table.header.rank, table.header.world_size, table.header.base_ns) == (3, 2, 1_000)
    assert not table.losses


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "gzip_inside.json", "plain_inside.json.gz"])
def test_compression_is_told_by_the_content_not_the_name(write, name):
    data = json.dumps(document([slice_("a", 1, 1)])).encode()
    path = write(data if name.startswith("trace") else b"")
    if name == "gzip_inside.json":
        path.write_bytes(gzip.compress(data))
    elif name == "plain_inside.json.gz":
        path.write_bytes(data)
    assert names(read_trace(path)) == ["a"]


def test_zstd_is_read_or_says_what_to_install(write, monkeypatch):
    path = write(b"\x28\xb5\x2f\xfd\x00\x00")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(TraceError, match=r"trace\.json: is compressed with zstd.*pip install zstandard"):
        read_trace(path)
    monkeypatch.undo()
    zstandard = pytest.importorskip("zstandard")
    path.write_bytes(zstandard.compress(json.dumps(document([slice_("a", 1, 1)])).encode()))
    assert names(read_trace(path)) == ["a"]


def test_the_bare_list_form_is_read(write):
    table = read_trace(write([slice_("a", 1, 1), slice_("b", 3, 1)], "rank7.json"))
    assert names(table) == ["a", "b"]
    assert table.header.rank == 7


def test_absolute_times_keep_their_nanoseconds(write):
    text = json.dumps(document([slice_("a", 0, 1), slice_("b", 1, 2)]))
    text = text.replace('"ts": 0', '"ts": 1712195495519689.047').replace(
        '"ts": 1,', '"ts": 1712195495519689.812,'
    )
    assert read_trace(write(text)).ts_ns.tolist() == [1712195495519689047, 1712195495519689812]


def test_identifiers_of_any_type_are_taken(write):
    events = [
        slice_("a", 1, 1, pid="Spans", tid="PyTorch Profiler"),
        slice_("b", 2, 1, pid=2.0, tid=None, args={"stream": "0x0", "correlation": "17"}),
        slice_("c", "3.5", 1, args=None, cat=None),
    ]
    del events[2]["cat"], events[2]["args"]
    table = read_trace(write(document(events)))
    assert [table.pids[row] for row in table.pid] == ["Spans", 2, 1]
    assert [table.tids[row] for row in table.tid] == ["PyTorch Profiler", "", 1]
    assert (table.stream[1], table.correlation[1]) == (0, 17)
    assert table.ts_ns.tolist() == [1000, 2000, 3500]


def test_begin_and_end_become_complete_events(write):
    def event(phase, name, ts, tid=1):
        return {"ph": phase, "name": name, "ts": ts, "pid": 1, "tid": tid}

    events = [
        event("B", "outer", 1),
        event("B", "inner", 2),
        event("B", "elsewhere", 2, tid=2),
        event("E", "", 3),
        event("E", "", 9),
        event("E", "", 10),
    ]
    table = read_trace(write(document(events)))
    assert list(zip(names(table), table.dur_ns.tolist(), strict=True)) == [("outer", 8000), ("inner", 1000)]
    assert table.losses.lines() == ["1 x end without a beginning", "1 x beginning without an end"]


def test_times_that_are_no_times_are_said(write):
    text = json.dumps(
        document([slice_("a", 1, -0.4), slice_("b", 2, 1), slice_("c", 3, 1), slice_("d", 4, 1)])
    )
    text = (
        text.replace('"ts": 2', '"ts": NaN')
        .replace('"ts": 3', '"ts": 1e300')
        .replace('4, "dur": 1', '4, "dur": Infinity')
    )
    table = read_trace(write(text))
    assert list(zip(names(table), table.dur_ns.tolist(), strict=True)) == [("a", 0), ("d", 0)]
    assert [line.partition(" x ")[2] for line in table.losses.lines()] == [
        "event without a usable time",
        "event without a usable duration, taken as 0",
        "negative duration, taken as 0",
    ]
    assert table.losses.lines()[0].startswith("2 x")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b'"a\\qb"', "a\\qb"),
        (b'"a\xffb"', "a�b"),
        (b'"a\x01\nb"', "a\x01\nb"),
        (b'"a\\ud800b"', "a?b"),
        (b'"a"b"', 'a"b'),
        (b'"C:\\dir"', "C:\\dir"),
    ],
    ids=["escape", "utf-8", "control", "surrogate", "quote", "backslash"],
)
@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "middle", "last"])
def test_a_damaged_name_costs_no_event(write, written, read, place):
    events = [slice_(f"n{i}", i, 1) for i in range(3)]
    data = json.dumps(document(events)).encode().replace(b'"n%d"' % place, written)
    expected = [f"n{i}" for i in range(3)]
    expected[place] = read
    table = read_trace(write(data))
    assert names(table) == expected
    assert table.header.rank == 0


@pytest.mark.parametrize("keep", [0.2, 0.5, 0.99])
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
def test_a_file_cut_short_keeps_its_whole_events(write, keep, compressed):
    events = [slice_(f"n{i}", i, 1, args={"nested": [{"a": i}, {"b": 2}]}) for i in range(2000)]
    data = json.dumps(document(events)).encode()
    if compressed:
        data = gzip.compress(data)
    table = read_trace(write(data[: int(len(data) * keep)]))
    assert 2000 * keep * 0.8 < len(table) < 2000
    assert names(table) == [f"n{i}" for i in range(len(table))]
    said = " ".join(table.losses.lines())
    assert "cut short" in said
    assert ("compressed data cut short at byte" in said) is compressed


def test_a_damaged_checksum_loses_nothing_and_is_said(write):
    data = bytearray(gzip.compress(json.dumps(document([slice_("a", 1, 1)])).encode()))
    data[-6] ^= 0xFF
    table = read_trace(write(bytes(data)))
    assert names(table) == ["a"]
    assert "compressed data damaged at byte" in table.losses.lines()[0]


def test_damage_inside_compressed_data_keeps_what_precedes_it(write):
    data = bytearray(
        gzip.compress(json.dumps(document([slice_(f"n{i}", i, i) for i in range(50_000)])).encode())
    )
    data[len(data) // 2] ^= 0xFF
    table = read_trace(write(bytes(data)))
    assert 10_000 < len(table) < 50_000
    assert names(table)[:10_000] == [f"n{i}" for i in range(10_000)]
    assert table.losses


def test_several_gzip_members_are_one_trace(write):
    data = json.dumps(document([slice_(f"n{i}", i, 1) for i in range(100)])).encode()
    path = write(gzip.compress(data[:500]) + gzip.compress(data[500:]) + b"\0" * 512)
    table = read_trace(path)
    assert len(table) == 100
    assert not table.losses


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty at byte 0"),
        (b"   ", "holds no text"),
        (b"hello", "is not a Chrome trace"),
        (b'{"a": 1}', "holds no list of traceEvents"),
        (gzip.compress(b"[" * 1000, mtime=0)[:11], "compressed data cut short at byte 11"),
        (b"\x1f\x8bnonsense", "compressed data damaged at byte"),
        (b'{"traceEvents": [{"ph": "X", "na', "no event could be read: 1 x event cut short (byte 17)"),
        (zlib.compress(b"[]"), "is not a Chrome trace"),
    ],
)
def test_a_file_of_which_nothing_can_be_kept_is_one_line_with_its_name(write, content, said):
    path = write(content)
    with pytest.raises(TraceError) as raised:
        read_trace(path)
    line = str(raised.value)
    assert line.startswith(f"{path}: ")
    assert said in line
    assert "\n" not in line


def test_what_is_no_file_is_one_line(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, said in [
        (tmp_path, "not a regular file"),
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path / "no", "does not exist"),
    ]:
        with pytest.raises(TraceError, match=said):
            read_trace(path)


@pytest.mark.parametrize("content", [document([]), [], '{"traceEvents": [ \n ]}'])
def test_a_trace_without_events_is_empty_not_an_error(write, content):
    table = read_trace(write(content))
    assert len(table) == 0
    assert table.steps == []
    assert not table.losses


def test_metadata_is_read_from_both_sides_of_the_events(write):
    text = '{"distributedInfo": {"rank": 5}, "traceEvents": [], "baseTimeNanoseconds": 7, "traceName": "t"}'
    header = read_trace(write(text)).header
    assert (header.rank, header.base_ns, header.trace_name) == (5, 7, "t")


def test_a_step_that_was_cut_short_is_no_step(write):
    events = [
        step(7, 0, 100),
        step(8, 100, 100),
        slice_("step 9 (cut short)", 200, 40, cat="user_annotation"),
    ]
    assert [found.number for found in read_trace(write(document(events))).steps] == [7, 8]


def test_a_phantom_last_step_is_no_step_and_is_said(write, case):
    table = read_trace(case("phantom_step") / "rank0.json")
    assert [found.number for found in table.steps] == [2, 3, 4]
    assert "step 5" in table.losses.lines()[0]


def test_large_traces_are_read_in_pieces_that_join_without_a_seam(write, monkeypatch):
    monkeypatch.setattr(pieces, "_PIECE_BYTES", 3000)
    monkeypatch.setattr(source, "BLOCK_BYTES", 1000)
    events = [slice_(f"n{i}", i, 1, args={"list": [{"a": 1}, {"b": "}, {"}]}) for i in range(1000)]
    table = read_trace(write(document(events, traceName="end")))
    assert names(table) == [f"n{i}" for i in range(1000)]
    assert table.header.trace_name == "end"
    assert not table.losses


def test_damage_in_one_piece_leaves_the_others_alone(write, monkeypatch):
    monkeypatch.setattr(pieces, "_PIECE_BYTES", 3000)
    monkeypatch.setattr(pieces, "_CAREFUL_BYTES", 500)
    monkeypatch.setattr(source, "BLOCK_BYTES", 1000)
    data = json.dumps(document([slice_(f"n{i}", i, 1) for i in range(1000)])).encode()
    data = data.replace(b'"ts": 500,', b'"ts": 500 500,')
    table = read_trace(write(data))
    assert names(table) == [f"n{i}" for i in range(1000) if i != 500]
    assert "event that could not be read" in table.losses.lines()[0]


@pytest.mark.parametrize(
    ("name", "events", "rank", "steps"),
    [
        ("a100_two_ranks/sampled_rank-1.json.gz", 4676, 1, [551, 552]),
        ("v100_single/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", 45420, 0, [101, 102, 103, 104, 105]),
        ("v100_vs_a100/control/control.json.gz", 74937, 3, list(range(1009, 1015))),
        ("amd_mi250/mi250_minitoy_train_ROCm6_2_kineto.json.gz", 113, None, [1]),
        ("cpu_gloo/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 16, 34, [551]),
        ("old_categories/inference_rank_1.json.gz", 13, 1, []),
        ("triton_small/triton_example.json.gz", 8, None, [1]),
        ("no_rank/rank_not_found.json.gz", 2467, None, [1009]),
    ],
)
def test_real_traces_are_read_in_full(real, name, events, rank, steps):
    path = real(name)
    table = read_trace(path)
    with gzip.open(path) as file:
        raw = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
    assert len(table) == len(raw) == events
    assert sorted(names(table)) == sorted(event["name"] for event in raw)
    assert table.dur_ns.sum() == sum(round(event["dur"] * 1000) for event in raw)
    assert (table.header.rank, [found.number for found in table.steps]) == (rank, steps)


def test_sub_microsecond_kernels_are_never_negative(case):
    table = read_trace(case("sub_us") / "rank0.json")
    durations = dict(zip(names(table), table.dur_ns.tolist(), strict=True))
    assert (durations["k_tiny"], durations["k_zero"]) == (200, 0)
    assert (table.dur_ns >= 0).all()


def test_unescaped_quotes_are_repaired(case):
    table = read_trace(case("quote_name") / "rank0.json")
    assert 'a"b' in names(table)
    assert "event repaired" in table.losses.lines()[0]
