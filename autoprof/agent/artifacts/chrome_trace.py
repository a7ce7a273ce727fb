"""The Chrome trace of one rank and one capture: checked, compressed and moved into the run directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from autoprof.agent.strict_json import Damage, strict_pieces
from autoprof.run.store import temporary_name


class Written(NamedTuple):
    """A file that is in place."""

    path: Path
    size_bytes: int
    inode: int
    damage: Damage


def write(raw_path: Path, final_path: Path, *, gzip: bool, labels: Mapping[int, str]) -> Written:
    """Turn torch's raw JSON into the file people open, and remove the raw one.

    ``labels`` renames the ranges of steps that readers must not take for whole single steps: one that was
    under way when the recording stopped, say.

    Raises:
        OSError: the run directory cannot be written. The raw file is left where it is.
        ValueError: the raw file is not a trace. It is left where it is.
    """
    damage = Damage()
    final_path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(final_path)
    try:
        with open(raw_path, "rb") as raw, open(temporary, "wb") as out:
            pieces = _named(strict_pieces(raw, damage), raw_path, final_path, labels)
            for piece in _compressed(pieces) if gzip else pieces:
                out.write(piece)
        found = temporary.stat()
        os.replace(temporary, final_path)
    finally:
        temporary.unlink(missing_ok=True)
    raw_path.unlink(missing_ok=True)
    return Written(final_path, found.st_size, found.st_ino, damage)


def _named(
    pieces: Iterator[bytes], raw_path: Path, final_path: Path, labels: Mapping[int, str]
) -> Iterator[bytes]:
    names = [(f'"traceName": "{raw_path}"', f'"traceName": "{final_path.name}"')]
    names += [(f'"ProfilerStep#{step}"', f'"{label}"') for step, label in labels.items()]
    replacements = [(old.encode(), new.encode()) for old, new in names]
    for piece in pieces:
        named = piece
        for old, new in replacements:
            named = named.replace(old, new)
        yield named


def _compressed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    compressor = _gzip_compressor()
    for piece in pieces:
        yield compressor.compress(piece)
    yield compressor.flush()


def _gzip_compressor() -> Any:
    """Return a compressor that releases the GIL; 31 asks for the gzip container."""
    try:
        from isal import isal_zlib

        return isal_zlib.compressobj(level=2, wbits=31)
    except ImportError:
        import zlib

        return zlib.compressobj(level=1, wbits=31)
