"""Covered time and self time against the plain way of counting them."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import document, slice_

from autoprof.analysis.cover import Cover
from autoprof.analysis.nesting import self_ns
from autoprof.analysis.reader import read_trace

stretches = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)


def cover(given_stretches):
    starts = np.array([start for start, _ in given_stretches], dtype=np.int64)
    return Cover.of(starts, starts + np.array([length for _, length in given_stretches], dtype=np.int64))


def seconds(given_stretches):
    return {second for start, length in given_stretches for second in range(start, start + length)}


@given(stretches, stretches, st.integers(0, 90), st.integers(0, 90))
@settings(deadline=None)
def test_covered_time_is_what_counting_every_nanosecond_gives(one, other, begin, end):
    begin, end = sorted((begin, end))
    assert cover(one).total_ns == len(seconds(one))
    both = cover(one) | cover(other)
    assert both.total_ns == len(seconds(one) | seconds(other))
    within = both.within(np.array([begin]), np.array([end])).tolist()
    assert within == [len((seconds(one) | seconds(other)) & set(range(begin, end)))]


def nested(draw, start, end, depth):
    """Yield (start, end, own) of properly nested events inside a stretch."""
    at = start
    events = []
    while at < end and draw(st.booleans()):
        begin = draw(st.integers(at, end))
        stop = draw(st.integers(begin, end))
        if stop == begin:
            break
        inside = nested(draw, begin, stop, depth - 1) if depth else []
        direct = sum(one["end"] - one["start"] for one in inside if one["direct"])
        events += [one | {"direct": False} for one in inside]
        events.append({"start": begin, "end": stop, "own": stop - begin - direct, "direct": True})
        at = stop
    return events


@st.composite
def threads(draw):
    return [nested(draw, 0, 40, 3) for _ in range(draw(st.integers(1, 3)))]


@given(threads())
@settings(deadline=None, max_examples=50)
def test_self_time_leaves_out_what_ran_inside_on_the_same_thread(tmp_path_factory, of_threads):
    # A parent and a child of equal length cannot be told apart; give each its own name by what it owns.
    events = [
        slice_(f"{tid}/{one['start']}-{one['end']}", one["start"], one["end"] - one["start"], tid=tid)
        for tid, thread in enumerate(of_threads)
        for one in thread
    ]
    wanted = {}
    for tid, thread in enumerate(of_threads):
        for one in thread:
            name = f"{tid}/{one['start']}-{one['end']}"
            wanted[name] = wanted.get(name, 0) + one["own"] * 1000
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    path.write_text(json.dumps(document(events)))
    table = read_trace(path)
    found = {}
    for row, own in zip(table.name.tolist(), self_ns(table).tolist(), strict=True):
        found[table.names[row]] = found.get(table.names[row], 0) + own
    assert found == wanted


def test_self_time_where_events_overlap_without_nesting(write):
    events = [
        slice_("a", 0, 10),
        slice_("b", 5, 10),
        slice_("c", 30, 0),
        slice_("runtime", 1, 2, cat="cuda_runtime"),
    ]
    table = read_trace(write(document(events)))
    own = dict(zip((table.names[row] for row in table.name), self_ns(table).tolist(), strict=True))
    assert own == {"a": 3000, "b": 10_000, "c": 0, "runtime": 2000}
