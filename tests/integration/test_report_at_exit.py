"""``ACCELPROF_REPORT=1``: a report is there after the job, and the job knows nothing of it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

from jobs import REPOSITORY, Outcome

TRAIN = REPOSITORY / "examples/train.py"
_PATIENCE_S = 90


def wait_for(path: Path, log: Path) -> str:
    """Return the text of a file that another process is about to write."""
    deadline = time.monotonic() + _PATIENCE_S
    while not path.exists():
        said = log.read_text() if log.exists() else "no log"
        assert time.monotonic() < deadline, said
        assert "Traceback" not in said, said
        time.sleep(0.1)
    return path.read_text()


def test_a_report_of_all_ranks_is_written_once_the_job_has_ended(launch: Callable[..., Outcome]) -> None:
    usual = launch(TRAIN, ranks=2)
    outcome = launch(TRAIN, ranks=2, env={"ACCELPROF_REPORT": "1"})
    assert outcome.status == 0
    assert outcome.stdout == usual.stdout
    assert len(outcome.said) == len(usual.said) + 1
    assert outcome.said[-1].startswith(f"autoprof: {outcome.run / 'report.html'} is being written")
    text = wait_for(outcome.run / "report.html", outcome.run / "report.log")
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data
    found = json.loads(data[1])
    assert [trace["label"] for trace in found["traces"]] == ["0", "1"]
    assert found["cells"]["step"] == [7, 8, 9] * 2
    assert "report.html" not in outcome.stderr.replace(outcome.said[-1], "")


def test_a_report_that_cannot_be_written_costs_one_line(launch: Callable[..., Outcome]) -> None:
    run_train = f"import runpy; runpy.run_path({str(TRAIN)!r}, run_name='__main__')"
    outcome = launch(
        "-c", f"import sys; sys.modules['jinja2'] = None; {run_train}", env={"ACCELPROF_REPORT": "1"}
    )
    assert outcome.status == 0
    assert "jinja2 cannot be imported here; pip install 'accelerate-autoprof[report]'" in outcome.said[-1]
    assert not (outcome.run / "report.log").exists()


def test_no_report_is_begun_where_nothing_was_recorded(launch: Callable[..., Outcome]) -> None:
    outcome = launch(TRAIN, "--steps", "3", env={"ACCELPROF_REPORT": "1"})
    assert "nothing recorded" in outcome.said[-1]
    assert not list(outcome.output_dir.rglob("report.*"))
