"""Each option of torch's profiler adds to the trace what it says, and one that torch lacks is said."""

from __future__ import annotations

import pytest
import torch
from jobs import SCRIPTS, read_trace


def names(document, category):
    return {event["name"] for event in document["traceEvents"] if event.get("cat") == category}


def arguments(document):
    operators = [event for event in document["traceEvents"] if event.get("cat") == "cpu_op"]
    return {key for event in operators for key in event["args"]}


ADDED = {
    "RECORD_SHAPES": lambda document: "Input Dims" in arguments(document),
    "WITH_FLOPS": lambda document: "Input Dims" in arguments(document),
    "PROFILE_MEMORY": lambda document: "[memory]" in names(document, "cpu_instant_event"),
    "WITH_STACK": lambda document: any("options.py" in name for name in names(document, "python_function")),
    "VERBOSE_STACKS": lambda document: "Call stack" in arguments(document),
    "PYTHON_GC": lambda document: "Python GC" in names(document, "python_function"),
    "PROFILE_ALL_THREADS": lambda document: "aten::cumsum" in names(document, "cpu_op"),
    "OVERLOAD_NAMES": lambda document: any("." in name for name in names(document, "cpu_op")),
}


@pytest.fixture
def clean(launch):
    return launch(SCRIPTS / "options.py", enable=False)


def test_an_option_adds_what_it_says_and_is_off_by_default(launch, clean):
    def document(**env):
        outcome = launch(SCRIPTS / "options.py", env=env)
        assert (outcome.status, outcome.stdout) == (0, clean.stdout), outcome.stderr
        assert "lacks" not in outcome.stderr
        assert outcome.rank()["missed"] == []
        return read_trace(outcome.traces[0].path)

    bare = document(ACCELPROF_POST_PROCESSING_TIMEOUT="30")
    assert not [name for name, added in ADDED.items() if added(bare)]
    for name, added in ADDED.items():
        assert added(document(**{f"ACCELPROF_{name}": "1"})), name


OLD = {
    "ACCELPROF_PROFILE_ALL_THREADS=1": "asks for what torch",
    "ACCELPROF_OVERLOAD_NAMES=1": "asks for what torch",
    "ACCELPROF_POST_PROCESSING_TIMEOUT=1.5": "asks for what torch",
    "ACCELPROF_CUDA_SYNC_EVENTS=1": "asks for what torch",
}


@pytest.mark.parametrize("strict", ["0", "1"])
def test_what_torch_or_the_machine_lacks_is_said(launch, clean, strict):
    env = dict(case.split("=") for case in OLD) | {"ACCELPROF_STRICT": strict}
    outcome = launch(SCRIPTS / "options.py", "old", env=env)
    for case, why in OLD.items():
        assert [line for line in outcome.said if case in line and why in line], (case, outcome.said)
    if strict == "1":
        assert (outcome.status, outcome.stdout) == (1, "")
        return
    assert (outcome.status, outcome.stdout) == (0, clean.stdout)
    assert len(outcome.rank()["missed"]) == len(OLD)
    assert len(outcome.traces) == 1


def test_synchronisation_events_need_cuda(launch, clean):
    outcome = launch(SCRIPTS / "options.py", env={"ACCELPROF_CUDA_SYNC_EVENTS": "1"})
    assert (outcome.status, outcome.stdout) == (0, clean.stdout)
    said = [line for line in outcome.said if "ACCELPROF_CUDA_SYNC_EVENTS=1 needs CUDA" in line]
    assert len(said) == (not torch.cuda.is_available())


def test_stacks_that_the_scripts_own_profile_function_prevents_are_said(launch, clean):
    outcome = launch(SCRIPTS / "options.py", "traced", env={"ACCELPROF_WITH_STACK": "1"})
    assert (outcome.status, outcome.stdout) == (0, clean.stdout)
    assert [line for line in outcome.said if "ACCELPROF_WITH_STACK=1 needs Python's profile function" in line]
    assert not names(read_trace(outcome.traces[0].path), "python_function")
