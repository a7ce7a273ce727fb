"""``autoprof settings``: the table of settings."""

from __future__ import annotations

import argparse
import shutil

from autoprof import settings

HELP = "print every ACCELPROF_* setting: meaning, accepted values, default, example"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as a JSON array, for machines")
    form.add_argument("--markdown", action="store_true", help="as the Markdown table of the docs")


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    if args.json:
        print(settings.to_json())
    elif args.markdown:
        print(settings.to_markdown())
    else:
        print(settings.to_text(min(shutil.get_terminal_size().columns, 110)))
    return 0
