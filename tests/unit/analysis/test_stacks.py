"""`autoprof export --format speedscope|collapsed`: never empty, nested, and of all ranks."""

from __future__ import annotations

import json

import pytest
from traces import document, slice_, step

from autoprof.cli import main

EVENTS = [
    step(3, 0, 100),
    slice_("train.py(3): <module>", 5, 90, cat="python_function"),
    slice_("outer", 10, 50),
    slice_("in;ner", 20, 30),
    slice_("late", 55, 20),  # outlasts `outer`, in which it began
    slice_("other", 0, 7, tid=2),
]


@pytest.fixture
def export(write, tmp_path, capsys):
    def run(events, kind, name):
        for rank in (0, 1):
            write(document(events, rank), f"job/rank{rank}.json")
        output = tmp_path / name
        status = main(["export", str(tmp_path / "job"), "--format", kind, "-o", str(output)])
        return status, output, capsys.readouterr().err

    return run


def test_collapsed_stacks_are_self_times_that_add_up(export):
    status, output, said = export(EVENTS, "collapsed", "stacks.collapsed")
    assert (status, said) == (0, "")
    lines = dict(line.rsplit(" ", 1) for line in output.read_text().splitlines())
    main_thread = {line: int(ns) for line, ns in lines.items() if "rank 1" in line and "thread 1" in line}
    assert sum(main_thread.values()) == 100_000
    python = "ProfilerStep#3;train.py(3): <module>"
    by_end = {line.partition("thread 1;")[2]: ns for line, ns in main_thread.items()}
    assert by_end == {
        "ProfilerStep#3": 10_000,
        python: 40_000,
        f"{python};outer": 15_000,
        f"{python};outer;in:ner": 30_000,
        f"{python};outer;late": 5_000,
    }


def test_speedscope_has_a_nested_profile_per_rank_and_thread(export):
    status, output, said = export(EVENTS, "speedscope", "stacks.speedscope.json")
    assert (status, said) == (0, "")
    found = json.loads(output.read_text())
    assert found["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert len(found["profiles"]) == 4
    frames = found["shared"]["frames"]
    assert {frame["name"] for frame in frames} == {event["name"] for event in EVENTS}
    for profile in found["profiles"]:
        assert (profile["type"], profile["unit"]) == ("evented", "nanoseconds")
        at, opened = profile["startValue"], []
        for event in profile["events"]:
            assert at <= event["at"] <= profile["endValue"]
            at = event["at"]
            if event["type"] == "O":
                opened.append(event["frame"])
                assert 0 <= event["frame"] < len(frames)
            else:
                assert (event["type"], event["frame"]) == ("C", opened.pop())
        assert not opened


@pytest.mark.parametrize(("kind", "name"), [("speedscope", "s.json"), ("collapsed", "s.txt")])
def test_without_python_frames_there_are_stacks_of_operators(export, kind, name):
    status, output, said = export([slice_("outer", 0, 9), slice_("inner", 1, 2)], kind, name)
    assert status == 0
    assert "inner" in output.read_text()
    assert "2 of 2 traces hold no Python frames" in said
    assert "ACCELPROF_WITH_STACK=1" in said


def test_nothing_to_stack_is_one_line_and_no_file(export):
    status, output, said = export([slice_("copy", 0, 9, cat="gpu_memcpy")], "collapsed", "s.txt")
    assert status == 1
    assert said.startswith("autoprof export: there are no stacks to export")
    assert not output.exists()
