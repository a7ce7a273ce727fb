"""No capture is begun where it would take the last of the disk or the memory."""

from __future__ import annotations

import shutil

import pytest

from autoprof.agent import room

GIB = 2**30


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with a large disk, 8 GiB of memory available and no cgroup."""
    usage = shutil.disk_usage
    monkeypatch.setattr(room.shutil, "disk_usage", lambda path: usage(path)._replace(free=2**50))
    monkeypatch.setattr(room, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(room, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(room, "_CGROUP_ROOT", tmp_path / "groups")
    (tmp_path / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {8 * GIB // 1024} kB\n")
    (tmp_path / "groups").mkdir()
    return tmp_path


def limit(folder, limit_bytes, used_bytes, inactive=0):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit_bytes}\n")
    (folder / "memory.current").write_text(f"{used_bytes}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {inactive}\n")


def test_the_machine_alone(machine):
    assert room.available_memory() == 8 * GIB
    assert room.lacking(machine, 0) == ""


def test_a_cgroup_that_allows_less(machine):
    (machine / "cgroup").write_text("0::/slurm/job_7\n")
    limit(machine / "groups/slurm/job_7", GIB, GIB - 1000, inactive=400)
    assert room.available_memory() == 1400
    assert "memory are free" in room.lacking(machine, 0)


def test_the_root_of_a_container_is_its_cgroup(machine):
    (machine / "cgroup").write_text("0::/outside/of/the/container\n")
    limit(machine / "groups", 4 * GIB, GIB)
    assert room.available_memory() == 3 * GIB


def test_a_cgroup_without_a_limit(machine):
    limit(machine / "groups", "max", GIB)
    assert room.available_memory() == 8 * GIB


def test_a_machine_that_tells_nothing(machine):
    (machine / "meminfo").unlink()
    assert room.available_memory() is None
    assert room.lacking(machine, 0) == ""


def test_a_capture_may_be_as_large_as_the_largest_before(machine):
    assert room.lacking(machine, GIB) == ""
    assert "8,590 MB of memory are free" in room.lacking(machine, 3 * GIB)


def test_a_scratch_folder_that_is_gone(machine):
    assert "cannot be looked at" in room.lacking(machine / "gone", 0)
