"""What a step is made of has ranges in the trace, each once a step, and the job prints what it always did."""

from __future__ import annotations

from jobs import SCRIPTS, read_trace, slices, step_numbers

PHASES = (
    "waiting for data",
    "Accelerator.backward",
    "Accelerator.clip_grad_norm_",
    "Accelerator.clip_grad_value_",
    "AcceleratedOptimizer.step",
    "AcceleratedScheduler.step",
    "Accelerator.gather_for_metrics",
    "Accelerator.save_state",
    "Accelerator.load_state",
)


def test_every_phase_of_a_step_is_a_range(launch):
    clean = launch(SCRIPTS / "phases.py", enable=False)
    outcome = launch(SCRIPTS / "phases.py", env={"ACCELPROF_STEPS": "3-5", "ACCELPROF_WARMUP": "1"})
    assert (outcome.status, outcome.stdout) == (0, clean.stdout), outcome.stderr
    document = read_trace(outcome.traces[0].path)
    assert step_numbers(document) == [3, 4, 5]
    steps = slices(document, "ProfilerStep#")
    for name in PHASES:
        found = [event for event in slices(document, name) if event["cat"] == "user_annotation"]
        inside = [
            sum(step["ts"] <= event["ts"] < step["ts"] + step["dur"] for event in found) for step in steps
        ]
        assert inside == [1, 1, 1], (name, inside)
