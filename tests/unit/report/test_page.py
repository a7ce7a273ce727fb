"""``autoprof report`` without a browser: what is in the file, and what cannot get into it."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import sys

import pytest
from hostile import NAMES, write_run
from traces import document, kernel, slice_, step

from autoprof.cli import main
from autoprof.report import charts, words
from autoprof.report.page import embedded


class Page(html.parser.HTMLParser):
    """Elements with their attributes, texts of the page, and the scripts and styles as they are."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self.raw, self._inside = [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside in ("script", "style"):
            self.raw.append((self._inside, data))
        else:
            self.texts.append(data.strip())

    @property
    def data(self):
        return json.loads(next(text for tag, text in self.raw if tag == "script" and text.startswith("{")))

    def ids(self):
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]


@pytest.fixture
def report(tmp_path, capsys):
    """Write the report of a place and return its page."""

    def report_(place, *options, status=0):
        output = tmp_path / "out.html"
        assert main(["report", str(place), "-o", str(output), *options]) == status
        return Page(output.read_text(encoding="utf-8"))

    return report_


def small(rank=0, steps=(7, 8), **fields):
    events = [
        event for n in steps for event in (step(n, 1000 * n, 900), slice_("aten::mm", 1000 * n + 1, 50))
    ]
    return document(events, rank, **fields)


