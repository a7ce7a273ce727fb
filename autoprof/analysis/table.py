"""The events of one trace as columns, which is all that the analyses see of it."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from autoprof.analysis.errors import Losses

Int64s: TypeAlias = npt.NDArray[np.int64]
Float64s: TypeAlias = npt.NDArray[np.float64]
Int32s: TypeAlias = npt.NDArray[np.int32]
Bools: TypeAlias = npt.NDArray[np.bool_]

# Old exporters (before 2022) wrote `Kernel`, `Memcpy`, `Runtime`; compared in lower case.
DEVICE_CATEGORIES = frozenset(
    {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "concurrent_kernel", "mtia_ccp_events"}
)
RUNTIME_CATEGORIES = frozenset(
    {"cuda_runtime", "cuda_driver", "runtime", "driver", "xpu_runtime", "mtia_runtime"}
)
OPERATOR_CATEGORIES = frozenset({"cpu_op", "operator"})
ANNOTATION_CATEGORIES = frozenset({"user_annotation", "cpu_user_annotation"})

_STEP = re.compile(r"ProfilerStep#(\d+)")
_RANK_IN_NAME = re.compile(r"rank[-_ ]?(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Collective:
    """What the exporter wrote about one kind of collective (torch: ``ParamCommsUtils``); None is unknown."""

    name: str | None
    group: str | None
    elements: int | None
    dtype: str | None


@dataclass
class Header:
    """What a trace says about itself.

    ``base_ns`` is added to every time to get Unix time in nanoseconds; 0 where times are absolute already
    or the exporter did not say. ``autoprof`` is the block that this product writes; empty in other traces.
    """

    rank: int | None
    world_size: int | None
    host: str | None
    base_ns: int
    trace_name: str | None
    device_properties: list[dict[str, Any]]
    distributed: dict[str, Any]
    autoprof: dict[str, Any]

    @classmethod
    def of(cls, document: dict[str, Any], path: Path) -> Header:
        """Read the fields of a trace's outer object. The rank may also come from the file's name."""
        distributed = _object(document.get("distributedInfo"))
        ours = _object(document.get("autoprof"))
        rank = _count(distributed.get("rank"))
        if rank is None:
            rank = _count(ours.get("rank"))
        if rank is None and (match := _RANK_IN_NAME.search(path.name)):
            rank = int(match[1][:9])
        world_size = _count(distributed.get("world_size"))
        base_ns = _count(document.get("baseTimeNanoseconds"))
        properties = document.get("deviceProperties")
        host, name = document.get("host_name"), document.get("traceName")
        return cls(
            rank=rank,
            world_size=_count(ours.get("world_size")) if world_size is None else world_size,
            host=host if isinstance(host, str) else None,
            base_ns=base_ns if base_ns is not None and base_ns < 2**62 else 0,
            trace_name=name if isinstance(name, str) else None,
            device_properties=[item for item in properties if isinstance(item, dict)]
            if isinstance(properties, list)
            else [],
            distributed=distributed,
            autoprof=ours,
        )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    return int(value) if isinstance(value, int | float) and 0 <= value < 2**63 else None


@dataclass
class EventTable:
    """The complete events of one trace, sorted by start; of equal starts the longer comes first.

    All columns have the shape (n,). ``ts_ns`` and ``dur_ns`` are nanoseconds, ``ts_ns`` counted from
    ``header.base_ns`` and ``dur_ns`` never negative. ``name``, ``category``, ``pid`` and ``tid`` are indices
    into ``names``, ``categories``, ``pids`` and ``tids``. In ``correlation``, ``stream``, ``device``,
    ``external_id`` and ``size_bytes``, -1 means that the event has none; ``collective`` is an index
    into ``collectives`` or -1.
    """

    path: Path
    header: Header
    ts_ns: Int64s
    dur_ns: Int64s
    name: Int32s
    category: Int32s
    pid: Int32s
    tid: Int32s
    correlation: Int64s
    stream: Int64s
    device: Int64s
    external_id: Int64s
    size_bytes: Int64s
    collective: Int32s
    names: list[str]
    categories: list[str]
    pids: list[int | str]
    tids: list[int | str]
    collectives: list[Collective]
    process_names: dict[int | str, str] = field(default_factory=dict)
    process_labels: dict[int | str, str] = field(default_factory=dict)
    thread_names: dict[tuple[int | str, int | str], str] = field(default_factory=dict)
    other_events: dict[str, int] = field(default_factory=dict)
    losses: Losses = field(default_factory=Losses)

    def __len__(self) -> int:
        return len(self.ts_ns)

    @property
    def end_ns(self) -> Int64s:
        """Return the ends, shape (n,), nanoseconds."""
        return self.ts_ns + self.dur_ns

    def in_categories(self, categories: frozenset[str]) -> Bools:
        """Return which events are of these categories (lower case), shape (n,)."""
        wanted = np.array([name.lower() in categories for name in self.categories] or [False], dtype=np.bool_)
        return wanted[self.category]

    def named(self, pattern: re.Pattern[str]) -> Bools:
        """Return which events have a name that ``pattern`` matches at its beginning, shape (n,)."""
        wanted = np.array([bool(pattern.match(name)) for name in self.names] or [False], dtype=np.bool_)
        return wanted[self.name]

    def on_device(self) -> Bools:
        """Return which events ran on an accelerator, shape (n,)."""
        return self.in_categories(DEVICE_CATEGORIES)

    def on_threads_of(self, steps: list[Step]) -> Bools:
        """Return which events are on a thread that steps are marked on, shape (n,)."""
        result = np.zeros(len(self), dtype=np.bool_)
        for pid, tid in {(step.pid, step.tid) for step in steps}:
            result |= (self.pid == pid) & (self.tid == tid)
        return result

    @functools.cached_property
    def steps(self) -> list[Step]:
        """Return the whole steps by number.

        A step that the recording cut short is not one: this product names it ``step N (cut short)``, and
        in traces of others it is a last range that is far shorter than the rest and holds no event.
        """
        rows = np.flatnonzero(self.in_categories(ANNOTATION_CATEGORIES) & self.named(_STEP))
        found: dict[int, Step] = {}
        for row in rows.tolist():
            match = _STEP.fullmatch(self.names[self.name[row]])
            if not match or len(match[1]) > 18:
                continue
            step = Step(
                int(match[1]),
                int(self.ts_ns[row]),
                int(self.dur_ns[row]),
                int(self.pid[row]),
                int(self.tid[row]),
            )
            known = found.get(step.number)
            if known is None or known.dur_ns < step.dur_ns:
                found[step.number] = step
        steps = [found[number] for number in sorted(found)]
        if len(steps) > 1 and self._is_phantom(steps[-1], steps[:-1]):
            self.losses.add(f"range of step {steps[-1].number}, which had only begun: not counted as a step")
            steps.pop()
        return steps

    def _is_phantom(self, last: Step, earlier: list[Step]) -> bool:
        shortest = min(step.dur_ns for step in earlier)
        if last.dur_ns * 50 > shortest:
            return False
        within = (self.ts_ns >= last.start_ns) & (self.ts_ns < last.start_ns + last.dur_ns)
        return int(np.count_nonzero(within & self.in_categories(OPERATOR_CATEGORIES))) == 0


@dataclass(frozen=True)
class Step:
    """One recorded step. Times are nanoseconds; ``pid`` and ``tid`` are the table's indices of its thread."""

    number: int
    start_ns: int
    dur_ns: int
    pid: int
    tid: int

    @property
    def end_ns(self) -> int:
        """Return where the step ends."""
        return self.start_ns + self.dur_ns


def windows(steps: list[Step]) -> tuple[Int64s, Int64s]:
    """Return where the steps begin and end, nanoseconds, both of the shape (len(steps),)."""
    begins = np.array([step.start_ns for step in steps], dtype=np.int64)
    ends = np.array([step.end_ns for step in steps], dtype=np.int64)
    return begins, ends
