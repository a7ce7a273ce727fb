"""What an interpreter pays at start-up for having autoprof installed: `python benchmarks/startup.py`.

Every process of a machine may inherit the variable, so what counts is a process that never imports
Accelerate. Each round starts every variant once, in a new order; a ratio is between a variant and the bare
interpreter of the same round.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
INSTALLED = ("autoprof", "sitecustomize_pkg", "accelerate_autoprof.pth", "accelerate_autoprof.start")


@dataclass
class Variant:
    """One way to start an interpreter, and what it took."""

    name: str
    python: str
    environ: dict[str, str]
    wall_ms: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    instructions: list[int] = field(default_factory=list)

    @property
    def command(self) -> list[str]:
        return [self.python, "-c", "pass"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=150, help="how often each variant starts (default 150)")
    parser.add_argument("--python", default=sys.executable, help="interpreter to start (default: this one)")
    parser.add_argument("--valgrind", action="store_true", help="count instructions with cachegrind (slow)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        variants = make_variants(Path(directory), options.python)
        for variant in variants:
            start_ms(variant)  # writes the bytecode that the rounds then read
        measure(variants, options.rounds)
        if options.valgrind:
            count(variants, cachegrind)
        elif perf(variants[0]):
            count(variants, perf)
    report(variants, options.python)


def make_variants(directory: Path, python: str) -> list[Variant]:
    """Create one virtual environment for each thing that can be in site-packages."""
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ACCELPROF"))
    }
    environ["PYTHONHASHSEED"] = "0"  # the same instructions each time

    def make(name: str) -> tuple[str, Path]:
        home = directory / name
        subprocess.run([python, "-m", "venv", "--without-pip", home], env=environ, check=True)
        (site_packages,) = home.glob("lib/python3*/site-packages")
        return str(home / "bin" / "python"), site_packages

    bare, _ = make("bare")
    empty, site_packages = make("empty")
    (site_packages / "idle.pth").write_text("")
    idle, site_packages = make("idle")
    (site_packages / "idle.pth").write_text("import os\n")
    installed, site_packages = make("installed")
    for name in INSTALLED:
        path = REPOSITORY / name
        if path.is_dir():
            shutil.copytree(path, site_packages / name)
        else:
            shutil.copy(path, site_packages)
    subprocess.run([installed, "-m", "compileall", "-q", site_packages], env=environ, check=True)

    on = environ | {"ACCELPROF_ENABLE": "1"}
    injected = {"PYTHONPATH": str(site_packages / "sitecustomize_pkg")}
    return [
        Variant("bare interpreter", bare, environ),
        Variant("an empty .pth", empty, environ),
        Variant("a .pth with `import os`", idle, environ),
        Variant("installed, disabled", installed, environ),
        Variant("installed, enabled", installed, on),
        Variant("sitecustomize, disabled", bare, environ | injected),
        Variant("sitecustomize, enabled", bare, on | injected),
    ]


def measure(variants: list[Variant], rounds: int) -> None:
    for _ in range(rounds):
        took = {variant.name: start_ms(variant) for variant in random.sample(variants, len(variants))}
        for variant in variants:
            variant.wall_ms.append(took[variant.name])
            variant.ratios.append(took[variant.name] / took[variants[0].name])


def start_ms(variant: Variant) -> float:
    began = time.perf_counter_ns()
    pid = os.posix_spawn(variant.python, variant.command, variant.environ)
    _, status = os.waitpid(pid, 0)
    took = time.perf_counter_ns() - began
    if status:
        raise RuntimeError(f"{variant.name}: wait status {status}")
    return took / 1e6


def count(variants: list[Variant], counter: Callable[[Variant], int | None]) -> None:
    for _ in range(3):
        for variant in variants:
            variant.instructions.append(counter(variant) or 0)


def perf(variant: Variant) -> int | None:
    """Count user-mode instructions; ``None`` where the machine cannot."""
    if shutil.which("perf") is None:
        return None
    command = ["perf", "stat", "-x", ",", "-e", "instructions:u", *variant.command]
    result = subprocess.run(command, env=variant.environ, capture_output=True, text=True, check=False)
    match = re.search(r"^(\d+),", result.stderr, re.MULTILINE)
    return int(match[1]) if match else None


def cachegrind(variant: Variant) -> int:
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    result = subprocess.run(
        [*command, *variant.command], env=variant.environ, capture_output=True, text=True, check=True
    )
    match = re.search(r"I\s+refs:\s+([\d,]+)", result.stderr)
    if match is None:
        raise RuntimeError(f"valgrind gave no count:\n{result.stderr}")
    return int(match[1].replace(",", ""))


def report(variants: list[Variant], python: str) -> None:
    version = subprocess.check_output([python, "--version"], text=True).strip()
    rounds = len(variants[0].wall_ms)
    print(f"{version}, {rounds} rounds, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}\n")
    print(f"{'':26}{'median ms':>10}{'ratio':>8}{'quartiles':>16}{'instructions':>14}{'ratio':>8}")
    for variant in variants:
        low, middle, high = statistics.quantiles(variant.ratios, n=4)
        line = (
            f"{variant.name:26}{statistics.median(variant.wall_ms):10.2f}{middle:8.3f}{low:9.3f} -{high:6.3f}"
        )
        if variant.instructions:
            instructions = statistics.median(variant.instructions)
            ratio = instructions / statistics.median(variants[0].instructions)
            line += f"{instructions / 1e6:12.2f} M{ratio:8.4f}"
        print(line)


if __name__ == "__main__":
    main()
