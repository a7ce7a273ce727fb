"""Runs user-like scripts in processes of their own, with and without the product."""

from __future__ import annotations

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

from autoprof.run import layout

REPOSITORY = Path(__file__).parents[1]
SCRIPTS = REPOSITORY / "tests/integration/scripts"
BIN = Path(sys.executable).parent


@dataclass
class Outcome:
    """What a finished job left."""

    status: int
    stdout: str
    stderr: str
    output_dir: Path
    said: list[str] = field(default_factory=list)

    @property
    def run(self) -> Path:
        (run,) = layout.find_runs(self.output_dir)
        return run

    @property
    def traces(self) -> list[layout.TraceFile]:
        return layout.find_traces(self.run) if self.output_dir.exists() else []

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
    by: str = "python",
    enable: bool = True,
    env: Mapping[str, str] | None = None,
) -> Outcome:
    """Run a job to its end in ``folder``, its traces in a folder of their own below it."""
    output_dir = folder / "traces"
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ACCELPROF_", "_ACCELPROF_", "SLURM_", "PYTEST_"))
    }
    environment |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "true"}
    if enable:
        environment |= {"ACCELPROF_ENABLE": "1", "ACCELPROF_OUTPUT_DIR": str(output_dir)}
    environment |= env or {}
    finished = subprocess.run(
        [*launcher(by, ranks), *map(str, command)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    said = [line for line in finished.stderr.splitlines() if line.startswith("autoprof: ")]
    return Outcome(finished.returncode, finished.stdout, finished.stderr, output_dir, said)


def launcher(by: str, ranks: int) -> list[str]:
    port = str(free_port())
    if by == "accelerate":
        command = [str(BIN / "accelerate"), "launch", "--main_process_port", port]
        return [*command, "--multi_gpu", "--num_processes", str(ranks)] if ranks > 1 else command
    if by == "torchrun" or ranks > 1:
        return [str(BIN / "torchrun"), "--master_port", port, "--nproc_per_node", str(ranks)]
    return [sys.executable]
