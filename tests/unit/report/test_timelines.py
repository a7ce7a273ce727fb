"""``autoprof view``: what its server hands out, and mistakes that cost one line."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request

import pytest
from hostile import NAMES
from traces import document, step

from autoprof.cli import main
from autoprof.report.timelines import Timelines, Window


@pytest.fixture
def serve(tmp_path):
    """Start a server without an offline UI and return it."""
    servers = []

    def serve_(title="run", name="trace.json", window=None):
        trace = tmp_path / name
        trace.write_text('{"traceEvents": []}')
        (tmp_path / "secret.txt").write_text("secret")
        server = Timelines(trace, title, ui=None, window=window)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return server

    yield serve_
    for server in servers:
        server.shutdown()
        server.server_close()


def get(url, **headers):
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20)


def test_only_the_loopback_address_is_listened_on(serve):
    assert serve().server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("title", NAMES)
def test_a_title_stays_text(serve, title):
    page = get(serve(title).url).read().decode()
    assert page.count("<script>") == 1
    assert page.count("<h1>") == 1
    assert "<img" not in page
    assert "onmouseover='" not in page


def test_the_page_may_run_its_own_script_and_read_its_own_server(serve):
    answer = get(serve(window=Window(5, 9)).url)
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    assert (answer.headers["Cache-Control"], answer.headers["Referrer-Policy"]) == ("no-store", "no-referrer")
    assert 'data-view="visStart=5&amp;visEnd=9"' in answer.read().decode()


def test_a_trace_is_served_whatever_its_name(serve):
    server = serve(name="rank 0 #1 <b>.json")
    (path,) = [path for path, answer in server.answers.items() if answer.for_perfetto]
    assert get(f"http://127.0.0.1:{server.server_port}{path}").read() == b'{"traceEvents": []}'


@pytest.mark.parametrize(
    "path", ["", "secret.txt", "../secret.txt", "%2e%2e/secret.txt", "trace.json/", "//"]
)
def test_nothing_else_is(serve, path):
    server = serve()
    place = server.url + path if path else f"http://127.0.0.1:{server.server_port}/"
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(place)
    assert refused.value.code == 404


def test_a_request_under_another_name_is_refused(serve):
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(serve().url, Host="evil.example")
    assert refused.value.code == 403


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--rank", "5"], "no trace of rank 5 in {}; there are ranks 0, 1"),
        (["--rank", "1", "--step", "99"], "no step 99 is marked there; there are 7, 8"),
        (["--port", "70000"], "--port is 70000; it must be between 0 and 65535"),
    ],
)
def test_a_mistake_is_one_line(write, capsys, options, why):
    for rank in (0, 1):
        path = write(document([step(7, 0, 10), step(8, 10, 10)], rank), f"job/rank{rank}.json")
    assert main(["view", str(path.parent), "--no-open", *options]) == 1
    said = capsys.readouterr().err
    assert said == f"autoprof view: {why.format(path.parent)}\n"
