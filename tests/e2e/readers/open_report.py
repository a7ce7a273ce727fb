"""Opens HTML reports in a headless browser, uses them as a person would, and prints what was seen as JSON.

open_report.py BROWSER REPORT...

One browser for all; each report gets a page of its own. axe-core looks for what keeps people out.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from open_perfetto import FLAGS
from playwright.sync_api import Browser, Page, sync_playwright

READY = "html[data-ready]"
LOOKS = [(1280, "light"), (390, "dark")]


def copied(page: Page, table: str) -> list[list[str]]:
    """Press a table's button and read what is on the clipboard then."""
    page.click(f"[data-copy='{table}']")
    page.locator(f"[data-copy='{table}'] ~ .said", has_text="Copied").wait_for()
    return list(csv.reader(io.StringIO(page.evaluate("navigator.clipboard.readText()"), newline="")))


def column(page: Page, table: str, number: int) -> list[str]:
    return page.locator(f"#{table} tbody tr:not([hidden]) > :nth-child({number})").all_inner_texts()


def use(page: Page) -> dict[str, Any]:
    """Click, type and press keys, and say what followed."""
    seen: dict[str, Any] = {}
    # A cell of the heat strip.
    page.locator("[data-chart='heat'] .mark-rect path").first.click()
    page.wait_for_function("document.getElementById('pick-step').value !== ''")
    seen["picked_by_cell"] = page.inner_text("#picked")
    seen["chosen_rows"] = page.locator("#table-ranks tr.chosen .pick").all_inner_texts()
    seen["command"] = page.inner_text("#open-command")
    # The same by keys alone.
    last = page.locator("#pick-trace option").count() - 1
    page.focus("#pick-trace")
    page.keyboard.press("End")
    page.wait_for_function(f"document.getElementById('pick-trace').value === '{last}'")
    seen["picked_by_keys"] = page.inner_text("#picked")
    seen["steps_of_picked"] = copied(page, "table-steps")
    seen["operators_of_picked"] = copied(page, "table-rank-operators")
    # Another figure in the strip.
    metrics = page.locator("#metric option").all_inner_texts()
    page.select_option("#metric", label="forward")
    page.wait_for_selector("[data-chart='heat'][aria-label^='forward']")
    seen["metrics"] = metrics
    # A bar of a rank.
    page.locator("[data-chart='ranks-phases'] .mark-rect path").first.click()
    page.wait_for_function("document.getElementById('pick-trace').value === '0'")
    # Tables.
    seen["by_self"] = column(page, "table-operators", 1)
    calls = page.locator("#table-operators thead button", has_text="calls")
    calls.focus()
    page.keyboard.press("Enter")
    seen["calls_down"] = column(page, "table-operators", 2)
    page.keyboard.press("Space")
    seen["calls_up"] = column(page, "table-operators", 2)
    seen["sorted"] = page.locator("#table-operators thead [aria-sort='ascending']").all_inner_texts()
    page.fill("[data-search='table-operators']", "ATEN::")
    seen["found"] = column(page, "table-operators", 1)
    seen["copied_of_found"] = copied(page, "table-operators")
    page.fill("[data-search='table-operators']", "")
    # Colours of the person's own.
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    page.select_option("#theme", "dark")
    seen["themed"] = page.evaluate(ground) != before
    page.select_option("#theme", "")
    # Paper.
    page.emulate_media(media="print")
    seen["printed"] = [page.is_visible(one) for one in ("nav", ".tools", "h1", "#table-ranks", ".chart svg")]
    page.emulate_media(media="screen")
    return seen


def look(browser: Browser, report: Path) -> dict[str, Any]:
    context = browser.new_context(color_scheme="light", viewport={"width": 1280, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.set_default_timeout(20_000)
    page = context.new_page()
    said: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report.as_uri())
    page.wait_for_selector(READY)
    seen: dict[str, Any] = {
        "subtitle": page.inner_text(".subtitle"),
        "sections": page.locator("main > section > h2").all_inner_texts(),
        "charts": {
            chart.get_attribute("data-chart"): chart.locator("svg path").count()
            for chart in page.locator(".chart").all()
        },
        "cards": dict(card.inner_text().split("\n", 1) for card in page.locator(".cards div").all()),
        "looks_for": page.locator("figure:has(.chart) figcaption").all_inner_texts(),
        "tables": {
            table.get_attribute("id"): copied(page, table.get_attribute("id") or "")
            for table in page.locator("section:not(#rank) table").all()
        },
        "notes": page.locator("#notes li").all_inner_texts(),
        "about": page.locator("#about").all_inner_texts(),
        "findings": page.locator("#findings").all_inner_texts(),
    }
    seen["used"] = use(page)
    seen["elements"] = page.evaluate(
        "[...new Set([...document.querySelectorAll('body *')].map((one) => one.localName))].sort()"
    )
    seen["handlers"] = page.evaluate(
        "[...document.querySelectorAll('*')].flatMap((one) => one.getAttributeNames())"
        ".filter((name) => name.startsWith('on') || name === 'src')"
    )
    seen["pwned"] = page.evaluate("window.pwned ?? null")
    barriers, widths = {}, {}
    for width, scheme in LOOKS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(f"document.querySelector('.chart svg').clientWidth < {width}")
        widths[f"{width} {scheme}"] = page.evaluate("document.documentElement.scrollWidth")
        barriers[f"{width} {scheme}"] = [
            f"{one['id']}: {node['html'][:200]}"
            for one in Axe().run(page).response["violations"]
            for node in one["nodes"]
        ]
    seen |= {"barriers": barriers, "widths": widths, "said": said, "requests": requests}
    context.close()
    return seen


def main() -> None:
    browser_path, *reports = sys.argv[1:]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        found = {Path(report).stem: look(browser, Path(report)) for report in reports}
        browser.close()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
