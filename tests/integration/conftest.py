"""Runs user-like scripts in processes of their own, with and without the product."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autoprof.run import layout

SCRIPTS = Path(__file__).parent / "scripts"
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


def wait_for(condition: Callable[[], Any], timeout_s: float = 60) -> Any:
    """Wait until ``condition`` holds and return what it returned."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise TimeoutError("the condition never held")


@pytest.fixture
def launch(tmp_path: Path) -> Callable[..., Outcome]:
    """Run a job to its end in an empty folder of its own."""
    count = 0

    def run(
        *command: str | Path,
        ranks: int = 1,
        by: str = "python",
        enable: bool = True,
        env: Mapping[str, str] | None = None,
    ) -> Outcome:
        nonlocal count
        count += 1
        folder = tmp_path / f"job{count}"
        folder.mkdir()
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

    return run


def launcher(by: str, ranks: int) -> list[str]:
    port = str(free_port())
    if by == "accelerate":
        command = [str(BIN / "accelerate"), "launch", "--main_process_port", port]
        return [*command, "--multi_gpu", "--num_processes", str(ranks)] if ranks > 1 else command
    if by == "torchrun" or ranks > 1:
        return [str(BIN / "torchrun"), "--master_port", port, "--nproc_per_node", str(ranks)]
    return [sys.executable]
