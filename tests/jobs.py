"""Runs user-like scripts in processes of their own, with and without the product."""

from __future__ import annotations

import functools
import gzip
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autoprof._startup import new_run_id
from autoprof.run import layout

REPOSITORY = Path(__file__).parents[1]
SCRIPTS = REPOSITORY / "tests/integration/scripts"
BIN = Path(sys.executable).parent
_PATIENCE_S = 240


@dataclass
class Outcome:
    """What a finished job left."""

    status: int
    stdout: str
    stderr: str
    output_dir: Path
    said: list[str] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    """One per rank, where no launcher stands in between."""

    @property
    def run(self) -> Path:
        (run,) = layout.find_runs(self.output_dir)
        return run

    @property
    def traces(self) -> list[layout.TraceFile]:
        runs = layout.find_runs(self.output_dir) if self.output_dir.exists() else []
        return [trace for run in runs for trace in layout.find_traces(run)]

    def rank(self, rank: int = 0) -> dict[str, Any]:
        return json.loads(layout.rank_file(self.run, rank).read_text())

    def left(self) -> list[str]:
        """Names of everything below the output folder."""
        return [str(path.relative_to(self.output_dir)) for path in self.output_dir.rglob("*")]


def read_trace(path: Path) -> dict[str, Any]:
    """Read a trace as strict JSON."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    raw = path.read_bytes()
    return json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw, parse_constant=refuse)


def slices(trace: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the complete slices whose name begins with ``name``, in order of time."""
    found = [e for e in trace["traceEvents"] if e.get("ph") == "X" and e["name"].startswith(name)]
    return sorted(found, key=lambda event: event["ts"])


def step_numbers(trace: dict[str, Any]) -> list[int]:
    return [int(event["name"].partition("#")[2]) for event in slices(trace, "ProfilerStep#")]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_job(
    folder: Path,
    *command: str | Path | int,
    ranks: int = 1,
    by: str = "",
    enable: bool = True,
    env: Mapping[str, str] | None = None,
) -> Outcome:
    """Run a job to its end in ``folder``, its traces in a folder of their own below it.

    A script runs in a fork of a process that has imported torch; ``by`` names what starts it from nothing
    instead: ``python``, ``torchrun`` or ``accelerate``.
    """
    output_dir = folder / "traces"
    environment = _outer_environment()
    environment |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "true"}
    if enable:
        environment |= {"ACCELPROF_ENABLE": "1", "ACCELPROF_OUTPUT_DIR": str(output_dir)}
    environment |= env or {}
    if not by and Path(command[0]).suffix == ".py":
        statuses, stdout, stderr = _run_warm(folder, [*map(str, command)], ranks, environment)
        status = next(filter(None, statuses), 0)
    else:
        finished = subprocess.run(
            [*launcher(by, ranks), *map(str, command)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        status, stdout, stderr = finished.returncode, finished.stdout, finished.stderr
        statuses = [status]
    said = [line for line in stderr.splitlines() if line.startswith("autoprof: ")]
    return Outcome(status, stdout, stderr, output_dir, said, statuses)


def launcher(by: str, ranks: int) -> list[str]:
    port = str(free_port())
    if by == "accelerate":
        command = [str(BIN / "accelerate"), "launch", "--main_process_port", port]
        return [*command, "--multi_gpu", "--num_processes", str(ranks)] if ranks > 1 else command
    if by == "torchrun" or ranks > 1:
        return [str(BIN / "torchrun"), "--master_port", port, "--nproc_per_node", str(ranks)]
    return [sys.executable]


def _outer_environment() -> dict[str, str]:
    """The environment of the tests without what would change a job."""
    others = ("ACCELPROF_", "_ACCELPROF_", "SLURM_", "PYTEST_", "PYTHONUNBUFFERED")
    return {name: value for name, value in os.environ.items() if not name.startswith(others)}


def _run_warm(
    folder: Path, command: list[str], ranks: int, environment: Mapping[str, str]
) -> tuple[list[int], str, str]:
    environments = [dict(environment)]
    if ranks > 1:
        shared = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "GROUP_RANK": "0"}
        shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "TORCHELASTIC_RUN_ID": "none"}
        shared |= {"_ACCELPROF_RUN_ID": new_run_id()}  # as the launcher would
        environments = [
            {**shared, **environment, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)
        ]
    stdout, stderr = folder / "stdout.txt", folder / "stderr.txt"
    answer = _warm_process().ask(
        {
            "command": command,
            "folder": str(folder),
            "ranks": environments,
            "stdout": str(stdout),
            "stderr": str(stderr),
            "timeout_s": _PATIENCE_S,
        }
    )
    if answer is None:
        raise subprocess.TimeoutExpired(command, _PATIENCE_S, stdout.read_bytes(), stderr.read_bytes())
    return answer, stdout.read_text(), stderr.read_text()


class _WarmProcess:
    """The other end of ``warm.py``."""

    def __init__(self) -> None:
        environment = _outer_environment()
        # What is read while torch is imported; the start of a job sets the second one itself.
        environment |= {"OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "6", "ACCELERATE_USE_CPU": "true"}
        environment |= {"HF_HUB_OFFLINE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, str(REPOSITORY / "tests/warm.py")],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def ask(self, job: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


@functools.cache
def _warm_process() -> _WarmProcess:
    return _WarmProcess()
