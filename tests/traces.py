"""Small Chrome traces for tests, and where the real ones are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

SHARED = Path(os.environ.get("AUTOPROF_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def slice_(name: str, ts: float, dur: float, **fields: Any) -> dict[str, Any]:
    """One complete event; ``ts`` and ``dur`` are microseconds."""
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur} | fields


def step(number: int, ts: float, dur: float) -> dict[str, Any]:
    return slice_(f"ProfilerStep#{number}", ts, dur, cat="user_annotation")


def kernel(name: str, ts: float, dur: float, stream: int = 7, **fields: Any) -> dict[str, Any]:
    args = {"device": 0, "stream": stream} | fields.pop("args", {})
    return slice_(name, ts, dur, cat="kernel", pid=0, tid=stream, args=args) | fields


def document(events: list[dict[str, Any]], rank: int | None = 0, **fields: Any) -> dict[str, Any]:
    distributed = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 2}}
    return {"schemaVersion": 1, **distributed, "displayTimeUnit": "ms", "traceEvents": events} | fields
