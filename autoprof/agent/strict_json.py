"""What torch writes, piece by piece, as strict JSON.

torch copies a double quote in a range's name into the file as it is (torch 2.13, Kineto's
output_json.cpp), and a disk that fills up leaves half a file. Valid pieces pass through byte for byte:
readers look for torch's own spelling. SQLite does the checking where Python has it: it lets go of the GIL,
which `json` holds while the training thread wants it, and takes a sixth of the time.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

_PIECE_BYTES = 128 * 1024
_EVENT_END = b"\n  }"
_BETWEEN_EVENTS = b"\n  },\n  {\n"
_LIST_START = b'"traceEvents": ['
_LIST_END = b"\n  ]"
_TEXT_LINE = re.compile(rb'^(\s*"[^"\n]+": ")(.*)("\s*,?\s*)$', re.MULTILINE)


@dataclass
class Damage:
    """What had to be changed to make the file strict JSON."""

    repaired_events: int = 0
    dropped_events: int = 0
    truncated: bool = False


def strict_pieces(raw: BinaryIO, damage: Damage) -> Iterator[bytes]:
    """Yield the file as pieces that join to strict JSON, and count in ``damage`` what was changed.

    Raises:
        ValueError: the file is not a trace as torch writes it.
    """
    first = True
    for start, body, end in _cut(raw):
        if start is not None:
            if not _is_json(start + b"]}"):
                raise ValueError("its header is not JSON")
            yield start
        kept = body if _is_json(_as_list(body)) else _repair(body, damage)
        if kept:
            yield kept.removeprefix(b",") if first else kept
            first = False
        if end is not None:
            damage.truncated = not _is_json(b"{" + _LIST_START + end)
            yield _LIST_END + b"\n}\n" if damage.truncated else end


def _cut(raw: BinaryIO) -> Iterator[tuple[bytes | None, bytes, bytes | None]]:
    """Cut into (what precedes the events, whole events, what follows them)."""
    buffer = raw.read(_PIECE_BYTES)
    head_end = buffer.find(_LIST_START)
    while head_end < 0:
        block = raw.read(_PIECE_BYTES)
        if not block:
            raise ValueError("it holds no list of events")
        buffer += block
        head_end = buffer.find(_LIST_START)
    head_end += len(_LIST_START)
    start: bytes | None = buffer[:head_end]
    buffer = buffer[head_end:]
    while block := raw.read(_PIECE_BYTES):
        buffer += block
        cut = buffer.rfind(_BETWEEN_EVENTS)
        if cut >= 0:
            cut += len(_EVENT_END)
            yield start, buffer[:cut], None
            start, buffer = None, buffer[cut:]
    cut = buffer.rfind(_EVENT_END)
    cut = cut + len(_EVENT_END) if cut >= 0 else 0
    yield start, buffer[:cut], buffer[cut:]


def _as_list(body: bytes) -> bytes:
    return b"[0" + body + b"]" if body.lstrip().startswith(b",") else b"[" + body + b"]"


def _repair(body: bytes, damage: Damage) -> bytes:
    kept = []
    for event in body.split(_EVENT_END + b",\n"):
        whole = event.removesuffix(_EVENT_END).lstrip(b",") + _EVENT_END
        if not _is_json(whole):
            whole = _TEXT_LINE.sub(_escaped, whole)
            if _is_json(whole):
                damage.repaired_events += 1
            else:
                damage.dropped_events += 1
                continue
        kept.append(whole)
    return b",\n" + b",\n".join(kept) if kept else b""


def _escaped(line: re.Match[bytes]) -> bytes:
    if _is_json(b'"' + line[2] + b'"'):
        return line[0]
    return line[1] + json.dumps(line[2].decode("utf-8", "replace"))[1:-1].encode() + line[3]


def _no_constants(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constants)


@functools.cache
def _quick_check() -> Callable[[str], bool]:
    """Return a check that is right when it says yes."""
    try:
        import sqlite3
    except ImportError:  # a Python that was built without it
        return lambda _: False
    connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)

    def is_json(text: str) -> bool:
        try:
            return bool(connection.execute("SELECT json_valid(?)", (text,)).fetchone()[0])
        except sqlite3.Error:  # built without its JSON functions, or more text than it takes
            return False

    return is_json


def _is_json(text: bytes) -> bool:
    try:
        decoded = text.decode("utf-8")
        # SQLite reads to the first NUL.
        if b"\0" not in text and _quick_check()(decoded):
            return True
        _DECODER.decode(decoded)
    except (ValueError, RecursionError):
        return False
    return True
