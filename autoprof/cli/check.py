"""``autoprof check``: before a job is wasted, say whether it would be profiled, and how."""

from __future__ import annotations

import argparse
import importlib.resources
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from autoprof import redact, settings
from autoprof.cli import CommandError

HELP = "say whether a command would be profiled here, with which settings, and where traces would go"

_PROBE_TIMEOUT_S = 180
_FLAGS_WITHOUT_VALUE = set("bBdEhiIOPqsSuvVx")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--json", action="store_true", help="as a JSON object, for machines")
    parser.add_argument(
        "argv",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND",
        help="the command that would be run (default: this interpreter)",
    )


def run(args: argparse.Namespace) -> int:
    """Print what was found; 0 if a job would be profiled, 1 if it would not.

    Raises:
        CommandError: the command's interpreter cannot be found or run.
    """
    argv = args.argv[1:] if args.argv[:1] == ["--"] else args.argv
    environ = dict(os.environ)
    environ.setdefault("ACCELPROF_ENABLE", "1")
    resolved = settings.resolve(environ)
    seen = _probe(_interpreter(argv), environ)
    place = resolved.settings.output_dir
    if settings.is_url(place):
        output = _elsewhere(place, seen["executable"])
    else:
        output = _output(Path(place).absolute())
    problems = [*resolved.problems, *_interpreter_problems(seen), *output["problems"]]
    if args.json:
        report = {
            "profiled": not problems,
            "problems": problems,
            "interpreter": seen,
            "settings": settings.describe(resolved.settings),
            "sources": resolved.sources,
            "output": output,
            "plan": _plan(resolved.settings),
        }
        print(json.dumps(report, indent=2))
    else:
        _print(seen, resolved, output, problems)
    return 1 if problems else 0


def _interpreter(argv: list[str]) -> list[str]:
    """Return the interpreter and its flags that ``argv`` would start."""
    if not argv:
        return [sys.executable]
    program = shutil.which(argv[0])
    if program is None:
        raise CommandError(f"{argv[0]!r} is not a command that can be found")
    if "python" in Path(program).name:
        flags = []
        for word in argv[1:]:
            if not word.startswith("-") or not set(word[1:]) <= _FLAGS_WITHOUT_VALUE:
                break
            flags.append(word)
        return [program, *flags]
    with open(program, "rb") as script:
        first_line = script.readline(4096).decode("utf-8", "replace")
    if not first_line.startswith("#!") or "python" not in first_line:
        raise CommandError(f"{program} does not name a Python interpreter in its first line")
    words = first_line[2:].split()
    return words[1:] if Path(words[0]).name == "env" else words


def _probe(interpreter: list[str], environ: dict[str, str]) -> dict[str, Any]:
    source = importlib.resources.files("autoprof.agent").joinpath("probe.py").read_text(encoding="utf-8")
    try:
        finished = subprocess.run(
            [*interpreter, "-c", source],
            env=environ,
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
        seen: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"{interpreter[0]} cannot be run: {error}") from None
    except (IndexError, ValueError):
        last_line = (finished.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise CommandError(f"{interpreter[0]} ended with status {finished.returncode}: {last_line}") from None
    return seen


def _interpreter_problems(seen: dict[str, Any]) -> list[str]:
    problems = []
    if not seen["armed"]:
        set_flags = [name for name, is_set in seen["flags"].items() if is_set]
        if set_flags:
            why = f"its flags switch start-up hooks off ({', '.join(set_flags)}: -S, -I or -E)"
        elif seen["pth"]:
            why = f"{seen['pth'][0]} is there but was not read: its folder is on the path, but no site folder"
        else:
            why = "accelerate-autoprof is not installed there; `autoprof run` works without"
        problems.append(f"{seen['executable']} would not be armed: {why}")
    if seen["problem"]:
        problems.append(f"{seen['executable']} cannot run an Accelerate job: {seen['problem']}")
    if seen["armed"]:
        problems += [f"{name} was not patched" for name, patched in seen["hooks"].items() if not patched]
    absent = seen.get("activities_absent")
    if absent:
        problems.append(f"ACCELPROF_ACTIVITIES asks for {','.join(absent)}, which this machine lacks")
    return problems


def _output(folder: Path) -> dict[str, Any]:
    """Say whether the output folder, or the nearest one above it, can be written and how much room it has."""
    existing = next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))
    problems = []
    if not existing.is_dir():
        problems.append(f"ACCELPROF_OUTPUT_DIR={str(folder)!r}: {existing} is not a folder")
    elif not os.access(existing, os.W_OK | os.X_OK):
        problems.append(f"ACCELPROF_OUTPUT_DIR={str(folder)!r}: {existing} cannot be written")
    free = shutil.disk_usage(existing).free if not problems else 0
    return {"folder": str(folder), "exists": folder.is_dir(), "free_bytes": free, "problems": problems}


def _elsewhere(url: str, python: str) -> dict[str, Any]:
    """Say whether ``python`` can write at the URL, by writing a small file there and removing it."""
    from autoprof.agent import upload

    why = upload.try_out(url, python)
    problems = [f"ACCELPROF_OUTPUT_DIR: {why}"] if why else []
    return {"folder": redact.url(url), "exists": not why, "free_bytes": None, "problems": problems}


def _plan(values: settings.Settings) -> str:
    from autoprof.agent.plan import CapturePlan

    return f"{CapturePlan(values)} of ranks {values.ranks}"


def _print(
    seen: dict[str, Any], resolved: settings.Resolved, output: dict[str, Any], problems: list[str]
) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in seen["versions"].items())
    print(
        f"interpreter  {seen['executable']} ({seen['version']}), {'armed' if seen['armed'] else 'NOT armed'}"
    )
    print(f"             .pth: {', '.join(seen['pth']) or 'none'}")
    print(f"             sitecustomize: {seen['sitecustomize'] or 'none'}")
    if len(seen["sitecustomize_on_path"]) > 1:
        print(f"             sitecustomize files in order: {', '.join(seen['sitecustomize_on_path'])}")
    print(f"versions     {versions or 'no Accelerate'}")
    print(f"devices      {', '.join(seen['devices']) or 'none but the CPU'}")
    print(f"activities   {', '.join(seen['activities']) or 'none'}")
    print(f"hooks        {sum(seen['hooks'].values())} of {len(seen['hooks'])} in place")
    for name, source in resolved.sources.items():
        if source != "default":
            value = settings.describe(resolved.settings)[name]
            print(f"setting      {name} = {value} ({source})")
    free = output["free_bytes"]
    room = f", {free / 1e9:,.1f} GB free" if free is not None else ""
    print(f"output       {output['folder']}{room}")
    print(f"plan         {_plan(resolved.settings)}")
    for problem in problems:
        print(f"problem      {problem}")
    print("A job would " + ("NOT be profiled as asked." if problems else "be profiled."))
