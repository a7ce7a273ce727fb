"""Any bytes at all: an answer or one TraceError, and never another exception."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from traces import document, kernel, slice_, step

from autoprof.analysis import pieces, source
from autoprof.analysis.errors import TraceError
from autoprof.analysis.inputs import TraceInput
from autoprof.analysis.merge import merge
from autoprof.analysis.reader import read_trace
from autoprof.analysis.summary import summarize

WHOLE = json.dumps(
    document(
        [
            {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}},
            step(1, 0, 50),
            slice_("aten::mm", 1, 20, args={"Input Dims": [[1, 2], []], "list": [{"a": 1}, {"b": "}, {"}]}),
            slice_("cudaLaunchKernel", 2, 3, cat="cuda_runtime", args={"correlation": 4}),
            {"ph": "s", "id": 4, "pid": 1, "tid": 1, "ts": 2, "cat": "ac2g", "name": "ac2g"},
            kernel("gemm", 10, 30, args={"correlation": 4, "bytes": 8}),
            {"ph": "B", "name": "b", "pid": 1, "tid": 3, "ts": 5},
            {"ph": "E", "pid": 1, "tid": 3, "ts": 7},
            step(2, 50, 50),
            {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 99.5},
        ],
        deviceProperties=[{"id": 0, "name": "A100"}],
        baseTimeNanoseconds=1_700_000_000_000_000_000,
        traceName="a\\b\u20ac",
    ),
    ensure_ascii=False,
).encode()

# What damage looks like: bytes changed, removed, doubled, put in; then perhaps cut and compressed.
TOKENS = [b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"-", b"\xff", b"\x00", b"},{", b'"traceEvents":[']
TOKENS += [b"NaN", b"-Infinity", b"1e999", b"null", b"true", b"0x1f", b"\\ud800"]
TOKENS += [b"9" * 400, b"[" * 200, b'{"a":' * 200]
edits = st.lists(
    st.tuples(
        st.sampled_from(["replace", "insert", "delete", "double", "cut"]),
        st.floats(0, 1),
        st.one_of(st.sampled_from(TOKENS), st.binary(max_size=6)),
        st.integers(1, 40),
    ),
    max_size=5,
)


def damaged(data, changes):
    for kind, place, token, length in changes:
        at = int(place * len(data))
        if kind == "replace":
            data = data[:at] + token + data[at + len(token) :]
        elif kind == "insert":
            data = data[:at] + token + data[at:]
        elif kind == "delete":
            data = data[:at] + data[at + length :]
        elif kind == "double":
            data = data[: at + length] + data[at:]
        elif length > 20:
            data = data[:at]
    return data


WORDS = ["X", "M", "B", "E", "s", "0x10", "nan", "1e9", "ProfilerStep#3", "kernel", "cpu_op"]
values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(WORDS),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=4,
)
FIELDS = ["ph", "name", "cat", "ts", "dur", "pid", "tid", "id", "id2", "bind_id"]
ARGUMENTS = ["correlation", "stream", "device", "External id", "bytes", "name", "labels", "Collective name"]
ARGUMENTS += ["In msg nelems", "Process Group Name", "Process Group Ranks", "dtype"]
events = st.fixed_dictionaries(
    {"ph": st.sampled_from(["X", "X", "X", "M", "B", "E", "i", "s"])},
    optional=dict.fromkeys(FIELDS[1:], values)
    | {
        "args": st.one_of(values, st.fixed_dictionaries({}, optional=dict.fromkeys(ARGUMENTS, values))),
        "ts": st.one_of(values, st.floats(0, 1e16)),
        "dur": st.one_of(values, st.floats(-5, 1e5)),
    },
)
documents = st.one_of(
    st.lists(st.one_of(events, values), max_size=5),
    st.fixed_dictionaries(
        {"traceEvents": st.lists(st.one_of(events, values), max_size=5)},
        optional={
            "distributedInfo": st.one_of(values, st.fixed_dictionaries({}, optional={"rank": values})),
            "baseTimeNanoseconds": values,
            "deviceProperties": values,
            "autoprof": values,
            "host_name": values,
            "traceName": values,
        },
    ),
)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Let damage meet the seams between pieces as well."""
    monkeypatch.setattr(pieces, "_PIECE_BYTES", 300)
    monkeypatch.setattr(pieces, "_CAREFUL_BYTES", 200)
    monkeypatch.setattr(pieces, "_EVENT_BYTES", 2000)
    monkeypatch.setattr(source, "BLOCK_BYTES", 100)
    monkeypatch.setattr(source, "_COMPRESSED_BYTES", 64)


