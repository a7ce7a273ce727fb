"""A trace file as blocks of uncompressed bytes, whatever its name says and however it ends."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from autoprof.analysis.errors import Losses, TraceError

BLOCK_BYTES = 4 * 1024 * 1024
_COMPRESSED_BYTES = 256 * 1024
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_GZIP_CONTAINER = 31


def read_blocks(path: Path, losses: Losses) -> Iterator[bytes]:
    """Yield the uncompressed bytes of ``path`` in blocks of a few megabytes.

    The compression is told by the first bytes, never by the name. A file that is cut short or damaged
    yields all that precedes the damage, which is then noted in ``losses``.

    Raises:
        TraceError: the file cannot be opened, is empty, or is of a kind that cannot be read here.
    """
    try:
        if not path.is_file():
            raise TraceError(path, "is not a regular file" if path.exists() else "does not exist")
        with open(path, "rb") as file:
            magic = file.read(4)
            file.seek(0)
            if not magic:
                raise TraceError(path, "is empty", 0)
            if magic.startswith(_GZIP):
                yield from _gunzip(file, losses)
            elif magic == _ZSTD:
                yield from _unzstd(path, file, losses)
            else:
                while block := file.read(BLOCK_BYTES):
                    yield block
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror or error}") from error


def _gunzip(file: BinaryIO, losses: Losses) -> Iterator[bytes]:
    """Yield the text of every member of a gzip file."""
    member_at = block_at = produced = 0
    decompressor, fed = _decompressor(), False
    while block := file.read(_COMPRESSED_BYTES):
        pending = block
        while pending:
            if not fed and not pending.startswith(_GZIP[: len(pending)]):
                if pending.strip(b"\0"):  # zeros are padding
                    losses.add(f"bytes after the end of the compressed data, at byte {member_at} of the file")
                return
            fed = True
            try:
                text = decompressor.decompress(pending, BLOCK_BYTES)
            except _errors() as error:
                at = yield from _up_to_the_damage(file, member_at, block_at, produced)
                losses.add(f"compressed data damaged at byte {at} of the file ({error})")
                return
            produced += len(text)
            yield text
            pending = decompressor.unconsumed_tail
            if decompressor.eof:
                pending = decompressor.unused_data
                member_at = block_at + len(block) - len(pending)
                decompressor, produced, fed = _decompressor(), 0, False
        block_at += len(block)
    while fed and not decompressor.eof:
        text = decompressor.decompress(b"", BLOCK_BYTES)
        if not text:
            losses.add(f"compressed data cut short at byte {block_at} of the file")
            return
        yield text


def _up_to_the_damage(
    file: BinaryIO, member_at: int, block_at: int, produced: int
) -> Generator[bytes, None, int]:
    """Yield what a failed block still holds and return where it is damaged.

    A new decompressor is given that block byte for byte; what was ``produced`` before is skipped.
    """
    decompressor = zlib.decompressobj(_GZIP_CONTAINER)
    kept = bytearray()
    at = member_at
    file.seek(at)
    while piece := file.read(min(_COMPRESSED_BYTES, block_at - at) if at < block_at else 1):
        pending = piece
        while pending:
            try:
                text = decompressor.decompress(pending, BLOCK_BYTES)
            except zlib.error:
                yield bytes(kept)
                return at
            fresh = text[produced:]
            produced -= len(text) - len(fresh)
            kept += fresh
            if len(kept) >= BLOCK_BYTES:
                yield bytes(kept)
                kept.clear()
            pending = decompressor.unconsumed_tail
        at += len(piece)
    yield bytes(kept)
    return at


def _decompressor() -> Any:
    try:
        from isal import isal_zlib  # three times as fast as zlib

        return isal_zlib.decompressobj(wbits=_GZIP_CONTAINER)
    except ImportError:
        return zlib.decompressobj(_GZIP_CONTAINER)


def _errors() -> tuple[type[Exception], ...]:
    try:
        from isal import isal_zlib

        return zlib.error, cast(type[Exception], isal_zlib.error)
    except ImportError:
        return (zlib.error,)


def _unzstd(path: Path, file: BinaryIO, losses: Losses) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError as error:
        what = "is compressed with zstd; to read it: pip install zstandard"
        raise TraceError(path, what) from error
    reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    try:
        while block := reader.read(BLOCK_BYTES):
            yield block
    except zstandard.ZstdError as error:
        losses.add(f"compressed data damaged: {error}")
