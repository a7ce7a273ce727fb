"""What the benchmarks share: runs in turn, medians with quartiles, tables."""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def in_turn(variants: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Run every variant once a round, each round in a new order, and return the results by name."""
    results: dict[str, list[T]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name in random.sample(list(variants), len(variants)):
            results[name].append(variants[name]())
    return results


def spread(values: Iterable[float], digits: int = 3) -> str:
    """Return median and quartiles as text."""
    known = list(values)
    if len(known) == 1:
        return f"{known[0]:.{digits}f}"
    low, middle, high = statistics.quantiles(known, n=4)
    return f"{middle:.{digits}f} ({low:.{digits}f} - {high:.{digits}f})"


def ratios(values: Iterable[float], to: Iterable[float]) -> list[float]:
    """Return the ratios of results of the same round."""
    return [one / other for one, other in zip(values, to, strict=True)]


def table(header: list[str], rows: Iterable[list[str]]) -> None:
    """Print a Markdown table."""
    print("| " + " | ".join(header) + " |")
    print("| " + " | ".join("---" for _ in header) + " |")
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def run_job(code: str, *arguments: object, environ: Mapping[str, str] | None = None) -> Any:
    """Run ``code`` in an interpreter of its own, in an empty folder, and return the JSON it prints last.

    ``bytes`` is added to it: the size of the traces in that folder once the process has ended.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ACCELPROF")}
        environment |= {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "ACCELPROF_OUTPUT_DIR": folder}
        environment |= {"ACCELPROF_LOG_LEVEL": "quiet", "KINETO_LOG_LEVEL": "6", **(environ or {})}
        # Where the package is not installed, it is found beside this folder.
        repository = Path(__file__).resolve().parents[1]
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(repository / "sitecustomize_pkg"), str(repository), environment.get("PYTHONPATH", "")]
        ).rstrip(os.pathsep)
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found = json.loads(done.stdout.splitlines()[-1])
        if isinstance(found, dict):
            traces = [path for path in Path(folder).rglob("*.json*") if re.search("trace|profile", path.name)]
            found["bytes"] = sum(path.stat().st_size for path in traces)
        return found
