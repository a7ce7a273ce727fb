"""The ``autoprof`` command: one module per command, each with ``HELP``, ``configure`` and ``run``."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Protocol, cast

COMMANDS = (
    "run",
    "check",
    "settings",
    "traces",
    "steps",
    "summary",
    "operators",
    "device",
    "compare",
    "merge",
    "export",
    "report",
    "view",
)


class CommandError(Exception):
    """A mistake that a person can make; the message is the one line they see."""


@contextlib.contextmanager
def analysis_room() -> Iterator[None]:
    """Turn a missing package of the ``analysis`` extra into one line; the late imports stand inside."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("msgspec", "numpy", "rich"):
            raise
        install = "pip install 'accelerate-autoprof[analysis]'"
        raise CommandError(f"reading traces needs {error.name}, which is not installed; {install}") from None


@contextlib.contextmanager
def report_room() -> Iterator[None]:
    """Turn a missing package of the ``report`` or ``analysis`` extra into one line."""
    try:
        with analysis_room():
            yield
    except ModuleNotFoundError as error:
        if error.name not in ("jinja2", "vl_convert"):
            raise
        install = "pip install 'accelerate-autoprof[report]'"
        raise CommandError(f"a report needs {error.name}, which is not installed; {install}") from None


class Command(Protocol):
    """What a command module provides."""

    HELP: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do the work and return the exit status; raises :class:`CommandError`."""


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    from autoprof import __version__

    parser = argparse.ArgumentParser(
        prog="autoprof",
        description="Profile an unmodified Accelerate job: ACCELPROF_ENABLE=1 accelerate launch train.py",
    )
    parser.add_argument("--version", action="version", version=f"accelerate-autoprof {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    modules = {}
    for name in COMMANDS:
        module = modules[name] = cast(Command, importlib.import_module(f"autoprof.cli.{name}"))
        module.configure(subparsers.add_parser(name, help=module.HELP, description=module.HELP))
    args = parser.parse_args(argv)
    try:
        status = modules[args.command].run(args)
        sys.stdout.flush()  # here, where a reader that has gone is dealt with
        return status
    except CommandError as error:
        print(f"autoprof {args.command}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # What is still buffered goes nowhere, or the interpreter complains about the pipe as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        print(f"autoprof {args.command}: {error}", file=sys.stderr)
        return 1
