"""Writing and reading the small files of a run directory: whole or not at all."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write ``document`` under a temporary name and rename it over ``path``.

    Raises:
        OSError: the directory cannot be written.
    """
    write_bytes(path, (json.dumps(document, indent=2, default=str) + "\n").encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` under a temporary name and rename it over ``path``.

    Raises:
        OSError: the directory cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(path)
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json_once(path: Path, document: dict[str, Any]) -> Path:
    """Write ``document`` to ``path``, or beside it with the time in its name where ``path`` is taken.

    A second attempt of an elastic job and a second run under the same id keep the first one's file.

    Raises:
        OSError: the directory cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(path)
    try:
        temporary.write_text(json.dumps(document, indent=2, default=str) + "\n", encoding="utf-8")
        while True:
            try:
                os.link(temporary, path)
                return path
            except FileExistsError:
                path = path.with_name(f"{path.name.split('.')[0]}.{time.time_ns()}.json")
            except OSError:  # a filesystem without hard links: rename, which can only lose a race
                if not path.exists():
                    os.replace(temporary, path)
                    return path
                path = path.with_name(f"{path.name.split('.')[0]}.{time.time_ns()}.json")
    finally:
        temporary.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any]:
    """Read one JSON object.

    Raises:
        OSError: the file cannot be read.
        ValueError: it does not hold one JSON object.
    """
    document = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict):
        raise ValueError(f"{path}: expected a JSON object, found {type(document).__name__}")
    return document


def temporary_name(path: Path) -> Path:
    """Return a hidden name beside ``path`` that no other process or call uses and no trace reader opens."""
    return path.with_name(f".{path.name}.{os.getpid()}-{time.monotonic_ns()}.tmp")
