"""Cuts the text of a trace into what precedes the events, lists of whole events, and what follows them.

Whole pieces go through msgspec; only a piece that it refuses is taken apart event by event. So a file is
never held in memory as a whole, and damage costs the events it hit.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import msgspec

from autoprof.analysis.errors import Losses

# Larger pieces decode no faster and cost more when one has to be taken apart.
_PIECE_BYTES = 4 * 1024 * 1024
# A damaged piece is read in pieces of this size, so that one fault does not slow down the rest.
_CAREFUL_BYTES = 64 * 1024
_OUTSIDE_BYTES = 64 * 1024 * 1024
_EVENT_BYTES = 16 * 1024 * 1024
_LIST_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN_EVENTS = re.compile(rb"\}\s*,\s*(?=\{)")
_AFTER_EVENT = re.compile(rb"\}\s*(?:,\s*(?=\{)|(?=\]))")
_LAST_EVENT = re.compile(rb"\}\s*,?\s*(?=\])")
_SPACE = re.compile(rb"\s*")
_NEXT_EVENT = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|ts|dur|pid|tid|args|id)"\s*:)')
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_TEXT_VALUE = re.compile(r'("(?:name|cat)"\s*:\s*")(.*?)("\s*(?=,\s*"|\}))', re.DOTALL)
_TRIES = 8
_REPAIR_TRIES = 3
_DECODER = json.JSONDecoder(strict=False)

Event = dict[str, Any]
Decode: TypeAlias = Callable[[bytes], list[Any]]


class NotATrace(Exception):
    """The text holds no list of events."""

    def __init__(self, what: str, byte: int) -> None:
        super().__init__(what)
        self.byte = byte


@dataclass
class Outside:
    """The text around the list of events. ``head`` ends with its ``[``, ``tail`` begins with its ``]``."""

    head: bytes = b""
    tail: bytes = b""


def read_events(
    blocks: Iterator[bytes], decode: Decode, outside: Outside, losses: Losses
) -> Iterator[list[Any]]:
    """Yield lists of events, and leave in ``outside`` the text around them once exhausted.

    ``decode`` takes the text of one JSON list and returns its events in the form the caller wants; it raises
    ``ValueError`` or ``RecursionError`` for what it does not take. Events of such pieces are yielded as
    plain dictionaries with clean values instead.

    Raises:
        NotATrace: there is no list of events in the text.
    """
    buffer, at = _find_list(blocks, outside)
    careful_until = 0
    ended = False
    for block in blocks:
        buffer += block
        while not ended and len(buffer) >= (_PIECE_BYTES if at >= careful_until else _CAREFUL_BYTES):
            taken = None
            if at >= careful_until:
                taken = _take(buffer, decode)
                careful_until = 0 if taken else at + len(buffer)
            if taken is None:
                taken = _take_carefully(buffer, at, decode, losses)
            if taken.events:
                yield taken.events
            buffer, at, ended = buffer[taken.used :], at + taken.used, taken.ended
            if not taken.used:
                break
        if ended:
            break
    if not ended:
        for taken in _take_rest(buffer, at, decode, losses):
            if taken.events:
                yield taken.events
            buffer = buffer[taken.used :]
    outside.tail = buffer
    for block in blocks:
        if len(outside.tail) > _OUTSIDE_BYTES:
            losses.add("text after the events too long to read", at)
            break
        outside.tail += block


def _find_list(blocks: Iterator[bytes], outside: Outside) -> tuple[bytes, int]:
    """Return what follows the ``[`` of the list of events, and the position of its first byte."""
    buffer = b""
    for block in blocks:
        buffer += block
        start = len(buffer) - len(buffer.lstrip(b"\xef\xbb\xbf \t\r\n"))
        if buffer[start : start + 1] == b"[":
            outside.head = b"["
            return buffer[start + 1 :], start + 1
        if match := _LIST_START.search(buffer):
            outside.head = buffer[start : match.end()]
            return buffer[match.end() :], match.end()
        if buffer[start : start + 1] not in (b"{", b""):
            raise NotATrace("is not a Chrome trace: its text begins neither with { nor with [", start)
        if len(buffer) > _OUTSIDE_BYTES:
            break
    if not buffer.strip():
        raise NotATrace("holds no text", len(buffer))
    raise NotATrace("holds no list of traceEvents", len(buffer))


class _Taken(NamedTuple):
    """Events from the front of the text, how many bytes they took, and whether the list has ended."""

    events: list[Any]
    used: int
    ended: bool = False


def _take(buffer: bytes, decode: Decode) -> _Taken | None:
    """Take as many whole events as there are; None where something among them is damaged."""
    end = len(buffer)
    for _ in range(_TRIES):
        cut = _last_cut(buffer, end)
        if cut is None:
            return None
        events, damaged = _decode(buffer[: cut[0]], decode)
        if events is not None:
            return _Taken(events, cut[1])
        if damaged:
            return None
        end = cut[0] - 1
    return None


def _take_carefully(buffer: bytes, at: int, decode: Decode, losses: Losses) -> _Taken:
    """Take a small piece, apart only if it is the damaged one; no bytes are used where more are needed."""
    cut = _last_cut(buffer, min(len(buffer), _CAREFUL_BYTES))
    if cut:
        events, _ = _decode(buffer[: cut[0]], decode)
        if events is not None:
            return _Taken(events, cut[1])
        taken = _take_apart(buffer[: cut[1]], at, losses, last=False)
        if taken.used:
            return taken
    return _take_apart(buffer, at, losses, last=False)


def _take_rest(buffer: bytes, at: int, decode: Decode, losses: Losses) -> Iterator[_Taken]:
    """Take the end of the text, to the end of the list if it has one."""
    empty = _SPACE.match(buffer)
    if empty and buffer[empty.end() : empty.end() + 1] == b"]":
        yield _Taken([], empty.end(), ended=True)
        return
    for match in list(_LAST_EVENT.finditer(buffer))[: -_TRIES - 1 : -1]:
        events, _ = _decode(buffer[: match.start() + 1], decode)
        if events is not None:
            yield _Taken(events, match.end(), ended=True)
            return
    while len(buffer) > _CAREFUL_BYTES:
        taken = _take_carefully(buffer, at, decode, losses)
        yield taken
        if taken.ended:
            return
        if not taken.used:
            break
        buffer, at = buffer[taken.used :], at + taken.used
    yield _take_apart(buffer, at, losses, last=True)


def _last_cut(buffer: bytes, end: int) -> tuple[int, int] | None:
    """Return where the last event that ends before ``end`` ends, and where the next one begins."""
    window = 64 * 1024
    while True:
        start = max(0, end - window)
        cuts = list(_BETWEEN_EVENTS.finditer(buffer, start, end))
        if cuts:
            return cuts[-1].start() + 1, cuts[-1].end()
        if start == 0:
            return None
        window *= 8


def _decode(body: bytes, decode: Decode) -> tuple[list[Any] | None, bool]:
    """Return the events, or None and whether the text is damaged rather than cut in the wrong place."""
    text = b"[" + body + b"]"
    try:
        return decode(text), False
    except msgspec.ValidationError:
        # Strict JSON of other types than expected.
        try:
            return [event for event in msgspec.json.decode(text) if isinstance(event, dict)], False
        except (ValueError, RecursionError):
            return None, True
    except (ValueError, RecursionError) as error:
        return None, "truncated" not in str(error)


def _take_apart(buffer: bytes, at: int, losses: Losses, *, last: bool) -> _Taken:
    """Read event by event; repair what can be repaired, drop what cannot, and say so."""
    # Latin-1 maps bytes to characters one to one, so that positions are the file's.
    text = buffer.decode("latin-1")
    events: list[Any] = []
    position = 0
    while True:
        position = _past(buffer, position)
        mark = buffer[position : position + 1]
        if mark == b"]":
            return _Taken(events, position, ended=True)
        if not mark:
            if last:
                losses.add("list of events cut short", at + position)
            return _Taken(events, position)
        event, end = _one(text, position)
        if end < 0:
            if not last and len(buffer) - position < _EVENT_BYTES:
                return _Taken(events, position)
            end = position
        if end == position:
            event, end = _repaired(buffer, position, last=last)
            if end < 0:
                if not last and len(buffer) - position < _EVENT_BYTES:
                    return _Taken(events, position)
                losses.add("event cut short", at + position)
                return _Taken(events, len(buffer))
            losses.add("event that could not be read" if event is None else "event repaired", at + position)
        elif not isinstance(event, dict):
            losses.add("entry that is not an event", at + position)
        if isinstance(event, dict):
            events.append(event)
        position = end


def _past(buffer: bytes, position: int) -> int:
    """Return the position of what follows white space and commas."""
    while True:
        space = _SPACE.match(buffer, position)
        position = space.end() if space else position
        if buffer[position : position + 1] != b",":
            return position
        position += 1


def _one(text: str, position: int) -> tuple[Any, int]:
    """Return the value at ``position`` and where it ends.

    That is ``position`` itself where the text is damaged, and -1 where it ends too early.
    """
    try:
        value, end = _DECODER.raw_decode(text, position)
        source = text[position:end]
        if not source.isascii():
            value = _DECODER.decode(source.encode("latin-1").decode("utf-8", "replace"))
        return clean(value), end
    except json.JSONDecodeError as error:
        ran_out = error.msg.startswith("Unterminated") or error.pos >= len(text) - len("Infinity")
        return None, -1 if ran_out else position
    except (ValueError, RecursionError):
        return None, position


def _repaired(buffer: bytes, position: int, *, last: bool) -> tuple[Event | None, int]:
    """Return a damaged event made whole and where it ends.

    (None, position of the next event) where it cannot be made whole; (None, -1) where no event follows.
    """
    ends = _AFTER_EVENT.finditer(buffer, position, position + _EVENT_BYTES)
    for match in itertools.islice(ends, _REPAIR_TRIES):
        source = buffer[position : match.start() + 1].decode("utf-8", "replace")
        for repair in (_escape_escapes, _escape_quotes):
            try:
                event = clean(_DECODER.decode(repair(source)))
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                return event, match.start() + 1
    # A list of objects inside the arguments must not be taken for the list of events.
    if following := _NEXT_EVENT.search(buffer, position):
        return None, following.end()
    if last and (end := _LAST_EVENT.search(buffer, position)):
        return None, end.end()
    return None, -1


def _escape_escapes(source: str) -> str:
    return _BAD_ESCAPE.sub(r"\\\\", source)


def _escape_quotes(source: str) -> str:
    def escaped(match: re.Match[str]) -> str:
        return match[1] + json.dumps(match[2])[1:-1] + match[3]

    return _TEXT_VALUE.sub(escaped, source)


def clean(value: Any) -> Any:
    """Return a decoded value that can be written as strict JSON: no NaN, no lone surrogates."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def metadata(outside: Outside, losses: Losses) -> dict[str, Any]:
    """Return what the trace says about itself outside its events; an empty object for the bare list form."""
    if outside.head == b"[":
        return {}
    found = _object(outside.head + outside.tail)
    if found is None:
        # Each half by itself, as in a file cut short.
        head, tail = _object(outside.head + b"]}"), _object(b'{"traceEvents":[' + outside.tail)
        if head is None or (tail is None and outside.tail.strip()):
            losses.add("metadata that could not be read in full")
        found = {**(head or {}), **(tail or {})}
    found.pop("traceEvents", None)
    return found


def _object(source: bytes) -> dict[str, Any] | None:
    text = source.decode("utf-8", "replace")
    for attempt in (text, _escape_escapes(text)):
        try:
            document: Any = clean(_DECODER.decode(attempt.strip()))
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            return document
    return None