def test_the_policy_names_every_script_and_style_and_lets_nothing_else_run(report, write):
    page = report(write(small()))
    policy = next(one["content"] for _, one in page.elements if one.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    code = [(tag, text) for tag, text in page.raw if not text.startswith("{")]
    assert len(code) == 3
    for tag, text in code:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy, tag
    assert not [tag for tag, one in page.elements if "src" in one or one.get("href", "#")[0] != "#"]


def test_hostile_names_make_no_element_and_no_attribute(report, tmp_path):
    run = write_run(tmp_path)
    page = report(run)
    kinds = {tag for tag, _ in page.elements}
    assert not {"img", "iframe", "object", "b", "form"} & kinds
    assert [tag for tag, _ in page.elements if tag == "script"] == ["script"] * 3
    assert not [name for _, one in page.elements for name in one if name.startswith("on")]
    texts = set(page.texts)
    assert {words.clean(name).strip() for name in NAMES if len(name) <= 110 and "\ud800" not in name} <= texts


@pytest.mark.parametrize("name", NAMES)
def test_embedded_json_cannot_end_its_element(name):
    text = embedded({name: [name]})
    assert not set("<>&") & set(text)
    assert json.loads(text) == {name: [name]}


def test_the_data_for_charts_is_that_of_the_summary(report, write, capsys):
    for rank in (0, 1):
        path = write(small(rank), f"job/rank{rank}.json")
    page = report(path.parent)
    capsys.readouterr()
    main(["summary", str(path.parent), "--json"])
    traces = json.loads(capsys.readouterr().out)["traces"]
    cells = page.data["cells"]
    assert cells["step"] == [one["number"] for trace in traces for one in trace["steps"]]
    assert cells["step_us"] == [one["duration_us"] for trace in traces for one in trace["steps"]]
    assert cells["trace"] == [0, 0, 1, 1]
    assert "data_us" not in cells  # no trace holds it
    assert page.data["metrics"].keys() == {"step_us", "other_us"}


def test_the_parts_of_the_device_add_up_to_the_step(report, write):
    events = [
        step(0, 0, 100),
        step(1, 100, 100),
        kernel("gemm", 10, 40),
        kernel("ncclDevKernel_AllReduce_Sum_f32", 30, 30, stream=20),
        kernel("Memcpy HtoD", 55, 15, cat="gpu_memcpy"),
    ]
    cells = report(write(document(events))).data["cells"]
    parts = [cells[name][0] for name in ("computation_us", "exposed_us", "copies_us", "idle_us")]
    assert parts == [40, 10, 10, 40]


def test_a_trace_without_steps_rank_or_operators_has_a_report(report, write):
    page = report(write(document([slice_("aten::mm", 1, 2)], None)))
    assert any("No whole step is marked" in text for text in page.texts)
    assert "heat" not in [one.get("data-chart") for _, one in page.elements]
    assert "operators" in page.ids()
    assert report(write(document([], None))).data["cells"] == {"trace": [], "step": []}


@pytest.mark.parametrize("findings", [[], "found"])
def test_findings_are_shown_where_the_document_has_them(write, findings):
    from autoprof.analysis.inputs import find_inputs
    from autoprof.analysis.summary import summarize_all
    from autoprof.report.facts import RunFacts
    from autoprof.report.page import answers, render

    run = answers("job", summarize_all(find_inputs(write(small()))), RunFacts())
    assert run.document["findings"] == []
    if findings:
        run.document["findings"] = [
            {
                "slug": "data-starved",
                "title": "The device waits for <b>data</b>",
                "severity": "high",
                "seconds_at_stake": 1.5,
                "advice": "raise num_workers",
                "evidence": "1,234.5 us idle",
                "saves_us_per_step": {"low": 1000.0, "high": 2500.0},
                "ranks": [3],
                "step_us": 5000.0,
                "capture_first_step": 7,
                "steps": [7, 8],
            }
        ]
    page = Page(render(run))
    assert "findings" in page.ids()
    assert ("Nothing stands out." in page.texts) is (findings == [])
    if findings:
        assert any("The device waits for <b>data</b>" in text for text in page.texts)
        assert {"1.50\u00a0s", "raise num_workers", "1,234.5 us idle"} <= set(page.texts)
        assert "1.000\u00a0ms to 2.500\u00a0ms" in page.texts


def test_what_was_missed_and_what_it_cost_is_told(report, tmp_path):
    page = report(write_run(tmp_path))
    text = " ".join(page.texts)
    assert "Training was held up for 1.25\u00a0s" in text
    assert "a recorded step took 1.5 times the usual one" in text
    assert "rank 1: the capture is partial" in text
    assert "take 247\u00a0kB" in text


@pytest.mark.parametrize(
    "content", ["[]", "{", '{"settings": 3, "command": {}, "cost": []}', '{"rank": "0"}', "\x00"]
)
def test_damaged_facts_cost_only_themselves(report, tmp_path, content):
    run = write_run(tmp_path)
    (run / "run.json").write_text(content)
    (run / "ranks/rank00001.json").write_text(content)
    assert [trace["label"] for trace in report(run).data["traces"]] == ["0", "1"]


def test_two_runs_are_set_side_by_side(report, write):
    write(small(), "one/rank0.json")
    longer = document([step(7, 0, 1800), slice_("aten::mm", 1, 100), slice_("aten::gelu", 200, 30)])
    page = report(
        write(small(), "one/rank0.json").parent, "--against", str(write(longer, "two/rank0.json").parent)
    )
    texts = page.texts
    at = texts.index("step", texts.index("Per step, ms"))
    assert [one for one in texts[at:] if one][1:4] == ["1.800", "0.900", "-50.0\u00a0%"]
    assert "aten::gelu" in texts


def test_a_damaged_rank_is_left_out_and_said(report, write, capsys):
    write(small(), "job/rank0.json")
    bad = write(b"garbage", "job/rank1.json")
    page = report(bad.parent, status=1)
    assert [trace["label"] for trace in page.data["traces"]] == ["0"]
    assert any(str(bad) in text for text in page.texts)
    assert capsys.readouterr().err.startswith(f"autoprof report: left out: {bad}")


@pytest.mark.parametrize(
    ("output", "why"),
    [("report.txt", "its name must end in .html"), ("no/report.html", "there is no folder")],
)
def test_an_output_that_cannot_be_is_one_line(write, tmp_path, capsys, output, why):
    assert main(["report", str(write(small())), "-o", str(tmp_path / output)]) == 1
    assert why in capsys.readouterr().err


def test_a_package_that_is_missing_is_one_line(write, tmp_path, capsys, monkeypatch):
    charts.javascript.cache_clear()
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert main(["report", str(write(small())), "-o", str(tmp_path / "out.html")]) == 1
    said = capsys.readouterr().err
    assert "needs vl_convert" in said
    assert "pip install 'accelerate-autoprof[report]'" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out.html").exists()


def test_numbers_carry_separators_and_units():
    assert words.ms(1_234_567.8) == "1,234.568"
    assert words.time(12_345_678) == "12.35\u00a0s"
    assert words.time(102_300) == "102.3\u00a0ms"
    assert words.time(1_234) == "1.234\u00a0ms"
    assert words.size(1_234_567) == "1.2\u00a0MB"
    assert words.change(0.5) == "+50.0\u00a0%"
    assert {words.ms(None), words.time(None), words.percent(1, 0), words.change(None)} == {words.ABSENT}
