"""Scripts that other people wrote behave as they do without us: same exit status, same stdout."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter

import pytest
from jobs import SCRIPTS, run_job

ACCELERATES_OWN = ["test_script", "test_sync", "test_ops"]
# With a decimal point or, by chance, without.
RATES = re.compile(r"'\w+_(?:runtime|per_second)': '[\d.e+-]+'")
TIMES = re.compile(r"'train_\w+': '?[\d.]+'?|\[[\d-]+ [\d:,]+\]")
ABOUT_THE_JOB = re.compile(r"0x[0-9a-f]+|\d+\.\d+|\bport \d+|^\[20\d\d-.*$")


def comparable(stdout: str, ranks: int = 1) -> object:
    """Leave out what differs between two runs anyhow. Two ranks share one stdout, even within a line."""
    lines = [ABOUT_THE_JOB.sub("…", RATES.sub("…", line)) for line in stdout.splitlines()]
    return lines if ranks == 1 else Counter(re.sub(r"[^a-zA-Z]", "", "".join(lines)))


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("module", ACCELERATES_OWN)
def test_the_scripts_inside_accelerates_wheel(launch, module, ranks):
    command = ["-m", f"accelerate.test_utils.scripts.{module}"]
    outcomes = [launch(*command, ranks=ranks, by="accelerate", enable=enable) for enable in (False, True)]
    without, with_us = outcomes
    assert with_us.status == without.status, with_us.stderr
    assert comparable(with_us.stdout, ranks) == comparable(without.stdout, ranks)
    assert not [line for line in with_us.said if "fault" in line]


def test_accelerates_own_metrics_with_external_dependencies(launch):
    command = ["-m", "accelerate.test_utils.scripts.external_deps.test_metrics"]
    without, with_us = (launch(*command, by="accelerate", enable=enable) for enable in (False, True))
    assert without.status == 0, without.stderr
    assert (with_us.status, with_us.stdout) == (0, without.stdout), with_us.stderr
    assert with_us.rank()["step_source"] == "batch"


@pytest.fixture(scope="module")
def local_glue(tmp_path_factory):
    """A folder that holds what scripts would otherwise download."""
    folder = tmp_path_factory.mktemp("glue")
    built = run_job(folder, SCRIPTS / "local_glue.py", enable=False)
    assert built.status == 0, built.stderr
    return folder


@pytest.mark.parametrize(("script", "steps", "ranks"), [("performance", 20, 2), ("checkpointing", 20, 1)])
def test_accelerates_own_training_with_external_dependencies(local_glue, tmp_path, script, steps, ranks):
    outcomes = []
    for enable in (False, True):
        folder = tmp_path / str(enable)
        shutil.copytree(local_glue, folder)
        outcomes.append(
            run_job(
                folder,
                *("-m", f"accelerate.test_utils.scripts.external_deps.test_{script}"),
                *("--model_name_or_path", "model", "--output_dir", ".", "--num_epochs", "2"),
                ranks=ranks,
                by="accelerate",
                enable=enable,
                env={"HF_HOME": str(folder / "cache")},
            )
        )
    without, with_us = outcomes
    assert without.status == 0, without.stderr
    # Figures included: losses, accuracies and learning rates are what they are without us.
    assert (with_us.status, timeless(with_us.stdout)) == (0, timeless(without.stdout)), with_us.stderr
    assert "epoch 1:" in without.stdout
    assert [with_us.rank(rank)["steps"] for rank in range(ranks)] == [steps // ranks] * ranks
    assert len(with_us.traces) == ranks


def timeless(text):
    return TIMES.sub("…", text)


@pytest.mark.parametrize("script", ["train", "accumulate", "gan", "inference", "trainer"])
def test_the_examples(launch, script):
    path = SCRIPTS.parents[2] / "examples" / f"{script}.py"
    without, with_us = (launch(path, by="accelerate", enable=enable) for enable in (False, True))
    assert (without.status, with_us.status) == (0, 0)
    # Figures included: the job computes what it computes without us.
    assert timeless(with_us.stdout) == timeless(without.stdout)
    assert len(with_us.traces) == 1


def test_trl_sft_on_a_tiny_local_model(launch, tmp_path):
    build = SCRIPTS / "tiny_language_model.py"
    assert launch(build, tmp_path / "model", enable=False).status == 0
    data = tmp_path / "data"
    data.mkdir()
    lines = [{"text": f"the cat sat on mat {number}"} for number in range(64)]
    (data / "train.jsonl").write_text("\n".join(map(json.dumps, lines)))
    command = ["-m", "trl.scripts.sft"]
    arguments = [
        *("--model_name_or_path", tmp_path / "model"),
        *("--dataset_name", data),
        *("--output_dir", tmp_path / "out"),
        *("--max_steps", "12"),
        *("--per_device_train_batch_size", "2"),
        *("--report_to", "none"),
        *("--save_strategy", "no"),
        *("--bf16", "false"),
        "--use_cpu",
        *("--disable_tqdm", "true"),
    ]
    without, with_us = (launch(*command, *arguments, enable=enable) for enable in (False, True))
    assert without.status == 0, without.stderr
    assert with_us.status == 0, with_us.stderr
    assert comparable(with_us.stdout) == comparable(without.stdout)
    assert with_us.rank()["steps"] == 12
    assert len(with_us.traces) == 1
