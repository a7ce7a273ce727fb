"""Drives torch.profiler over one capture, on the training thread, and leaves the raw trace on local disk."""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, time_ns
from typing import Any

from autoprof.agent import forked, options
from autoprof.agent.identity import Identity, has_process_group, versions
from autoprof.agent.plan import Action, Capture
from autoprof.settings import ACTIVITY_NAMES, Settings, describe


class CannotRecord(Exception):
    """This capture cannot be recorded; the message says why in one line."""


class _Driving(threading.local):
    """Whether this thread is inside torch's profiler on our behalf: hooks on it then look away."""

    ours = False


driving = _Driving()


@contextmanager
def drive() -> Iterator[None]:
    """Use torch's profiler on our behalf, unseen by our hooks and by dispatch modes of the script's own."""
    import torch

    driving.ours = True
    try:
        if torch._C._len_torch_dispatch_stack():
            with torch.utils._python_dispatch._disable_current_modes():
                yield
        else:
            yield
    finally:
        driving.ours = False


class _ThreadToken(threading.local):
    """One object per thread. A thread's number will not do: the next thread may get it again."""

    def __init__(self) -> None:
        self.token = object()


_this_thread = _ThreadToken()


@dataclass
class RawTrace:
    """What a capture leaves for the finisher."""

    path: Path
    """The JSON as torch wrote it, in the scratch folder."""
    capture: Capture
    first: int
    """First step recorded whole; later than planned where the capture began late."""
    last: int
    """Last step recorded whole; before ``first`` if none was."""
    partial: bool
    labels: dict[int, str]
    """What the ranges of some steps are to be called: readers must not take them for whole single steps."""
    step_source: str
    """What ended the steps, as the clock names it."""
    time_ns: int
    raw_bytes: int
    """Size of the JSON as torch wrote it."""
    step_s: float | None
    """Median seconds of the whole steps recorded."""
    usual_step_s: float | None
    """Median seconds of the latest steps without a profiler."""
    start_s: float
    """Seconds the training thread was blocked when the recording began."""
    stop_s: float
    """Seconds the training thread was blocked when it ended, writing included where it did that."""
    saving: forked.ForkedSave | None = None
    """What writes the JSON, where that is a child of this process."""
    saved_in_child: bool = False
    not_forked: str = ""
    """Why a child that was asked for did not write it."""

    def settle(self) -> None:
        """See to it that the JSON is there, whole. On the finisher.

        Raises:
            OSError: torch could not write it.
        """
        if self.saving is not None:
            try:
                self.saved_in_child = self.saving.wait()
            finally:
                _release(self.saving.profile)
                self.saving = None
        if not self.path.is_file():  # torch logs a failed export and goes on
            raise OSError(f"torch could not write {self.path}")
        self.raw_bytes = self.path.stat().st_size


