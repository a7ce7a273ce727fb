"""The place that a URL names, written and read through fsspec.

:func:`main` is a process of its own (``upload.py`` starts it and says why). It takes one request as a line of
JSON on stdin, the URL in ``ACCELPROF_OUTPUT_DIR``, and answers each operation with a line on stdout.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from autoprof import redact

_PAUSES_S = (0.5, 1.0, 2.0)
"""Between the attempts for one file."""
_AFTERWARDS_S = 20.0
"""How long a job that was killed may be survived, to bring home what was on its way."""
_WHOLE_OR_NOT_AT_ALL = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "hf", "memory", "r2"}
"""Protocols whose objects appear when they are complete. Elsewhere a file is renamed once it is."""
_EXCLUSIVE = {"s3", "s3a"}
"""Protocols that can be asked to create an object only where there is none."""


class Unusable(Exception):
    """The URL cannot be used by this interpreter, now or later; the text says why."""


class Place:
    """A folder anywhere. Names are relative to it, with ``/`` between their parts.

    Raises:
        Unusable: no backend for the URL is installed, or there is none.
    """

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise Unusable("a URL needs fsspec, which is not installed (pip install fsspec)") from None
        try:
            self._fs, path = url_to_fs(url)
        except (ImportError, ValueError) as error:  # "Install s3fs to access S3", "Protocol not known: x"
            raise Unusable(f"{redact.url(url)!r} cannot be used: {brief(error, url)}") from None
        if hasattr(self._fs, "retries"):  # of s3fs, around botocore's own and inside ours: they multiply
            self._fs.retries = 1
        self._base = str(self._fs._strip_protocol(path)).rstrip("/")
        protocols = {self._fs.protocol} if isinstance(self._fs.protocol, str) else set(self._fs.protocol)
        self._has_folders = not protocols & _WHOLE_OR_NOT_AT_ALL
        self._can_create = bool(protocols & _EXCLUSIVE)

    def put(self, path: Path, name: str) -> None:
        """Copy a file there and see that it has arrived whole.

        Raises:
            OSError: it has not; whatever the backend raises besides.
        """
        size = path.stat().st_size
        target = temporary = self._at(name)
        if self._has_folders:
            folder, _, last = target.rpartition("/")
            self._fs.makedirs(folder, exist_ok=True)
            temporary = f"{folder}/.{last}.{os.getpid()}-{time.monotonic_ns()}.tmp"
        try:
            self._fs.put_file(str(path), temporary)
            self._fs.invalidate_cache()
            arrived = self._fs.info(temporary)["size"]
            if arrived is not None and arrived != size:
                raise OSError(f"{arrived:,} of {size:,} bytes arrived")
            if temporary != target:
                self._fs.mv(temporary, target)
                temporary = target
        finally:
            if temporary != target:
                with suppress(Exception):
                    self._fs.rm_file(temporary)

    def put_once(self, path: Path, name: str, otherwise: str, owner: dict[str, Any]) -> str:
        """Copy a JSON file there as ``name``, or as ``otherwise`` where somebody else has that name.

        One that agrees with ``owner`` is our own. Returns the name that it has.
        """
        if self._fs.exists(self._at(name)):
            name = name if self._is_ours(name, owner) else otherwise
        elif self._can_create:
            try:
                self._fs.pipe_file(self._at(name), path.read_bytes(), mode="create")
                return name
            except Exception:  # noqa: BLE001  a backend raises what its libraries raise
                self._fs.invalidate_cache()
                if self._fs.exists(self._at(name)):  # another run was faster
                    name = name if self._is_ours(name, owner) else otherwise
                # Otherwise the server does not know such requests.
        self.put(path, name)
        return name

    def _is_ours(self, name: str, owner: dict[str, Any]) -> bool:
        try:
            found = json.loads(self._fs.cat_file(self._at(name)))
            return all(found.get(key) == value for key, value in owner.items())
        except (ValueError, AttributeError):
            return False

    def remove(self, name: str) -> None:
        """Remove a file; it is no fault where there is none."""
        with suppress(FileNotFoundError):
            self._fs.rm_file(self._at(name))
        if self._has_folders:
            with suppress(Exception):  # other ranks have a trace there
                self._fs.rmdir(self._at(name).rpartition("/")[0])

    def try_out(self, name: str) -> None:
        """Write a small file and remove it again."""
        if self._has_folders:
            self._fs.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)
        self._fs.pipe_file(self._at(name), b"autoprof")
        self._fs.rm_file(self._at(name))

    def files(self) -> list[tuple[str, int]]:
        """List the names and sizes in bytes of everything below."""
        found = self._fs.find(self._base, detail=True)
        start = len(self._base)
        return [(path[start:].lstrip("/"), int(info["size"] or 0)) for path, info in sorted(found.items())]

    def _at(self, name: str) -> str:
        base, question, query = self._base.partition("?")
        if question and base.startswith("http"):
            return f"{base}/{name}?{query}"
        return f"{self._base}/{name}"


def brief(error: BaseException, url: str) -> str:
    """Return what went wrong in one line without credentials."""
    shown = redact.text(" ".join(str(error).split()), os.environ, url)
    if not shown or not isinstance(error, (PermissionError, ImportError, Unusable)):
        shown = f"{type(error).__name__}: {shown}".rstrip(": ")
    return shown if len(shown) <= 300 else shown[:299] + "…"


def main() -> None:
    """Do what stdin asks for, within its number of seconds."""
    request = json.loads(sys.stdin.readline())
    url = os.environ["ACCELPROF_OUTPUT_DIR"]
    threading.Thread(target=_end_in_time, args=(request["parent"], request["seconds"]), daemon=True).start()
    with suppress(OSError):
        os.nice(5)  # training goes first
    os.environ.setdefault("AWS_MAX_ATTEMPTS", "2")
    for answer in _answers(url, request["operations"], _PAUSES_S if request["patient"] else ()):
        _reply(answer)
    os._exit(0)  # sockets and threads of a backend must not delay the end


def _end_in_time(parent: int, seconds: float) -> None:
    """End this process when its time is up, and soon after the job itself has ended without a word."""
    last_moment = time.monotonic() + seconds
    orphaned = False
    while time.monotonic() < last_moment:
        time.sleep(0.5)
        if not orphaned and os.getppid() != parent:
            orphaned = True
            last_moment = min(last_moment, time.monotonic() + _AFTERWARDS_S)
    os._exit(3)


def _reply(answer: dict[str, Any]) -> None:
    with suppress(OSError):
        os.write(1, json.dumps(answer).encode() + b"\n")


def _answers(
    url: str, operations: list[dict[str, Any]], pauses: tuple[float, ...]
) -> Iterator[dict[str, Any]]:
    try:
        if url.lower().startswith("memory://"):
            raise Unusable("memory:// ends with the process that writes to it")
        place = Place(url)
    except Unusable as why:
        yield from ({"error": str(why), "lasting": True} for _ in operations)
        return
    for operation in operations:
        answer = _attempt(place, url, operation, pauses)
        if "error" in answer:
            pauses = ()  # the rest would wait for the same server
        yield answer


def _attempt(place: Place, url: str, operation: dict[str, Any], pauses: tuple[float, ...]) -> dict[str, Any]:
    waiting = iter(pauses)
    while True:
        try:
            return _do(place, operation)
        except (PermissionError, FileNotFoundError, NotImplementedError) as error:
            return {"error": brief(error, url)}
        except Exception as error:  # noqa: BLE001  a backend raises what its libraries raise
            pause = next(waiting, None)
            if pause is None:
                return {"error": brief(error, url)}
            _reply({"meanwhile": brief(error, url)})  # should the time be up before there is an answer
            time.sleep(pause)


def _do(place: Place, operation: dict[str, Any]) -> dict[str, Any]:
    do, name = operation["do"], operation.get("name", "")
    if do == "put":
        place.put(Path(operation["path"]), name)
    elif do == "put once":
        name = place.put_once(Path(operation["path"]), name, operation["otherwise"], operation["owner"])
    elif do == "remove":
        place.remove(name)
    elif do == "try out":
        place.try_out(name)
    elif do == "list":
        return {"files": place.files()}
    return {"name": name}
