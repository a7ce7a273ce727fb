"""Traces to read: those under ``../shared`` where that folder exists."""

from __future__ import annotations

from pathlib import Path

import pytest
from traces import SHARED


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
