"""From torch's raw JSON to the file people open: strict, complete, named, and nothing left behind."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoprof.agent import strict_json
from autoprof.agent.artifacts import chrome_trace


@pytest.fixture(autouse=True, params=["with SQLite", "without SQLite"])
def _checked(request, monkeypatch):
    strict_json._quick_check.cache_clear()
    if request.param == "without SQLite":
        monkeypatch.setitem(sys.modules, "sqlite3", None)
    yield
    strict_json._quick_check.cache_clear()


def event(name: str, number: int = 0) -> str:
    """One event as torch 2.13 writes it."""
    return (
        '  {\n    "ph": "X",\n    "cat": "cpu_op",\n    "name": "' + name + '",\n'
        f'    "pid": 1,\n    "tid": 1,\n    "ts": {number}.250,\n    "dur": 1.000\n    ,\n'
        '    "args": {\n      "External id": 1,"Ev Idx": 0\n    }\n  }'
    )


def raw_trace(folder: Path, names: list[str]) -> Path:
    path = folder / "autoprof-1-2.json"
    events = ",\n".join(event(name, number) for number, name in enumerate(names))
    path.write_text(
        ' {\n    "schemaVersion": 1,\n    "distributedInfo": {"rank": 0, "world_size": 2},\n'
        '    "traceEvents": [\n'
        f'    \n{events}\n  ],"traceName": "{path}" }}'
    )
    return path


def finish(raw: Path, folder: Path, *, gzipped: bool = True, labels=()):
    final = folder / "run" / "step_00000007" / ("rank00000.json" + (".gz" if gzipped else ""))
    written = chrome_trace.write(raw, final, gzip=gzipped, labels=dict(labels))
    content = final.read_bytes()
    return written, gzip.decompress(content) if gzipped else content


@pytest.mark.parametrize("gzipped", [True, False])
def test_what_torch_wrote_well_passes_byte_for_byte(tmp_path, gzipped):
    raw = raw_trace(tmp_path, [f"aten::op{number}" for number in range(5000)])
    before = raw.read_bytes()
    written, content = finish(raw, tmp_path, gzipped=gzipped)
    assert content == before.replace(str(raw).encode(), written.path.name.encode())
    assert len(json.loads(content)["traceEvents"]) == 5000
    assert not raw.exists()
    assert [path.name for path in written.path.parent.iterdir()] == [written.path.name]


@pytest.mark.parametrize("position", [0, 1, 2500, 4999])
@pytest.mark.parametrize("name", ['a"b', 'x",', '"', "C:\\u", "tab\there", "\x01"])
def test_a_name_that_breaks_the_json_is_repaired_and_counted(tmp_path, name, position):
    names = [f"op{number}" for number in range(5000)]
    names[position] = name
    written, content = finish(raw_trace(tmp_path, names), tmp_path)
    events = json.loads(content)["traceEvents"]
    assert [e["name"] for e in events] == names
    assert written.damage.repaired_events == 1


def test_bytes_that_are_no_text_are_replaced(tmp_path):
    raw = raw_trace(tmp_path, ["first", "second"])
    raw.write_bytes(raw.read_bytes().replace(b"second", b"sec\xffond"))
    _, content = finish(raw, tmp_path)
    assert [e["name"] for e in json.loads(content)["traceEvents"]] == ["first", "sec\ufffdond"]


def test_an_event_beyond_repair_is_dropped_and_counted(tmp_path):
    raw = raw_trace(tmp_path, ["first", "second", "third"])
    raw.write_text(raw.read_text().replace("0.250", "NaN"))
    written, content = finish(raw, tmp_path)
    assert [e["name"] for e in json.loads(content)["traceEvents"]] == ["second", "third"]
    assert written.damage.dropped_events == 1


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.999])
def test_half_a_file_keeps_its_whole_events(tmp_path, kept):
    raw = raw_trace(tmp_path, [f"op{number}" for number in range(1000)])
    content = raw.read_bytes()
    raw.write_bytes(content[: int(len(content) * kept)])
    written, content = finish(raw, tmp_path)
    names = [e["name"] for e in json.loads(content)["traceEvents"]]
    assert names == [f"op{number}" for number in range(len(names))]
    assert len(names) > 1000 * kept - 10
    assert written.damage.truncated


def test_a_step_that_was_cut_short_is_no_step(tmp_path):
    raw = raw_trace(tmp_path, ["ProfilerStep#8", "ProfilerStep#9"])
    _, content = finish(raw, tmp_path, labels={9: "step 9 (cut short)"})
    assert [e["name"] for e in json.loads(content)["traceEvents"]] == ["ProfilerStep#8", "step 9 (cut short)"]


@pytest.mark.parametrize("content", [b"", b"not a trace", b'{"traceEvents": nothing}'])
def test_what_is_no_trace_stays_where_it_is(tmp_path, content):
    raw = tmp_path / "raw.json"
    raw.write_bytes(content)
    with pytest.raises(ValueError, match=r"holds no list|not JSON"):
        finish(raw, tmp_path)
    assert raw.read_bytes() == content
    assert list((tmp_path / "run/step_00000007").iterdir()) == []


def test_a_folder_that_cannot_be_made_keeps_the_raw_file(tmp_path):
    raw = raw_trace(tmp_path, ["op"])
    (tmp_path / "run").write_text("in the way")
    with pytest.raises(OSError, match="run"):
        finish(raw, tmp_path)
    assert raw.exists()


JSON_LIKE = st.text(
    st.sampled_from('[]{}",:0123456789.eE+-\\ \t\n\x00\x01\x7fNaInfityrulsd/é\ud800'), max_size=24
)


@given(JSON_LIKE | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_what_sqlite_accepts_is_strict_json(text):
    if "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text):
        accepted = strict_json._quick_check()(text)
        if accepted:
            strict_json._DECODER.decode(text)
