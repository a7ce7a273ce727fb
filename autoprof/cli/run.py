"""``autoprof run``: set the environment for one command."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from autoprof import settings
from autoprof.cli import CommandError

HELP = "run one command with profiling switched on: autoprof run --active 5 -- accelerate launch train.py"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add one option per setting, and the command."""
    for setting in settings.SETTINGS:
        if setting.field == "enable":
            continue
        is_flag: dict[str, Any] = {"nargs": "?", "const": "1"} if setting.kind is settings.FLAG else {}
        parser.add_argument(
            "--" + setting.field.replace("_", "-"),
            dest=setting.name,
            metavar="VALUE",
            help=f"{setting.help} Sets {setting.name}.".replace("%", "%%"),
            **is_flag,
        )
    parser.add_argument(
        "argv", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command and its arguments"
    )


def run(args: argparse.Namespace) -> int:
    """Replace this process by the command: its signals and its exit status are the command's own.

    Raises:
        CommandError: a value is not usable, or the command is not there.
    """
    argv = args.argv[1:] if args.argv[:1] == ["--"] else args.argv
    if not argv:
        raise CommandError("no command; write it after --, as in: autoprof run -- accelerate launch train.py")
    given = {s.name: getattr(args, s.name, None) for s in settings.SETTINGS}
    environ = dict(os.environ) | {name: value for name, value in given.items() if value is not None}
    environ["ACCELPROF_ENABLE"] = "1"
    problems = settings.resolve(environ).problems
    if problems:
        raise CommandError("; ".join(problems))
    program = shutil.which(argv[0])
    if program is None:
        raise CommandError(f"{argv[0]!r} is not a command that can be found")
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_injection()), environ.get("PYTHONPATH", "")]))
    sys.stdout.flush()
    os.execve(program, argv, environ)


def _injection() -> Path:
    """Return the folder that makes it work where the .pth file is not read."""
    return Path(__file__).resolve().parents[2] / "sitecustomize_pkg"