def many(examples):
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


def refusal(path):
    """Return the one line with which a trace is refused, or None where it is read."""
    try:
        read_trace(path)
    except TraceError as error:
        return str(error)
    return None


def answered(path, data):
    """Write ``data``; return whether it was answered, and fail if it was neither answered nor refused."""
    path.write_bytes(data)
    if line := refusal(path):
        assert line.startswith(f"{path}: ")
        assert "\n" not in line
        return False
    table = read_trace(path)
    assert (table.dur_ns >= 0).all()
    assert (table.ts_ns[1:] >= table.ts_ns[:-1]).all()
    summary = summarize(TraceInput(path, None, None, 1))
    assert summary.events == len(table)
    for one in summary.steps:
        phases = one.phases
        parts = (phases.data_us, phases.forward_us, phases.backward_us, phases.optimizer_us, phases.other_us)
        assert sum(part or 0 for part in parts) == pytest.approx(one.duration_us)
    return True


@given(edits)
@example([])
@many(800)
def test_a_damaged_trace_is_answered_or_refused(tmp_path, changes):
    answer = answered(tmp_path / "trace.json", damaged(WHOLE, changes))
    assert answer or changes


@given(edits, edits)
@many(400)
def test_a_damaged_compressed_trace_is_answered_or_refused(tmp_path, before, after):
    data = damaged(gzip.compress(damaged(WHOLE, before), mtime=0), after)
    answered(tmp_path / "trace.json.gz", data)


@given(documents)
@many(400)
def test_events_of_any_shape_are_answered(tmp_path, content):
    answered(tmp_path / "trace.json", json.dumps(content).encode())


@given(st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(zlib.compress)))
@many(200)
def test_bytes_that_are_no_trace_are_refused(tmp_path, data):
    answered(tmp_path / "trace.json", data)


damaged_traces = edits.map(lambda changes: damaged(WHOLE, changes))


@given(st.one_of(damaged_traces, documents.map(lambda content: json.dumps(content).encode())))
@many(300)
def test_what_is_merged_is_strict_json_and_keeps_every_event(tmp_path, data):
    (tmp_path / "rank3.json").write_bytes(data)
    output = tmp_path / "merged.json"
    inputs = [TraceInput(tmp_path / "rank3.json", None, 3, 1)]
    if refusal(inputs[0].path):
        return
    table = read_trace(inputs[0].path)
    merged = merge(inputs, output)

    def no_constants(name):
        raise AssertionError(f"{name} is not strict JSON")

    written = json.loads(output.read_bytes(), parse_constant=no_constants)["traceEvents"]
    assert len(written) == merged.events + merged.added_rows
    complete = [event for event in written if event["ph"] == "X"]
    begun = sum(event["ph"] in ("B", "E") for event in written)
    assert len(complete) <= len(table) <= len(complete) + begun / 2
    assert all(isinstance(event["pid"], int) and event["pid"] > 0 for event in written)


def test_a_time_that_no_float_can_hold_is_left_out_and_said(tmp_path):
    slices = [{"ph": "X", "name": name, "ts": ts, "dur": 1.5, "pid": 1, "tid": 1} for name, ts in TIMES]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": slices}))
    merged = merge([TraceInput(path, None, 0, 1)], tmp_path / "merged.json")
    assert merged.events == 1
    assert len(read_trace(path)) == 1


TIMES = (("sound", 1.25e13 + 0.125), ("huge", 10**400))
