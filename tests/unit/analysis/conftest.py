"""Traces to read: small ones made here, and those under ``../shared`` where that folder exists."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from traces import SHARED


@pytest.fixture
def write(tmp_path):
    """Write a trace (an object, text or bytes) and return its path; gzip where the name says so."""

    def write_(content: Any, name: str = "trace.json") -> Path:
        if not isinstance(content, str | bytes):
            content = json.dumps(content)
        data = content.encode() if isinstance(content, str) else content
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write_


@pytest.fixture
def real():
    """Return the path of a real trace, or skip."""

    def real_(name: str) -> Path:
        path = SHARED / "traces" / name
        if not path.exists():
            pytest.skip(f"no {path}")
        return path

    return real_


@pytest.fixture
def case():
    """Return the folder of a damaged trace, or skip."""

    def case_(name: str) -> Path:
        path = SHARED / "cases" / "inputs" / name
        if not path.exists():
            pytest.skip(f"no {path}")
        return path

    return case_
