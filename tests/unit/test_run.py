"""The run directory: names that sort and never collide, files that are whole or not there."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from autoprof.run import layout, store


def test_traces_are_found_by_capture_rank_and_time(tmp_path):
    for step, rank, time_ns in ((100, 1, 5), (7, 0, 9), (7, 0, 3), (100, 0, 5)):
        folder = layout.capture_dir(tmp_path, step)
        folder.mkdir(exist_ok=True)
        (folder / layout.trace_name(rank, "node-1.cluster.example", 42, time_ns, gzip=True)).touch()
    (tmp_path / "step_00000007" / ".rank00000.node-1_42.3.pt.trace.json.gz.7-7.tmp").touch()
    (tmp_path / "step_00000007" / "notes.txt").touch()
    found = [(trace.first_step, trace.rank, trace.time_ns) for trace in layout.find_traces(tmp_path)]
    assert found == [(7, 0, 3), (7, 0, 9), (100, 0, 5), (100, 1, 5)]


@pytest.mark.parametrize("host", ["node-1.cluster.example", "a_b.c", "ünï", "", "x" * 300, "10.0.0.1"])
def test_any_host_name_makes_a_file_name_that_is_found_again(tmp_path, host):
    folder = layout.capture_dir(tmp_path, 0)
    folder.mkdir()
    (folder / layout.trace_name(3, host, 1, 2, gzip=False)).touch()
    assert [trace.rank for trace in layout.find_traces(tmp_path)] == [3]


def test_a_failed_write_leaves_what_was_there(tmp_path):
    path = tmp_path / "ranks" / "rank00000.json"
    store.write_json(path, {"steps": 1})
    circular: dict[str, object] = {}
    circular["self"] = circular
    with pytest.raises(ValueError, match="Circular"):
        store.write_json(path, circular)
    assert store.read_json(path) == {"steps": 1}
    assert [entry.name for entry in path.parent.iterdir()] == ["rank00000.json"]


def test_a_manifest_is_written_once_and_a_second_one_stands_beside_it(tmp_path):
    first = store.write_json_once(tmp_path / "run.json", {"attempt": 1})
    second = store.write_json_once(tmp_path / "run.json", {"attempt": 2})
    assert store.read_json(first) == {"attempt": 1}
    assert store.read_json(second) == {"attempt": 2}
    assert len(list(tmp_path.iterdir())) == 2


def test_many_writers_of_one_manifest_keep_a_file_each(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        paths = list(
            pool.map(lambda n: store.write_json_once(tmp_path / "run.json", {"attempt": n}), range(40))
        )
    assert [store.read_json(path)["attempt"] for path in paths] == list(range(40))
    assert sorted(paths) == sorted(tmp_path.iterdir())


def test_a_filesystem_without_hard_links_keeps_the_first_manifest_too(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    paths = [store.write_json_once(tmp_path / "run.json", {"attempt": n}) for n in range(3)]
    assert paths[0] == tmp_path / "run.json"
    assert [store.read_json(path)["attempt"] for path in paths] == [0, 1, 2]
    assert sorted(paths) == sorted(tmp_path.iterdir())


def test_a_failed_manifest_leaves_nothing(tmp_path):
    circular: dict[str, object] = {}
    circular["self"] = circular
    with pytest.raises(ValueError, match="Circular"):
        store.write_json_once(tmp_path / "run.json", circular)
    assert list(tmp_path.iterdir()) == []


def test_names_differ_where_anything_about_the_trace_differs():
    base = {"rank": 0, "host": "a", "pid": 1, "time_ns": 1, "gzip": True}
    others = [{"rank": 1}, {"host": "b"}, {"pid": 2}, {"time_ns": 2}, {"gzip": False}]
    names = [layout.trace_name(**(base | other)) for other in [{}, *others]]
    assert len(set(names)) == len(names)


def test_temporary_names_never_collide_and_no_reader_takes_one_for_a_trace(tmp_path):
    folder = layout.capture_dir(tmp_path, 7)
    folder.mkdir()
    trace = folder / layout.trace_name(0, "node", 1, 2, gzip=True)
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(lambda _: store.temporary_name(trace), range(2000)))
    assert len(set(names)) == len(names)
    names[0].touch()
    assert layout.find_traces(tmp_path) == []


def test_runs_are_found_oldest_first_and_a_run_is_found_in_itself(tmp_path):
    for time_s, name in enumerate(["zebra", "apple", "mango"]):
        (tmp_path / name / layout.RANKS).mkdir(parents=True)
        os.utime(tmp_path / name, (time_s, time_s))
    (tmp_path / "not-a-run").mkdir()
    (tmp_path / "step_notes.txt").touch()
    assert [path.name for path in layout.find_runs(tmp_path)] == ["zebra", "apple", "mango"]
    assert layout.find_runs(tmp_path / "apple") == [tmp_path / "apple"]


def test_reading_something_else_than_an_object(tmp_path):
    (tmp_path / "run.json").write_text("[1]")
    with pytest.raises(ValueError, match="expected a JSON object, found list"):
        store.read_json(tmp_path / "run.json")
