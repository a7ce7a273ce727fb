"""``autoprof export`` and ``autoprof operators``: the events themselves, and what took the time."""

from __future__ import annotations

import csv
import json
import sys

import pytest
from traces import document, kernel, slice_, step

from autoprof.cli import main

EVENTS = [
    step(3, 0, 100),
    slice_('outer, "quoted"', 10, 50),
    slice_("inner", 20, 30),
    kernel("gemm", 150, 20, args={"correlation": 5, "bytes": 8}),
]


@pytest.fixture
def job(write):
    for rank in (0, 1):
        write(document(EVENTS, rank, baseTimeNanoseconds=10**18), f"job/rank{rank}.json")
    return write(b"no trace", "other/x").parents[1] / "job"


def as_numbers(row):
    return {name: int(value) if str(value).lstrip("-").isdigit() else value for name, value in row.items()}


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        return [as_numbers(row) for row in csv.DictReader(file)]


def read_parquet(path):
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = parquet.read_table(path).to_pylist()
    return [as_numbers({name: "" if value is None else value for name, value in row.items()}) for row in rows]


@pytest.mark.parametrize(("kind", "read"), [("csv", read_csv), ("parquet", read_parquet)])
def test_every_event_of_every_rank_is_one_row(job, tmp_path, kind, read):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    output = tmp_path / f"events.{kind}"
    assert main(["export", str(job), "--format", kind, "-o", str(output)]) == 0
    rows = sorted(read(output), key=lambda row: (row["rank"], row["start_unix_ns"]))
    assert [(row["rank"], row["name"]) for row in rows] == [
        (rank, event["name"]) for rank in (0, 1) for event in EVENTS
    ]
    outer, last = rows[1], rows[3]
    assert (outer["step"], outer["duration_ns"], outer["self_ns"]) == (3, 50_000, 20_000)
    assert outer["start_unix_ns"] == 10**18 + 10_000
    assert (outer["stream"], outer["correlation"]) == ("", "")
    assert (last["step"], last["stream"], last["correlation"], last["size_bytes"]) == ("", 7, 5, 8)


def test_perfetto_json_is_a_merge(job, tmp_path):
    output = tmp_path / "all.json"
    assert main(["export", str(job), "--format", "perfetto-json", "-o", str(output)]) == 0
    names = [event["name"] for event in json.loads(output.read_text())["traceEvents"]]
    assert names.count("gemm") == 2


def test_parquet_without_pyarrow_is_one_line(job, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    output = tmp_path / "events.parquet"
    assert main(["export", str(job), "--format", "parquet", "-o", str(output)]) == 1
    assert capsys.readouterr().err == "autoprof export: writing Parquet needs pyarrow: pip install pyarrow\n"
    assert not output.exists()


def test_a_trace_that_cannot_be_read_is_named_and_the_rest_is_exported(job, tmp_path, capsys):
    (job / "rank2.json").write_bytes(b"garbage")
    output = tmp_path / "events.csv"
    assert main(["export", str(job), "--format", "csv", "-o", str(output)]) == 1
    assert len(read_csv(output)) == 2 * len(EVENTS)
    assert f"left out: {job / 'rank2.json'}: " in capsys.readouterr().err


def test_nothing_is_left_behind_where_nothing_can_be_exported(tmp_path, write, capsys):
    bad = write(b"garbage", "bad/rank0.json")
    assert main(["export", str(bad.parent), "--format", "csv", "-o", str(tmp_path / "events.csv")]) == 1
    said = capsys.readouterr().err
    assert str(bad) in said
    assert said.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad"]


def operators(capsys, *options):
    assert main(["operators", *map(str, options), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_operators_are_listed_in_the_order_asked_for(job, capsys):
    by_self = operators(capsys, job)
    assert [(one["name"], one["calls"], one["self_us"]) for one in by_self] == [
        ("inner", 2, 60.0),
        ('outer, "quoted"', 2, 40.0),
    ]
    by_total = operators(capsys, job, "--by", "total", "--rank", 1)
    assert [(one["calls"], one["total_us"]) for one in by_total] == [(1, 50.0), (1, 30.0)]
    (gemm,) = operators(capsys, job, "--kernels")
    assert (gemm["name"], gemm["calls"], gemm["mean_us"]) == ("gemm", 2, 20.0)
    assert len(operators(capsys, job, "--top", 1)) == 1


def test_operators_in_a_terminal_and_of_a_rank_that_is_not_there(job, capsys):
    assert main(["operators", str(job)]) == 0
    assert "operators on the CPU, by self" in capsys.readouterr().out
    assert main(["operators", str(job), "--rank", "7"]) == 1
    assert (
        capsys.readouterr().err == f"autoprof operators: no trace of rank 7 in {job}; there are ranks 0, 1\n"
    )
