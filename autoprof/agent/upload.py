"""Copies what is finished to the place that a URL names: each batch in a short-lived process of its own.

A process, because importing a backend (s3fs: 0.4 s) would hold the GIL of the job, because asyncio cannot
look up a host name once the interpreter is going down, and because only a process can be stopped in the
middle of a system call. It starts by vfork and exec, which leaves CUDA, RDMA and threads of the job alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep, time_ns
from typing import Any

from autoprof import redact
from autoprof.agent.finisher import Finisher
from autoprof.agent.guard import entry

_BATCH_S = 300.0
_SLOWEST_BYTES_PER_S = 1e6
"""A batch may take so many seconds, and more where it is large."""
_TRY_OUT_S = 30.0
_POLL_S = 0.05

_CHILD = """
import sys
path = [folder for folder in sys.path if folder]
sys.path[:] = [*path, {root!r}]
from autoprof.agent import remote
sys.path[:] = path
remote.main()
"""


@dataclass
class Upload:
    """One file on its way."""

    path: Path
    name: str
    """Relative to the run, with ``/`` between its parts."""
    passing: bool
    """Whether the local file goes once it has arrived."""
    otherwise: str = ""
    """Its name where another run has ``name``; empty where ``name`` is nobody else's by its making."""
    owner: dict[str, Any] = field(default_factory=dict)
    """What tells our own JSON file from another run's."""
    arrived: Callable[[bool], None] = lambda _: None
    """Called with whether it has arrived, after each attempt."""


class Mirror:
    """The copy of one rank's part of a run, at ``url``.

    ``warn`` is called with a line for people the first time that something cannot be copied.
    """

    def __init__(self, url: str, run_dir: Path, warn: Callable[[str], None]) -> None:
        self.place = f"{redact.url(_below(url, run_dir.name))}"
        """Where the run is, for people."""
        self.why = ""
        """Why something has not arrived, as of the latest attempt; empty where everything has."""
        self._url = url
        self._run = run_dir
        self._warn = warn
        self.warned = False
        """Whether it has been said that something cannot be copied."""
        self.useless = False
        """Whether no attempt can succeed: a backend is missing, say."""
        self._gone = False
        self._names: dict[str, str] = {}  # of JSON files that are there: what they are called
        self._waiting: dict[str, Upload] = {}
        self._tried: set[str] = set()
        self._removals: set[str] = set()
        self._lock = threading.Lock()
        self._queue = Finisher()
        self._last_moment = float("inf")
        self._child: subprocess.Popen[bytes] | None = None

    def put(self, upload: Upload) -> None:
        """Have a file copied with the next batch, in place of what waits under its name."""
        with self._lock:
            self._waiting[upload.name] = upload

    def remove(self, name: str) -> None:
        """Have a trace of ours removed with the next batch, or not copied at all."""
        with self._lock:
            self._waiting.pop(name, None)
            if name in self._tried:
                self._removals.add(name)

    def start(self) -> None:
        """Begin to copy what waits, on a thread of the mirror's own: a slow server delays no compression."""
        if not self.useless:
            self._queue.submit(self._batch)

    @property
    def unremoved(self) -> int:
        """Number of traces that are still to be removed there."""
        return len(self._removals)

    def hurry(self, seconds: float) -> None:
        """Bound everything from now on: the process is about to end."""
        self._last_moment = monotonic() + max(seconds / 2, seconds - 1)  # the rest is for saying so

    def finish(self) -> list[Path]:
        """Copy what waits and clean up; returns the files that have not arrived."""
        self.start()
        self._queue.drain(min(max(0.0, self._last_moment - monotonic()) + 0.2, _BATCH_S))
        with self._lock:
            left = [upload.path for upload in self._waiting.values()]
        if not left:
            folders = (self._run / "ranks", self._run / "steps", self._run, self._run.parent)
            for folder in folders:
                with suppress(OSError):  # other ranks have files there
                    folder.rmdir()
        return left

    def kill(self) -> None:
        """End what is under way, in silence."""
        self._gone = True
        child = self._child
        if child is not None:
            with suppress(OSError):
                child.kill()

    @entry
    def _batch(self) -> None:
        with self._lock:
            uploads, removals = [*self._waiting.values()], sorted(self._removals)
            self._tried.update(upload.name for upload in uploads)
        out_of_time = bool(self.why) and monotonic() >= self._last_moment
        if self.useless or self._gone or out_of_time or not (uploads or removals):
            return
        operations = [self._operation(upload) for upload in uploads]
        operations += [{"do": "remove", "name": f"{self._run.name}/{name}"} for name in removals]
        size = sum(upload.path.stat().st_size for upload in uploads if upload.path.exists())
        until = monotonic() + _BATCH_S + size / _SLOWEST_BYTES_PER_S
        answers = ask(
            self._url,
            operations,
            lambda: min(until, self._last_moment),
            patient=not self.why,  # a server that was away the last time gets one attempt for all
            note=self._note_child,
        )
        if self._gone:
            return
        self.useless = any(answer.get("lasting") for answer in answers)
        reasons = [self._settle(upload, answer) for upload, answer in zip(uploads, answers, strict=False)]
        for name, answer in zip(removals, answers[len(uploads) :], strict=False):
            if "error" not in answer:
                with self._lock:
                    self._removals.discard(name)
            reasons.append(answer.get("error", ""))
        self.why = next(filter(None, reasons), "")
        ending = self._last_moment < float("inf")  # what has not arrived by then is said by itself
        if self.why and not self.warned and not ending:
            self.warned = True
            if self.useless:
                self._warn(f"ACCELPROF_OUTPUT_DIR: {self.why}. Files stay in {self._run}")
            else:
                self._warn(
                    f"{self.place} cannot be written: {self.why}. Files stay in {self._run} "
                    "until they can be uploaded"
                )

    def _operation(self, upload: Upload) -> dict[str, Any]:
        name = self._names.get(upload.name, upload.name)
        operation: dict[str, Any] = {
            "do": "put",
            "path": str(upload.path),
            "name": f"{self._run.name}/{name}",
        }
        if upload.otherwise and upload.name not in self._names:
            operation |= {
                "do": "put once",
                "otherwise": f"{self._run.name}/{upload.otherwise}",
                "owner": upload.owner,
            }
        return operation

    def _settle(self, upload: Upload, answer: dict[str, Any]) -> str:
        """Draw the consequences of an answer; returns why a file that is still wanted has not arrived."""
        arrived = "error" not in answer
        with self._lock:
            waits = self._waiting.get(upload.name)
            if arrived and waits is upload:
                del self._waiting[upload.name]
        if arrived and upload.otherwise:
            self._names[upload.name] = answer["name"].partition("/")[2]
        if arrived and upload.passing:
            with suppress(OSError):
                upload.path.unlink()
                upload.path.parent.rmdir()  # fails, as it should, while other ranks have a trace there
        upload.arrived(arrived)
        return str(answer.get("error", "")) if waits is not None else ""

    def _note_child(self, child: subprocess.Popen[bytes] | None) -> None:
        self._child = child


