"""What can go wrong with a trace, and what was lost from one that could still be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


class AnalysisError(Exception):
    """A question that cannot be answered; the message is one line for a person."""


class TraceError(AnalysisError):
    """A trace of which nothing can be kept. The message names the file and, where known, the byte."""

    def __init__(self, path: Path, what: str, byte: int | None = None) -> None:
        at = "" if byte is None else f" at byte {byte}"
        super().__init__(f"{path}: {what}{at}")
        self.path = path
        self.byte = byte

    def __reduce__(self) -> tuple[type[AnalysisError], tuple[str]]:
        # Crosses from a worker process as the line that it is.
        return AnalysisError, (str(self),)


@dataclass
class Loss:
    """One kind of damage: what happened, how often, and the byte where it was first met."""

    what: str
    count: int = 1
    byte: int | None = None

    def __str__(self) -> str:
        if self.byte is None:
            at = ""
        else:
            at = f" (first at byte {self.byte})" if self.count > 1 else f" (byte {self.byte})"
        return f"{self.count} x {self.what}{at}"


@dataclass
class Losses:
    """What had to be left out, changed or guessed while one trace was read, in order of appearance."""

    found: dict[str, Loss] = field(default_factory=dict)

    def add(self, what: str, byte: int | None = None, count: int = 1) -> None:
        """Count one more of a kind; ``byte`` is a position in the uncompressed text."""
        if what in self.found:
            self.found[what].count += count
        elif count:
            self.found[what] = Loss(what, count, byte)

    def lines(self) -> list[str]:
        """Return one line per kind of damage."""
        return [str(loss) for loss in self.found.values()]

    def __bool__(self) -> bool:
        return bool(self.found)
