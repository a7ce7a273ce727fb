"""Files that a command leaves: whole or not at all, and never over something that is no file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from autoprof.analysis.errors import AnalysisError, TraceError
from autoprof.analysis.inputs import TraceInput
from autoprof.analysis.reader import read_trace
from autoprof.run.store import temporary_name


def check_output(output: Path, suffixes: Iterable[str], inputs: Iterable[TraceInput]) -> None:
    """Refuse an output that cannot be written or would replace something that was recorded.

    An earlier merge may be replaced.

    Raises:
        AnalysisError: with one line that says why.
    """
    if not output.name.endswith(tuple(suffixes)) or output.name.startswith("."):
        raise AnalysisError(f"{output} cannot be written: its name must end in {' or '.join(suffixes)}")
    if (output.exists() or output.is_symlink()) and not output.is_file():
        raise AnalysisError(f"{output} exists and is no file, so it is not replaced; name a file")
    if not output.parent.is_dir():
        raise AnalysisError(f"{output} cannot be written: there is no folder {output.parent}")
    for one in inputs:
        if is_same(one.path, output) and not _is_merged(one.path):
            raise AnalysisError(f"{output} is one of the traces to be read; name another file")


def is_same(path: Path, output: Path) -> bool:
    """Say whether both are the same file."""
    return output.exists() and path.exists() and output.samefile(path)


def _is_merged(path: Path) -> bool:
    try:
        return "merged" in read_trace(path).header.autoprof
    except TraceError:
        return False


@contextlib.contextmanager
def replacing(output: Path) -> Iterator[Path]:
    """Yield a temporary name beside ``output``, which takes its place when the block ends well."""
    temporary = temporary_name(output)
    try:
        yield temporary
        os.replace(temporary, output)
    finally:
        temporary.unlink(missing_ok=True)
