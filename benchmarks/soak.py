"""Resident memory of one process over hundreds of captures, with the garbage collector on and off.

    python benchmarks/soak.py [--captures 300]

The agent runs as in any job. Printed: resident memory after the 30th and after the last capture, their
ratio, and the same for a process that trains as long without a capture.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

TRAIN = """
import gc, sys, time, torch
from accelerate import Accelerator
captures, collect = int(sys.argv[1]), sys.argv[2] == "on"
if not collect:
    gc.disable()
accelerator = Accelerator()
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)])
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
for step in range(2 * captures + 20):
    accelerator.backward(model(torch.ones(8, 64)).sum())
    optimizer.step()
    optimizer.zero_grad()
    if step % 2 == 0:
        time.sleep(0.03)
    if step in (2 * 30, 2 * captures + 10):
        print(int(open("/proc/self/statm").read().split()[1]) * 4 // 1024)
"""


def measure(captures: int, collector: str, *, enable: bool) -> tuple[int, int]:
    """Return resident memory in MiB after the 30th and after the last capture."""
    with tempfile.TemporaryDirectory() as folder:
        steps = ",".join(str(step) for step in range(2, 2 * captures + 2, 2))
        environ = os.environ | {"ACCELERATE_USE_CPU": "true", "ACCELPROF_OUTPUT_DIR": folder}
        environ |= {"ACCELPROF_ENABLE": "1" if enable else "0", "ACCELPROF_STEPS": steps}
        environ |= {"ACCELPROF_LOG_LEVEL": "quiet", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", TRAIN, str(captures), collector]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        early, late = map(int, done.stdout.split())
        return early, late


def main() -> None:
    """Print one row per case."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--captures", type=int, default=300)
    captures = parser.parse_args().captures
    print(f"| agent | garbage collector | MiB after 30 | MiB after {captures} | ratio |")
    print("| --- | --- | --- | --- | --- |")
    for enable in (True, False):
        for collector in ("on", "off"):
            early, late = measure(captures, collector, enable=enable)
            name = "capturing" if enable else "disabled"
            print(f"| {name} | {collector} | {early} | {late} | {late / early:.3f} |", flush=True)


if __name__ == "__main__":
    main()