def ask(
    url: str,
    operations: list[dict[str, Any]],
    last_moment: Callable[[], float],
    *,
    patient: bool = False,
    note: Callable[[subprocess.Popen[bytes] | None], None] = lambda _: None,
    python: str = "",
) -> list[dict[str, Any]]:
    """Have ``remote.main`` do ``operations`` at ``url`` until ``last_moment``, by ``time.monotonic``.

    Returns one answer for each; those it did not come to say why. ``patient`` has each tried several times.
    ``python`` is the interpreter that does it, ``note`` is told of its process while there is one.
    """
    request = {"operations": operations, "patient": patient, "parent": os.getpid()}
    try:
        answers, why = _ask_process(url, request, last_moment, note, python or sys.executable or "")
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        why = getattr(error, "strerror", None) or str(error)
        answers, why = [], f"the process that uploads cannot be started: {why}"
    return answers + [{"error": why}] * (len(operations) - len(answers))


def _ask_process(
    url: str,
    request: dict[str, Any],
    last_moment: Callable[[], float],
    note: Callable[[subprocess.Popen[bytes] | None], None],
    python: str,
) -> tuple[list[dict[str, Any]], str]:
    """Return the answers there are and why there are no more."""
    began = monotonic()
    seconds = last_moment() - began
    if seconds <= 0:
        return [], "there was no time left for it"
    # Files, not pipes: a worker that the job forks in the meantime would hold the ends of a pipe open.
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as replies:
        asked.write(json.dumps({**request, "seconds": seconds + 1}).encode() + b"\n")
        asked.seek(0)
        child = subprocess.Popen(
            [python, "-c", _CHILD.format(root=str(Path(__file__).parents[2]))],
            stdin=asked,
            stdout=replies,
            stderr=subprocess.DEVNULL,  # may hold credentials
            env=_environment(url),
            start_new_session=True,  # Ctrl-C is for the job, which then asks for an orderly end
        )
        note(child)
        why = ""
        try:
            while child.poll() is None:
                if monotonic() >= last_moment():
                    why = f"not done within {monotonic() - began:.0f} s"
                    child.kill()
                    child.wait()
                else:
                    sleep(_POLL_S)
        finally:
            note(None)
        replies.seek(0)
        answers = []
        for line in replies:
            with suppress(ValueError):  # cut short
                answers.append(json.loads(line))
    for answer in answers:
        why = answer.get("meanwhile", why)
    why = why or f"the process that uploads ended with status {child.returncode}"
    return [answer for answer in answers if "meanwhile" not in answer], why


def _environment(url: str) -> dict[str, str]:
    dropped = ("ACCELPROF_ENABLE", "PYTHONINSPECT")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return kept | {"ACCELPROF_OUTPUT_DIR": url}


def try_out(url: str, python: str = "") -> str:
    """Write a small file at ``url`` and remove it; returns why that fails, or nothing."""
    name = f"autoprof-check.{os.getpid()}-{time_ns()}"
    until = monotonic() + _TRY_OUT_S
    (answer,) = ask(url, [{"do": "try out", "name": name}], lambda: until, python=python)
    why = str(answer.get("error", ""))
    return f"{redact.url(url)!r} cannot be written: {why}" if why and not answer.get("lasting") else why


def working_folder(scratch: Path, run_id: str) -> Path:
    """Return where a run whose output goes elsewhere is put together; a folder of the user's own."""
    return scratch.absolute() / f"autoprof-{os.getuid()}" / run_id


def _below(url: str, name: str) -> str:
    base, question, query = url.partition("?")
    return f"{base.rstrip('/')}/{name}{question}{query}"
