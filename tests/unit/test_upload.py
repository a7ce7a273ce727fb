"""Copies elsewhere: whole, never over another run's, tried again, and removed only where they are ours."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import uuid
from typing import Any

import pytest

from autoprof.agent import upload
from autoprof.agent.remote import Place, Unusable
from autoprof.agent.upload import Mirror, Upload

pytest.importorskip("fsspec")


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def run_dir(tmp_path):
    folder = tmp_path / "scratch/autoprof-0/run-1"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def remote(tmp_path):
    return tmp_path / "remote"


@pytest.fixture
def mirror(remote, run_dir, warnings):
    mirror = Mirror(f"file://{remote}", run_dir, warnings.append)
    yield mirror
    mirror.kill()


def trace(run_dir, name, content=b"trace"):
    path = run_dir / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return Upload(path, name, passing=True)


def finish(mirror):
    mirror.hurry(60)
    return mirror.finish()


def below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture(params=["memory", "file"])
def place(request, tmp_path):
    if request.param == "memory":
        return Place(f"memory://{uuid.uuid4().hex}/runs")
    return Place(f"file://{tmp_path}/runs")


def test_files_are_put_found_and_removed_on_any_backend(place, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"x" * 1000)
    place.put(source, "run/step_1/a")
    place.put(source, "run/step_1/b")
    assert place.files() == [("run/step_1/a", 1000), ("run/step_1/b", 1000)]
    place.remove("run/step_1/a")
    place.remove("run/step_1/a")  # gone already
    assert place.files() == [("run/step_1/b", 1000)]


def test_a_name_that_is_taken_is_left_to_its_owner(place, tmp_path):
    source = tmp_path / "source"
    for pid, expected in ((1, "run/a.json"), (2, "run/a.2.json"), (1, "run/a.json")):
        source.write_text(json.dumps({"pid": pid}))
        assert place.put_once(source, "run/a.json", f"run/a.{pid}.json", {"pid": pid}) == expected
    assert [name for name, _ in place.files()] == ["run/a.2.json", "run/a.json"]


def test_trying_out_leaves_nothing(place):
    place.try_out("probe")
    assert place.files() == []


@pytest.mark.parametrize("url", ["nonsense://x/y", "gs://bucket/x"])
def test_a_missing_backend_is_told(url):
    if url.startswith("gs"):
        try:
            import gcsfs  # noqa: F401
        except ImportError:
            pass
        else:
            pytest.skip("gcsfs is installed")
    with pytest.raises(Unusable, match=r"install|not known"):
        Place(url)


def test_what_has_arrived_goes_locally_and_nothing_else(mirror, run_dir, remote, warnings):
    (run_dir / "ranks").mkdir()
    (run_dir / "ranks/of-another-rank.json").write_text("{}")
    arrivals = []
    item = trace(run_dir, "step_00000001/a.gz")
    item.arrived = arrivals.append
    mirror.put(item)
    assert finish(mirror) == []
    assert (arrivals, warnings) == ([True], [])
    assert below(remote) == ["run-1/step_00000001/a.gz"]
    assert below(run_dir) == ["ranks/of-another-rank.json"]
    assert not item.path.parent.exists()


def test_a_place_that_comes_back_gets_everything(mirror, run_dir, remote, warnings):
    remote.write_text("in the way")
    first = trace(run_dir, "step_00000001/a.gz")
    mirror.put(first)
    mirror.start()
    assert mirror._queue.drain(60)
    assert len(warnings) == 1
    assert str(run_dir) in warnings[0]
    assert first.path.exists()
    remote.unlink()
    mirror.put(trace(run_dir, "step_00000005/b.gz"))
    assert finish(mirror) == []
    assert below(remote) == ["run-1/step_00000001/a.gz", "run-1/step_00000005/b.gz"]
    assert not run_dir.exists()


def test_only_what_was_copied_is_removed_there(mirror, run_dir, remote):
    mirror.put(trace(run_dir, "step_00000001/a.gz"))
    mirror.start()
    assert mirror._queue.drain(60)
    theirs = remote / "run-1/step_00000001/theirs.gz"
    theirs.write_text("x")
    mirror.remove("step_00000001/a.gz")
    mirror.remove("step_00000001/theirs.gz")
    assert mirror.unremoved == 1
    assert finish(mirror) == []
    assert mirror.unremoved == 0
    assert below(remote) == ["run-1/step_00000001/theirs.gz"]


def test_nothing_is_asked_of_memory_that_would_be_lost(run_dir, warnings):
    mirror = Mirror("memory://x", run_dir, warnings.append)
    item = trace(run_dir, "step_00000001/a.gz")
    mirror.put(item)
    mirror.start()
    assert mirror._queue.drain(60)
    assert finish(mirror) == [item.path]
    assert item.path.exists()
    assert len(warnings) == 1
    assert "ends with the process" in warnings[0]


def test_an_interpreter_that_cannot_run_is_a_reason_and_no_fault(monkeypatch, mirror, run_dir):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    item = trace(run_dir, "step_00000001/a.gz")
    mirror.put(item)
    assert finish(mirror) == [item.path]
    assert "cannot be started: No such file or directory" in mirror.why


def test_a_process_that_does_not_end_is_ended(tmp_path):
    os.mkfifo(tmp_path / "a.json")  # opening it waits for a writer, for ever
    (tmp_path / "b.json").write_text("{}")
    operation: dict[str, Any] = {
        "do": "put once",
        "path": f"{tmp_path}/b.json",
        "name": "a.json",
        "otherwise": "c",
    }
    operation["owner"] = {}
    until = time.monotonic() + 2
    children = []
    (answer,) = upload.ask(f"file://{tmp_path}", [operation], lambda: until, note=children.append)
    assert answer["error"].startswith("not done within")
    child, nothing = children
    assert child.returncode == -signal.SIGKILL
    assert nothing is None


def test_the_process_that_uploads_is_not_profiled_and_finds_no_modules_of_the_job(tmp_path, monkeypatch):
    (tmp_path / "fsspec.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACCELPROF_ENABLE", "1")
    assert upload.try_out(f"file://{tmp_path}/remote") == ""