class Recorder:
    """One capture of one rank: made at its warmup, dropped after it."""

    def __init__(self, capture: Capture, settings: Settings, identity: Identity) -> None:
        self.capture = capture
        self._token = _this_thread.token
        self._thread = threading.current_thread()
        self._settings = settings
        self._identity = identity
        self._profile: Any = None
        self.step = -1
        """The step under way, as far as the recorder has been told."""
        self._first = capture.first
        self._begun_late = False
        self._labels: dict[int, str] = {}
        self._step_began_at = 0.0  # where the profiler was neither started nor stopped in that step
        self._steps_s: deque[float] = deque(maxlen=64)
        self._start_s = 0.0
        self._began_at = 0.0

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread began the recording: no other can stop it and keep what it has."""
        return self._token is _this_thread.token

    @property
    def is_orphaned(self) -> bool:
        """Whether the thread that began the recording has ended."""
        return not self.is_mine and not self._thread.is_alive()

    @property
    def lasted_s(self) -> float:
        """Seconds since the warmup began."""
        return perf_counter() - self._began_at

    @property
    def recording(self) -> bool:
        """Whether the step under way is being kept."""
        return self.step >= self._first

    def start(self, step: int, *, late: bool = False) -> None:
        """Start with ``step``, which may lie anywhere in the capture and, if ``late``, is under way already.

        Raises:
            CannotRecord: none of the activities is there.
        """
        import torch

        began = self._began_at = perf_counter()
        self.step = step
        self._first = max(step, self.capture.first)
        self._begun_late = late and step == self._first
        self._profile = torch.profiler.profile(
            activities=[getattr(torch.profiler.ProfilerActivity, name) for name in self._activities()],
            # torch asks once for step 0 when the object is made, before `step_num` can be set.
            schedule=lambda number: self._torch_action(number or step),
            **options.arguments(self._settings),
        )
        self._profile.step_num = step
        self._preset()
        with drive():
            self._profile.start()
        self._start_s += perf_counter() - began

    def advance(self, step: int) -> None:
        """Begin ``step``, which lies in the capture; the ones before it have ended."""
        began = perf_counter()
        opens = self.step < self._first <= step
        if opens:
            self._first = step
            if has_process_group():
                # torch knows more about the group than the preset does; it may have come up since.
                self._profile.preset_metadata.pop("distributedInfo", None)
        else:
            self._label(step)
            self._note_duration(began)
        self._profile.step_num = step - 1
        with drive():
            self._profile.step()
        if opens:
            self._start_s += perf_counter() - began
        else:
            self._step_began_at = perf_counter()
        self.step = step

    def _note_duration(self, now: float) -> None:
        if self._step_began_at and self.recording:
            self._steps_s.append(now - self._step_began_at)

    def _label(self, step: int, *, cut: bool = False) -> None:
        """Close the range of the step under way, all before ``step`` having ended."""
        notes = []
        if self._begun_late and self.step == self._first:
            notes.append("begun late")
        if cut:
            notes.append("cut short")
        last = max(self.step, step - 1)
        if notes or last > self.step:
            span = f"step {self.step}" if last == self.step else f"steps {self.step}-{last}"
            self._labels[self.step] = " ".join([span, *(f"({note})" for note in notes)])

    def stop(
        self, step: int, *, scratch: Path, whole: bool, step_source: str, usual_step_s: float | None
    ) -> RawTrace | None:
        """Stop while ``step`` is the step under way and write the raw trace into ``scratch``.

        ``whole`` says that ``step`` comes after the capture, and nothing of it was recorded;
        ``usual_step_s`` is what steps took before the capture, seconds. Returns ``None``
        where nothing had been recorded yet. Whether torch could write shows in :meth:`RawTrace.settle`.
        """
        began = perf_counter()
        profile, self._profile = self._profile, None
        recorded = self.step >= self._first
        self._label(step, cut=not whole and step == self.step)
        if recorded and step > self.step:
            self._note_duration(began)
        raw = RawTrace(
            path=scratch,
            capture=self.capture,
            first=self._first + self._begun_late,
            last=step - 1,
            partial=not whole or bool(self._labels) or self._first > self.capture.first,
            labels=self._labels,
            step_source=step_source,
            time_ns=0,
            raw_bytes=0,
            step_s=median(self._steps_s, at_least=2),
            usual_step_s=usual_step_s,
            start_s=self._start_s,
            stop_s=0.0,
        )
        try:
            try:
                if recorded:
                    profile.add_metadata_json("autoprof", json.dumps(self._metadata(raw)))
            finally:
                with drive():
                    profile.stop()
            if not recorded:
                return None
            raw.time_ns = time_ns()
            raw.path = scratch / f"autoprof-{self._identity.pid}-{raw.time_ns}.json"
            self._save(profile, raw)
        finally:
            if raw.saving is None:
                _release(profile)
        raw.stop_s = perf_counter() - began
        return raw

    def _save(self, profile: Any, raw: RawTrace) -> None:
        if self._settings.fork_save:
            raw.not_forked = forked.why_not()
            if not raw.not_forked:
                try:
                    raw.saving = forked.ForkedSave(profile, raw.path)
                    return
                except OSError as error:
                    raw.not_forked = f"no process could be forked: {error.strerror or error}"
        profile.export_chrome_trace(str(raw.path))

    def abandon(self) -> None:
        """Stop from another thread than the one that recorded: nothing comes of it, but nothing runs on.

        A profiler that still runs when the interpreter ends can crash it.
        """
        profile, self._profile = self._profile, None
        if profile is None:
            return
        with drive():
            profile.stop()
        _release(profile)

    def _torch_action(self, step: int) -> Any:
        from torch.profiler import ProfilerAction

        return {
            Action.IDLE: ProfilerAction.NONE,
            Action.WARMUP: ProfilerAction.WARMUP,
            Action.RECORD: ProfilerAction.RECORD,
            Action.SAVE: ProfilerAction.RECORD_AND_SAVE,
        }[self.capture.action(step)]

    def _activities(self) -> list[str]:
        present, _ = present_activities(self._settings)
        if not present:
            raise CannotRecord("none of the activities asked for exists on this machine")
        return [torch_activity(name) for name in present]

    def _preset(self) -> None:
        if not has_process_group():
            info = {"rank": self._identity.rank, "world_size": self._identity.world_size}
            self._profile.preset_metadata_json("distributedInfo", json.dumps(info))

    def _metadata(self, raw: RawTrace) -> dict[str, Any]:
        me = self._identity
        return {
            "run_id": me.run_id,
            "rank": me.rank,
            "world_size": me.world_size,
            "local_rank": me.local_rank,
            "node": me.node,
            "host": me.host,
            "pid": me.pid,
            "first_step": raw.first,
            "last_step": raw.last,
            "planned_steps": [raw.capture.first, raw.capture.last],
            "partial": raw.partial,
            "step_source": raw.step_source,
            "usual_step_s": raw.usual_step_s and round(raw.usual_step_s, 6),
            "settings": describe(self._settings),
            "versions": versions(),
        }


def median(values: Collection[float], *, at_least: int) -> float | None:
    """Return the median of ``at_least`` so many; the ``statistics`` module takes 10 ms to import."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if len(ordered) >= at_least else None


