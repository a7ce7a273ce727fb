"""Which ranks a report waits for."""

from __future__ import annotations

import json

import pytest

from autoprof.report.facts import _have_landed
from autoprof.run import layout


def write(run, ranks, settings=None):
    (run / layout.RANKS).mkdir(parents=True)
    (run / layout.MANIFEST).write_text(json.dumps({"settings": settings or {}}))
    for rank, steps in enumerate(ranks):
        captures = [{"first_step": step} for step in steps]
        layout.rank_file(run, rank).write_text(
            json.dumps({"rank": rank, "local_rank": rank, "captures": captures})
        )
    return run


@pytest.mark.parametrize(
    ("ranks", "settings", "landed"),
    [
        ([[7], [7]], {}, True),
        ([[7], []], {}, False),
        ([[7, 50], [7]], {}, False),
        ([[7], []], {"ACCELPROF_RANKS": "0"}, True),
        ([[], [7]], {"ACCELPROF_RANKS": "local:1"}, True),
        ([[7], []], {"ACCELPROF_RANKS": "nonsense"}, True),
        ([], {}, True),
    ],
)
def test_ranks_that_record_have_what_the_others_have(tmp_path, ranks, settings, landed):
    assert _have_landed(write(tmp_path / "run", ranks, settings)) is landed


def test_a_folder_that_is_no_run_is_not_waited_for(tmp_path):
    assert _have_landed(tmp_path)
