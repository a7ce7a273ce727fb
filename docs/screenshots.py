"""Makes the pictures of the report that the documentation shows.

    make screenshots        # or: .venv-readers/bin/python docs/screenshots.py --bin .venv/bin

Runs examples/train.py on two CPU ranks, writes its report and those of the sample traces under
../shared/traces (left out where that folder is missing), and photographs them in a headless browser, in
light and dark, 1280 and 390 pixels wide. Needs playwright, Pillow and a Chromium.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

REPOSITORY = Path(__file__).resolve().parents[1]
TRACES = Path(os.environ.get("AUTOPROF_SHARED", REPOSITORY / "../shared")).resolve() / "traces"
FLAGS = ["--no-sandbox", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
COLOURS = 256


def record(bin_dir: Path, folder: Path) -> Path:
    """Train on two CPU ranks with the agent on and return the run's directory."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ACCELPROF_")}
    environment |= {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "ACCELPROF_ENABLE": "1"}
    environment |= {"ACCELPROF_OUTPUT_DIR": str(folder), "ACCELPROF_RUN_ID": "two-ranks"}
    command = [bin_dir / "accelerate", "launch", "--multi_gpu", "--num_processes", "2"]
    train = ["--main_process_port", "0", REPOSITORY / "examples/train.py"]
    subprocess.run([*command, *train], env=environment, check=True)
    return folder / "two-ranks"


def photograph(
    browser: Browser, report: Path, picture: Path, *, width: int, height: int, scheme: str, part: str
) -> None:
    """Save a picture of the report from one of its parts on, with as few colours as it bears."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready]")
    if part:
        page.locator(f"#{part}").evaluate("part => part.scrollIntoView({behavior: 'instant'})")
    image = Image.open(io.BytesIO(page.screenshot()))
    image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(picture, optimize=True)
    print(f"{picture}: {picture.stat().st_size / 1000:,.0f} kB")
    context.close()


def main() -> None:
    """Record, report, photograph."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bin", type=Path, default=REPOSITORY / ".venv/bin", help="where autoprof is")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "docs/img", help="where pictures go")
    args = parser.parse_args()
    browser_path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    args.output.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        reports = {"cpu": ["two-ranks"]}
        record(args.bin.absolute(), folder)
        if TRACES.exists():
            for sample in ("a100_two_ranks", "v100_vs_a100"):
                (folder / sample).symlink_to(TRACES / sample)
            reports["a100"] = ["a100_two_ranks"]
            reports["against"] = ["v100_vs_a100/test", "--against", "v100_vs_a100/control"]
        for report, arguments in reports.items():
            command = [args.bin.absolute() / "autoprof", "report", *arguments, "-o", f"{report}.html"]
            subprocess.run(command, cwd=folder, check=True)
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        for report, picture, width, height, scheme, part in (
            ("cpu", "report.png", 1280, 1360, "light", ""),
            ("a100", "report-device-dark.png", 1280, 1500, "dark", "overview"),
            ("a100", "report-tables.png", 1280, 900, "light", "kernels"),
            ("cpu", "report-phone.png", 390, 1500, "light", ""),
            ("against", "report-against.png", 1280, 1300, "light", "against"),
            ("against", "report-against-phone-dark.png", 390, 1300, "dark", "against"),
        ):
            if report in reports:
                place = args.output / picture
                page = folder / f"{report}.html"
                photograph(browser, page, place, width=width, height=height, scheme=scheme, part=part)
        browser.close()


if __name__ == "__main__":
    main()