def _release(profile: Any) -> None:
    """Break torch's reference cycles: where a job switches the garbage collector off they would stay."""
    profile.action_map = {}
    profile.schedule = None
    profile.profiler = None


def torch_activity(name: str) -> str:
    """Return torch's attribute name of an activity: ``cpu`` is ``ProfilerActivity.CPU``."""
    return "PrivateUse1" if name == "privateuse1" else name.upper()


def present_activities(settings: Settings) -> tuple[list[str], list[str]]:
    """Return the activities to record and those that were asked for and are absent."""
    import torch

    supported = {activity.name.lower() for activity in torch.profiler.supported_activities()}
    present = [name for name in ACTIVITY_NAMES if name in supported and _has_device(name)]
    if not settings.activities:
        return present, []
    return (
        [name for name in settings.activities if name in present],
        [name for name in settings.activities if name not in present],
    )


def _has_device(name: str) -> bool:
    """Say whether the device is there: a CUDA build of torch lists CUDA on a machine without a GPU."""
    import torch

    if name == "cpu":
        return True
    if name == "privateuse1":
        name = torch.utils.backend_registration._get_privateuse1_backend_name()
    backend = getattr(torch, name, None)
    available = getattr(backend, "is_available", None)
    return bool(available and available())


def scratch_path(settings: Settings) -> Path:
    """Return where the node-local folder for raw traces is or will be."""
    import tempfile

    return Path(settings.scratch_dir or tempfile.gettempdir())


def scratch_folder(settings: Settings) -> Path:
    """Return the node-local folder for raw traces."""
    folder = scratch_path(settings)
    os.makedirs(folder, exist_ok=True)
    return folder
