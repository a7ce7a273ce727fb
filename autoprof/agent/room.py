"""Whether there is room for a capture, on the scratch disk and in memory."""

from __future__ import annotations

import shutil
from pathlib import Path

_LEAST_DISK_BYTES = 64 * 2**20
_LEAST_MEMORY_BYTES = 256 * 2**20
# torch holds a capture's events in memory, several times the size of the JSON they become.
_MEMORY_PER_RAW_BYTE = 4

_MEMINFO = Path("/proc/meminfo")
_CGROUPS = Path("/proc/self/cgroup")
_CGROUP_ROOT = Path("/sys/fs/cgroup")


def lacking(scratch: Path, largest_raw_bytes: int) -> str:
    """Return what a capture lacks to be begun, in words; nothing where there is room.

    ``largest_raw_bytes`` is the size of the largest raw trace so far: the next one may be as large.
    """
    try:
        disk = shutil.disk_usage(scratch).free
    except OSError as error:
        return f"{scratch} cannot be looked at ({error.strerror or error})"
    wanted = max(_LEAST_DISK_BYTES, 2 * largest_raw_bytes)
    if disk < wanted:
        return f"{scratch} has {_mb(disk)} free and a capture may take {_mb(wanted)}"
    memory = available_memory()
    wanted = max(_LEAST_MEMORY_BYTES, _MEMORY_PER_RAW_BYTE * largest_raw_bytes)
    if memory is not None and memory < wanted:
        return f"{_mb(memory)} of memory are free and a capture may take {_mb(wanted)}"
    return ""


def available_memory() -> int | None:
    """Return the bytes this process could still take, within its cgroup too; ``None`` where unknown."""
    known = [free for free in (_machine_memory(), _cgroup_memory()) if free is not None]
    return min(known) if known else None


def _machine_memory() -> int | None:
    for line in _lines(_MEMINFO):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_memory() -> int | None:
    """Look at the cgroup (v2) that the process is in; inside a container its root is the container's."""
    own = next((line[3:] for line in _lines(_CGROUPS) if line.startswith("0::")), "/")
    for folder in (_CGROUP_ROOT / own.lstrip("/"), _CGROUP_ROOT):
        limit, used = (_lines(folder / name) for name in ("memory.max", "memory.current"))
        if limit and used and limit[0].isdecimal():
            statistics = dict(line.split() for line in _lines(folder / "memory.stat"))
            reclaimable = int(statistics.get("inactive_file", 0))
            return max(0, int(limit[0]) - int(used[0]) + reclaimable)
    return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"
