"""The run directory: names that sort and never collide, files that are whole or not there."""

from __future__ import annotations

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


def test_reading_something_else_than_an_object(tmp_path):
    (tmp_path / "run.json").write_text("[1]")
    with pytest.raises(ValueError, match="expected a JSON object, found list"):
        store.read_json(tmp_path / "run.json")
