"""Processes that inherit ``ACCELPROF_ENABLE`` and are no ranks write, print and import nothing."""

from __future__ import annotations

import json

import pytest
from jobs import SCRIPTS, read_trace, step_numbers

NEW_MODULES = "import sys; print(*sorted({'torch', 'wrapt', 'accelerate', 'isal'} & set(sys.modules)))"


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", "pass"],
        ["-c", NEW_MODULES],
        ["-m", "pip", "--version"],
        ["-m", "this"],
    ],
    ids=lambda arguments: " ".join(arguments)[:20],
)
def test_a_process_without_accelerate(launch, arguments):
    without, with_us = (launch(*arguments, enable=enable) for enable in (False, True))
    assert (with_us.status, with_us.stdout, with_us.stderr) == (0, without.stdout, without.stderr)
    assert with_us.left() == []


@pytest.mark.parametrize("command", ["accelerate", "torchrun"])
def test_a_launcher(launch, tmp_path, command):
    (tmp_path / "job.py").write_text(NEW_MODULES)
    without, with_us = (launch(tmp_path / "job.py", by=command, enable=enable) for enable in (False, True))
    assert (with_us.status, with_us.stdout) == (0, without.stdout)
    assert with_us.stdout.split() == []
    assert (with_us.said, with_us.left()) == ([], [])
    assert len(with_us.stderr.splitlines()) == len(without.stderr.splitlines())


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_dataloader_workers(launch, how):
    """Those of the second epoch start in the middle of a capture."""
    without = launch(SCRIPTS / "workers.py", how, enable=False)
    with_us = launch(SCRIPTS / "workers.py", how, env={"ACCELPROF_STEPS": "10-13"})
    assert (with_us.status, with_us.stdout) == (0, without.stdout), with_us.stderr
    assert json.loads(with_us.stdout.splitlines()[-1])[:2] == [96, 0]
    ours = [line for line in with_us.stderr.splitlines() if line.startswith("autoprof: ")]
    assert len(with_us.stderr.splitlines()) - len(ours) == len(without.stderr.splitlines())
    names = sorted(path.name for path in with_us.run.iterdir())
    assert names == ["ranks", "run.json", "step_00000010", "steps"]
    assert [path.name for path in (with_us.run / "ranks").iterdir()] == ["rank00000.json"]
    (trace,) = with_us.traces
    assert step_numbers(read_trace(trace.path)) == [10, 11, 12, 13]
    assert with_us.rank()["steps"] == 24
