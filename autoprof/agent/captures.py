"""Follows the plan on the thread that trains: begins each capture, ends it and hands on what it left."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

from autoprof.agent import room
from autoprof.agent.artifacts import chrome_trace
from autoprof.agent.finisher import Finisher
from autoprof.agent.guard import entry
from autoprof.agent.journal import Journal
from autoprof.agent.lifecycle import AbruptEnds
from autoprof.agent.plan import CapturePlan
from autoprof.agent.recorder import CannotRecord, RawTrace, Recorder, median
from autoprof.run import layout
from autoprof.settings import Settings

NEVER = sys.maxsize


class Captures:
    """The captures of one rank, past, present and to come.

    ``script_profilers`` holds the profilers of the script's own that are running, ``idle_steps`` the seconds
    that the latest steps took without any.
    """

    def __init__(
        self,
        settings: Settings,
        plan: CapturePlan,
        journal: Journal,
        finisher: Finisher,
        ends: AbruptEnds,
        scratch: Path,
        script_profilers: weakref.WeakSet[Any],
        idle_steps: Collection[float],
    ) -> None:
        self.attention = 0
        """The step number from which :meth:`follow` has something to do."""
        self.overdue = False
        """Whether steps have ended on another thread than the one that records, which has yet to follow."""
        self.have_profiled = False
        self._settings = settings
        self._plan = plan
        self._journal = journal
        self._finisher = finisher
        self._ends = ends
        self._scratch = scratch
        self._script_profilers = script_profilers
        self._recorder: Recorder | None = None
        self._dealt_with = 0  # steps before this one need no further thought
        self._largest_raw_bytes = 0
        self._idle_steps = idle_steps
        self._folders: set[tuple[int, int]] = set()  # of captures that have left a trace

    @property
    def running(self) -> bool:
        """Whether a capture is under way, its warmup included."""
        return self._recorder is not None

    @property
    def recording(self) -> bool:
        """Whether the step under way is being kept."""
        return self._recorder is not None and self._recorder.recording

    @property
    def mine_to_end(self) -> bool:
        """Whether the calling thread may end what runs: only the one that began it can keep it."""
        current = self._recorder
        return current is None or current.is_mine or current.is_orphaned

    def follow(self, step: int, *, late: bool = False, ending: bool = False) -> None:
        """Do what the plan says now that ``step`` has begun.

        ``late`` says that it began before anybody looked, ``ending`` that nothing more is to be begun.
        """
        current = self._recorder
        self.overdue = not self.mine_to_end
        if current is not None:
            if self.overdue:
                return
            too_long = 0 < self._settings.max_seconds < current.lasted_s
            if current.is_mine and not ending and not too_long and step <= current.capture.last:
                current.advance(step)
                return
            whole = step > current.capture.last
            if too_long and not whole:
                limit = f"{self._settings.max_seconds:g} s (ACCELPROF_MAX_SECONDS)"
                self._journal.missed(f"{current.capture} cut short before step {step}, after {limit}")
            self._end(step, whole=whole)
            self._dealt_with = current.capture.last + 1
        if ending:
            return
        self._begin(step, late=late)
        if self._recorder is None and self._ends.held:
            if self._finisher.idle and not self._ends.waiting:
                self._ends.release()
            else:
                self.attention = step + 1

    def interrupt(self) -> None:
        """End a capture in the middle of its step; the plan is looked at again after it."""
        current = self._recorder
        if current is not None:
            self.attention = 0  # at the next step
            self._end(current.step, whole=False)

    def start_over(self) -> None:
        """Take the plan from its beginning: steps are counted from 0 again."""
        self.interrupt()
        self._dealt_with = self.attention = 0

    def abandon(self) -> None:
        """Drop a capture after a fault. One that another thread runs is left to that thread."""
        current = self._recorder
        if current is None or not current.is_mine:
            return
        self._recorder = None
        current.abandon()

    def _begin(self, step: int, *, late: bool) -> None:
        self._note_passed(step)
        capture = self._plan.next_capture(max(step, self._dealt_with))
        if capture is None:
            self.attention = NEVER
            return
        self.attention = max(step + 1, capture.warmup_from)
        if step < capture.warmup_from:
            return
        if self._finisher.is_full:
            self._give_up(capture.last, f"{capture} not recorded: earlier traces are still being written")
            return
        if self._script_is_profiling():
            self._journal.stood_aside()
            if step == capture.last:
                self._journal.missed(f"{capture} not whole: the script was profiling itself", silently=True)
                self._dealt_with = capture.last + 1
            return
        if lack := self._lacking():
            self._give_up(capture.last, f"{capture} not recorded: {lack}")
            return
        self._ends.hold()
        fresh = Recorder(capture, self._settings, self._journal.identity)
        try:
            fresh.start(step, late=late)
        except CannotRecord as reason:
            self._give_up(capture.last, f"{capture} not recorded: {reason}")
            return
        self._recorder = fresh
        self.have_profiled = True

    def _lacking(self) -> str:
        most = self._settings.max_bytes
        if 0 < most <= self._journal.bytes_kept:
            return f"this rank has left {self._journal.bytes_kept:,} bytes, ACCELPROF_MAX_BYTES={most:,}"
        return room.lacking(self._scratch, self._largest_raw_bytes)

    def _note_passed(self, step: int) -> None:
        """Note captures that ended before it was known that their steps were steps."""
        passed = self._plan.next_capture(self._dealt_with)
        while passed is not None and passed.last < step:
            self._give_up(passed.last, f"{passed} not recorded: over before it was known what a step is")
            passed = self._plan.next_capture(self._dealt_with)

    def _give_up(self, last_step: int, why: str) -> None:
        self._journal.missed(why)
        self._dealt_with = self.attention = last_step + 1

    def _script_is_profiling(self) -> bool:
        import torch

        # The second question finds a profiler that started before the hooks were in place.
        return bool(self._script_profilers) or torch.autograd._profiler_enabled()

    def _end(self, step: int, *, whole: bool) -> None:
        """Stop the recorder while ``step`` is under way and hand what it has to the finisher."""
        current, self._recorder = self._recorder, None
        if current is None:
            return
        journal = self._journal
        if not current.is_mine:
            current.abandon()
            journal.missed(f"{current.capture} lost: it had to stop on another thread than it began on")
            return
        try:
            raw = current.stop(
                step,
                scratch=self._scratch,
                whole=whole,
                step_source=journal.step_source,
                usual_step_s=median(self._idle_steps, at_least=4),
            )
        except BaseException:  # Ctrl-C, or what a signal handler of the script raises
            journal.missed(f"{current.capture} lost: interrupted while it was being saved")
            raise
        if raw is None:
            journal.missed(
                f"{current.capture} not recorded: stopped at step {step}, in warmup", silently=True
            )
        else:
            self._finisher.submit(partial(self._finish, raw))

    @entry
    def _finish(self, raw: RawTrace) -> None:
        """On the finisher: put one trace in place."""
        try:
            raw.settle()
        except OSError as error:
            self._journal.missed(f"{raw.capture} lost: {error}")
            return
        self._largest_raw_bytes = max(self._largest_raw_bytes, raw.raw_bytes)
        me = self._journal.identity
        gzip = self._settings.compress == "gzip"
        folder = self._folder(raw)
        final = folder / layout.trace_name(me.rank, me.host, me.pid, raw.time_ns, gzip=gzip)
        try:
            written = chrome_trace.write(raw.path, final, gzip=gzip, labels=raw.labels)
        except (OSError, ValueError) as error:
            self._journal.missed(
                f"{raw.capture} could not be put into {folder}: {error}; torch's file is {raw.path}"
            )
            return
        self._journal.recorded(raw, written)
        if self._settings.keep:
            self._journal.prune(self._settings.keep)
        self._journal.write_or_say()
        self._journal.upload()

    def _folder(self, raw: RawTrace) -> Path:
        """Return a folder in which this rank has no trace yet: readers take one per rank and folder.

        What follows an interruption is named by its own first step.
        """
        first, again = raw.capture.first, 1
        if (first, again) in self._folders:
            first = raw.first
        while (first, again) in self._folders:
            again += 1
        self._folders.add((first, again))
        return layout.capture_dir(self._journal.run_dir, first, again)
