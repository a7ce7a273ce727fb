"""What a person copies from the repository is right: job configs, and every setting that the docs name."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from autoprof.settings import SETTINGS, resolve

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = sorted((REPOSITORY / "examples").glob("*.py"))
JOBS = sorted((REPOSITORY / "examples/jobs").iterdir())
DOCS = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md"), *JOBS]

ASSIGNED = re.compile(r"\b(ACCELPROF_[A-Z_]+)=([^\s`\"']+)")
KUBERNETES = re.compile(r"name: (ACCELPROF_[A-Z_]+)\s+value: \"?([^\"\n]+)")


def ids(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


@pytest.mark.parametrize("script", SCRIPTS, ids=ids)
def test_a_script_has_no_trace_of_the_profiler(script):
    assert not re.search("autoprof|accelprof|profil", script.read_text(), re.IGNORECASE)


@pytest.mark.parametrize("page", DOCS, ids=ids)
def test_every_setting_that_is_named_exists(page):
    named = set(re.findall(r"\bACCELPROF_[A-Z_]*[A-Z]\b", page.read_text()))
    assert named <= {setting.name for setting in SETTINGS}


@pytest.mark.parametrize("page", DOCS, ids=ids)
def test_every_value_that_is_given_is_accepted(page):
    text = page.read_text()
    given = [
        pair for pair in ASSIGNED.findall(text) + KUBERNETES.findall(text) if pair[0] != "ACCELPROF_CONFIG"
    ]
    assert [problem for name, value in given for problem in resolve({name: value}).problems] == []


def test_the_toml_file_is_usable():
    resolved = resolve({"ACCELPROF_CONFIG": str(REPOSITORY / "examples/jobs/autoprof.toml")})
    assert resolved.problems == []
    assert any(source.endswith("autoprof.toml") for source in resolved.sources.values())


def test_every_job_says_how_to_switch_it_on():
    for job in JOBS:
        assert "ACCELPROF_ENABLE" in job.read_text(), job


def test_the_slurm_script_is_a_shell_script():
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    subprocess.run([bash, "-n", REPOSITORY / "examples/jobs/slurm.sbatch"], check=True)
