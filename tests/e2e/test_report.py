"""The HTML report in a browser: its parts, its figures, its use by mouse and keys, and who it keeps out."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from hostile import FORMULAS, NAMES, write_run
from traces import SHARED

from autoprof.cli import main
from autoprof.report.words import clean

pytestmark = pytest.mark.readers

REAL = SHARED / "traces/a100_two_ranks"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What is reported on: a run with hostile names and, where it is there, a real one."""
    found = {"hostile": write_run(tmp_path_factory.mktemp("hostile"))}
    return found | ({"real": REAL} if REAL.exists() else {})


@pytest.fixture(scope="module")
def shown(
    places: dict[str, Path], open_with: Any, browser: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What a browser shows of each report."""
    folder = tmp_path_factory.mktemp("reports")
    for name, place in places.items():
        assert main(["report", str(place), "-o", str(folder / f"{name}.html")]) == 0
    assert (
        main(
            [
                "report",
                str(places["hostile"]),
                "--against",
                str(places["hostile"]),
                "-o",
                str(folder / "against.html"),
            ]
        )
        == 0
    )
    return open_with("open_report.py", browser, *sorted(folder.glob("*.html")))


@pytest.fixture
def document(places: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> Any:
    """The same data as the command for machines prints it."""

    def document_(name: str) -> dict[str, Any]:
        assert main(["summary", str(places[name]), "--json", "--top", "500"]) == 0
        return json.loads(capsys.readouterr().out)

    return document_


@pytest.fixture(params=["hostile", "real"])
def name(request: pytest.FixtureRequest, places: dict[str, Path]) -> str:
    if request.param not in places:
        pytest.skip(f"no {REAL}")
    return request.param


def test_every_part_is_there(shown: dict[str, Any], name: str) -> None:
    seen = shown[name]
    parts = ["Overview", "Ranks", "One rank", "Operators", "Kernels"]
    assert [one for one in seen["sections"] if one in parts] == parts
    kinds = ("phases", "device")
    charts = {"heat", *(f"{where}-{kind}" for where in ("overview", "ranks", "steps") for kind in kinds)}
    assert set(seen["charts"]) == charts
    assert all(marks > 0 for marks in seen["charts"].values())
    assert len(seen["looks_for"]) == len(charts)
    assert all("." in sentence for sentence in seen["looks_for"])


def test_the_page_says_nothing_on_the_console_and_asks_for_nothing(shown: dict[str, Any]) -> None:
    for seen in shown.values():
        assert seen["said"] == []
        assert len(seen["requests"]) == 1
        assert seen["requests"][0].startswith("file://")


def test_no_barrier_is_found_and_nothing_sticks_out(shown: dict[str, Any]) -> None:
    for seen in shown.values():
        assert len(seen["barriers"]) == 2
        assert [barrier for found in seen["barriers"].values() for barrier in found] == []
        assert all(width <= int(look.split()[0]) for look, width in seen["widths"].items())


def by_title(rows: list[list[str]]) -> list[dict[str, str]]:
    titles, *body = rows
    return [dict(zip([one.strip('"') for one in titles], row, strict=True)) for row in body]


def number(text: str) -> float:
    return float(text.replace(",", ""))


def test_the_figures_of_the_ranks_are_those_of_the_summary(
    shown: dict[str, Any], document: Any, name: str
) -> None:
    rows = by_title(shown[name]["tables"]["table-ranks"])
    traces = document(name)["traces"]
    assert [int(row["rank"]) for row in rows] == [trace["rank"] for trace in traces]
    for row, trace in zip(rows, traces, strict=True):
        assert int(row["steps"]) == trace["step_time"]["count"]
        for title, key in (("step", "median_us"), ("min", "min_us"), ("max", "max_us")):
            assert number(row[title]) == trace["step_time"][key]
        for title in ("data", "forward", "backward", "optimizer", "other"):
            known = trace["phases_median"][f"{title}_us"]
            assert row.get(title, "") == "" if known is None else number(row[title]) == known
        device = trace["device_per_step_median"]
        for title, key in (
            ("computation", "computation_us"),
            ("communication alone", "exposed_us"),
            ("idle", "idle_us"),
        ):
            assert number(row[title]) == device[key]


@pytest.mark.parametrize("kind", ["operators", "kernels"])
def test_operators_and_kernels_are_those_of_the_summary(
    shown: dict[str, Any], document: Any, name: str, kind: str
) -> None:
    rows = by_title(shown[name]["tables"][f"table-{kind}"])
    wanted = document(name)[kind]
    assert [number(row["calls"]) for row in rows] == [one["calls"] for one in wanted]
    assert [number(row["self, ms"]) for row in rows] == [one["self_us"] for one in wanted]
    assert [number(row["total, ms"]) for row in rows] == [one["total_us"] for one in wanted]


def test_the_overview_is_the_median_over_all_steps(shown: dict[str, Any], document: Any, name: str) -> None:
    steps = [step for trace in document(name)["traces"] for step in trace["steps"]]
    median_ms = statistics.median(step["duration_us"] for step in steps) / 1000
    value, unit = shown[name]["cards"]["Step"].split()
    assert unit == "ms"
    assert number(value) == pytest.approx(median_ms, rel=0.001)
    assert f"{len(steps)} recorded steps" in shown[name]["subtitle"]


def test_a_rank_and_a_step_are_chosen_by_mouse_and_by_keys(
    shown: dict[str, Any], document: Any, name: str
) -> None:
    used, (first, *_, last) = shown[name]["used"], document(name)["traces"]
    step = first["steps"][0]
    wanted = f"Rank {first['rank']}, step {step['number']}: {step['duration_us'] / 1000:,.3f} ms"
    assert used["picked_by_cell"].startswith(wanted)
    assert used["chosen_rows"] == [str(first["rank"])]
    assert f"--rank {first['rank']}" in used["command"]
    assert f"--step {step['number']}" in used["command"]
    assert used["picked_by_keys"].startswith(f"Rank {last['rank']}: {len(last['steps'])} recorded steps")
    rows = by_title(used["steps_of_picked"])
    assert [number(row["whole step"]) for row in rows] == [step["duration_us"] for step in last["steps"]]
    rows = by_title(used["operators_of_picked"])
    assert [number(row["self, ms"]) for row in rows] == [one["self_us"] for one in last["operators"][:100]]


def test_tables_sort_and_search(shown: dict[str, Any], name: str) -> None:
    used = shown[name]["used"]
    down, up = ([number(text) for text in used[key]] for key in ("calls_down", "calls_up"))
    assert down == sorted(down, reverse=True)
    assert up == sorted(up)
    assert down[0] > down[-1]
    assert used["sorted"] == ["calls"]
    assert used["found"] == sorted(used["found"], key=used["found"].index)
    assert 0 < len(used["found"]) < len(used["by_self"])
    assert all("aten::" in one for one in used["found"])
    assert len(used["copied_of_found"]) == len(used["found"]) + 1
    assert used["themed"]
    assert used["printed"] == [False, False, True, True, True]


def test_hostile_names_stay_text(shown: dict[str, Any], document: Any) -> None:
    for report in ("hostile", "against"):
        seen = shown[report]
        assert seen["pwned"] is None
        assert seen["handlers"] == []
        assert not {"img", "iframe", "object", "b"} & set(seen["elements"])
    seen = shown["hostile"]
    listed = {row["name"].removeprefix("'") for row in by_title(seen["tables"]["table-operators"])}
    wanted = {clean(one["name"]) for one in document("hostile")["operators"]}
    assert {name.removeprefix("'") for name in wanted} == listed
    assert len(wanted) == len(NAMES) + 2
    notes = [note.partition(": ")[2] for note in seen["notes"]]
    assert [re.sub(r"\s+", " ", clean(name)) for name in NAMES] == notes[: len(NAMES)]
    assert re.sub(r"\s+", " ", NAMES[0]) in seen["about"][0]


def test_no_copied_field_is_a_formula(shown: dict[str, Any]) -> None:
    tables = [*shown["hostile"]["tables"].values(), *shown["against"]["tables"].values()]
    tables.append(shown["hostile"]["used"]["operators_of_picked"])
    fields = [field for rows in tables for row in rows for field in row]
    risky = [field for field in fields if field.lstrip()[:1] in tuple(FORMULAS)]
    assert all(re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", field) for field in risky), risky
    assert any(field.startswith("'=HYPERLINK") for field in fields)


def test_two_runs_stand_side_by_side(shown: dict[str, Any]) -> None:
    (first, *rest) = shown["against"]["tables"]["table-against"][1:]
    assert first[0] == "step"
    assert first[1] == first[2]
    assert all(row[1] == row[2] for row in rest)
    assert shown["against"]["charts"]["against-phases"] > 0
    assert shown["against"]["charts"]["against-device"] > 0
