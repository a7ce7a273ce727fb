"""How soon pages are shown: runs with playwright's interpreter and prints milliseconds as JSON.

_paint.py BROWSER ROUNDS PAGE...

Of each page and round the time to the first contentful paint and the time until ``html[data-ready]``, both
since navigation began. Pages take turns; each load has a fresh context.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FLAGS = ["--no-sandbox", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
PAINTED = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
READY = "() => document.documentElement.hasAttribute('data-ready') && performance.now()"


def main() -> None:
    """Load every page so many times."""
    browser_path, rounds, *pages = sys.argv[1:]
    found: dict[str, list[list[float]]] = {Path(page).name: [] for page in pages}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        for _ in range(int(rounds)):
            for path in map(Path, pages):
                context = browser.new_context(viewport={"width": 1280, "height": 900})
                page = context.new_page()
                page.goto(path.as_uri(), wait_until="commit")
                ready = page.wait_for_function(READY).json_value()
                found[path.name].append([page.wait_for_function(PAINTED).json_value(), ready])
                context.close()
        browser.close()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
