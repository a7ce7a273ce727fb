"""What a run leaves is JSON to the letter: any parser of any language reads it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest


def refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def assert_strict(path: Path) -> None:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    assert isinstance(json.loads(text, parse_constant=refuse), dict)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_trace_is_strict_json(traces: dict[int, Path], rank: int) -> None:
    assert_strict(traces[rank])


@pytest.mark.parametrize("name", ["run.json", "ranks/rank00000.json", "ranks/rank00001.json"])
def test_a_record_of_the_run_is_strict_json(two_rank_run: Path, name: str) -> None:
    assert_strict(two_rank_run / name)
