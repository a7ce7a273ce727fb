"""Names inside a run directory. HolisticTraceAnalysis, the TensorBoard profiler plugin and Perfetto open
the traces as they are named here; tests/e2e holds that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

MANIFEST = "run.json"
RANKS = "ranks"

# The TensorBoard plugin takes everything before `.<digits>.pt.trace.json` as the worker's name.
_TRACE = re.compile(r"rank(?P<rank>\d+)\.(?P<host>.+)_(?P<pid>\d+)\.(?P<time_ns>\d+)\.pt\.trace\.json(\.gz)?")
_CAPTURE = re.compile(r"step_(\d+)(?:-\d+)?")


def capture_dir(run: Path, first_step: int, again: int = 1) -> Path:
    """Return the directory of the ``again``-th capture whose first recorded step is ``first_step``.

    A second one exists where steps were counted from 0 again: evaluation came before training, say.
    """
    return run / (f"step_{first_step:08d}" + (f"-{again}" if again > 1 else ""))


def trace_name(rank: int, host: str, pid: int, time_ns: int, *, gzip: bool) -> str:
    """Return the file name of one rank's trace; ``time_ns`` is Unix time in nanoseconds."""
    return f"rank{rank:05d}.{short_host(host)}_{pid}.{time_ns}.pt.trace.json" + (".gz" if gzip else "")


def rank_file(run: Path, rank: int) -> Path:
    """Return the file that says where a rank is."""
    return run / RANKS / f"rank{rank:05d}.json"


def short_host(host: str) -> str:
    """Reduce a host name to what is safe and short enough in a file name."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", host.partition(".")[0])[:40].strip("-") or "host"


@dataclass(frozen=True, order=True)
class TraceFile:
    """One trace found in a run directory."""

    first_step: int
    rank: int
    time_ns: int
    path: Path


def find_traces(run: Path) -> list[TraceFile]:
    """List the traces of a run by capture, rank and time. Files of other names are left out."""
    directories = (path for path in run.glob("step_*") if _CAPTURE.fullmatch(path.name))
    files = (path for directory in directories for path in directory.iterdir())
    return sorted(filter(None, map(trace_file, files)))


def trace_file(path: Path) -> TraceFile | None:
    """Return what the path of a trace in a run directory says, ``None`` where it is not one of a trace."""
    capture, trace = _CAPTURE.fullmatch(path.parent.name), _TRACE.fullmatch(path.name)
    if not capture or not trace:
        return None
    return TraceFile(int(capture[1]), int(trace["rank"]), int(trace["time_ns"]), path)


def find_runs(output_dir: Path) -> list[Path]:
    """List the run directories below ``output_dir``, oldest first; ``output_dir`` itself if it is one."""
    if is_run(output_dir):
        return [output_dir]
    runs = [path for path in output_dir.iterdir() if path.is_dir() and is_run(path)]
    return sorted(runs, key=lambda path: (path.stat().st_mtime, path.name))


def is_run(path: Path) -> bool:
    """Say whether a directory looks like one run."""
    return (path / MANIFEST).is_file() or (path / RANKS).is_dir() or any(path.glob("step*/rank*"))


def is_part_of_run(path: Path) -> bool:
    """Say whether ``path``, relative to a folder, is that of a file which makes the folder a run."""
    return (
        path == Path(MANIFEST)
        or path.parent == Path(RANKS)
        or (len(path.parts) == 2 and trace_file(path) is not None)
    )
