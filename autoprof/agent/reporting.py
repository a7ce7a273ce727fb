"""The report at the end of a run: another process writes it, and this one does not wait for it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from autoprof.agent.guard import say
from autoprof.agent.journal import Journal

REPORT = "report.html"
LOG = "report.log"
_NEEDED = ("numpy", "msgspec", "rich", "jinja2", "vl_convert")
_WAIT_FOR_RANKS_S = 60
# The process lowers its own priority: between fork and exec, a process with threads can do nothing safely.
# It finds the package where this one did, after everything else.
_PROGRAM = (
    "import os, sys; os.nice(19); sys.path.append(sys.argv[3]); from autoprof.cli import main; "
    f"sys.exit(main(['report', sys.argv[1], '-o', sys.argv[2], '--wait', '{_WAIT_FOR_RANKS_S}']))"
)


def start(journal: Journal) -> None:
    """Have the report of a run written, and say so, or why it cannot be done.

    The process has a session of its own and the lowest priority, and writes into the run directory: nothing
    of it reaches the job's streams.
    """
    run_dir = journal.run_dir
    if journal.mirror is not None:
        say(f"ACCELPROF_REPORT=1: no report, the traces are in {journal.mirror.place} and not here")
        return
    missing = [name for name in _NEEDED if not _is_there(name)]
    if missing:
        say(
            f"ACCELPROF_REPORT=1: no report, for {', '.join(missing)} cannot be imported here; "
            f"pip install 'accelerate-autoprof[report]', or run `autoprof report {run_dir}` where it is"
        )
        return
    try:
        _spawn(run_dir)
    except OSError as error:
        say(f"ACCELPROF_REPORT=1: the report could not be started: {error}")
    else:
        journal.info(
            f"{run_dir / REPORT} is being written in the background; {LOG} beside it tells how it went"
        )


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # something without a spec goes by that name, or None, which forbids its import
        return sys.modules.get(name) is not None


def _spawn(run_dir: Path) -> None:
    # What would have it profiled as well, or take it for a part of this job.
    ours = ("ACCELPROF_", "_ACCELPROF_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    package_folder = Path(__file__).resolve().parents[2]
    with open(run_dir / LOG, "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(run_dir), str(run_dir / REPORT), str(package_folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=run_dir,
            env=environment,
            start_new_session=True,
        )
    # It outlives this process on purpose; without a status, its object would complain of that as it goes.
    process.returncode = 0
