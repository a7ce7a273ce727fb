"""Every function of the agent made to raise: the job does not notice."""

from __future__ import annotations

import json

from jobs import SCRIPTS

from autoprof.agent import agent, hooks  # noqa: F401  what they define registers itself
from autoprof.agent.guard import ENTRIES


def test_no_fault_of_ours_reaches_the_job(launch, tmp_path):
    env = {"ACCELPROF_STEPS": "2-4,7-8", "ACCELPROF_SCRATCH_DIR": str(tmp_path)}
    outcome = launch(SCRIPTS / "inject.py", env=env)
    assert outcome.status == 0, outcome.stderr
    results = json.loads(outcome.stdout.splitlines()[-1])
    clean = results.pop("")
    assert clean["status"] == 0
    assert "recorded steps 2-4, steps 7-8" in clean["stderr"]
    assert len(results) > len(ENTRIES)
    survived = {
        name
        for name, trial in results.items()
        if (trial["status"], trial["stdout"]) == (0, clean["stdout"]) and "Traceback" not in trial["stderr"]
    }
    assert survived == set(results), {name: results[name] for name in set(results) - survived}
    reached = {name for name, trial in results.items() if "injected into" in trial["stderr"]}
    assert len(reached) > len(results) / 2
    for name in reached:
        lines = [line for line in results[name]["stderr"].splitlines() if line.startswith("autoprof: ")]
        faults = [line for line in lines if "after a fault of the profiler itself" in line]
        assert len(faults) <= 1, (name, lines)
