"""The agent of one process: takes the hooks' events, asks clock and plan, drives recorder and finisher."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from autoprof.agent import guard, identity, lifecycle, recorder
from autoprof.agent.artifacts import chrome_trace
from autoprof.agent.clock import StepClock
from autoprof.agent.finisher import Finisher
from autoprof.agent.guard import entry, say
from autoprof.agent.journal import Journal
from autoprof.agent.plan import CapturePlan
from autoprof.agent.recorder import CannotRecord, RawTrace, Recorder
from autoprof.run import layout, store
from autoprof.settings import Resolved

_NEVER = sys.maxsize
_STEP_PATIENCE_S = 5.0
"""How long the end of the process waits for a thread that trains to end its step."""


class Agent:
    """One process's agent. It sleeps until an Accelerator has been built and is put to work.

    ``optimizers`` returns how many optimizers exist in the process.
    """

    def __init__(self, resolved: Resolved, optimizers: Callable[[], int]) -> None:
        self.live = True
        """False once retired: every hook then passes straight through."""
        self.recording = False
        """Whether the step under way is being kept, for hooks that add ranges."""
        self._settings = resolved.settings
        self._problems = resolved.problems
        self._plan = CapturePlan(resolved.settings)
        self._clock = StepClock(resolved.settings.step_on, optimizers=optimizers)
        self._finisher = Finisher()
        self._journal: Journal | None = None  # none while asleep
        self._scratch = Path()
        self._recorder: Recorder | None = None
        self._attention = _NEVER  # the step number from which something has to be done
        self._abrupt_ends = lifecycle.AbruptEnds(self.close, busy=lambda: self._turning)
        self._turning = False
        self._retiring = False
        self._closing = False
        self._recorder_gone = threading.Event()
        self._waking = threading.Lock()
        self._has_profiled = False
        self._step_source_said = False
        self._foreign_profilers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._begun: set[int] = set()  # first steps of captures that have left a trace
        guard.on_fault(self._fault)

    # Events, each sent by a hook on the thread that trains.

    @entry
    def accelerator_built(self) -> None:
        """An ``Accelerator`` has been constructed."""
        if not self.live or self._journal is not None:
            return
        if self._problems:
            self.live = False
            if identity.environment_rank(os.environ) == 0:
                for problem in self._problems:
                    say(f"{problem}. This job runs unprofiled")
            return
        lifecycle.watch(self.close, self._forked)
        if self._settings.strict:
            self.live = False  # should the check end the job
            self._check_strictly()
            self.live = True

    @entry
    def backward(self, synced: bool) -> None:
        """``Accelerator.backward`` has returned."""
        if (self._journal is not None or self._wake()) and self._clock.backward(synced=synced):
            self._stepped()

    @entry
    def optimizer_step(self, key: int, synced: bool, skipped: bool, seconds: float) -> None:
        """A prepared optimizer's ``step``, or the engine that stands in for it, has returned."""
        if self._journal is None and not self._wake():
            return
        if self._clock.optimizer_step(key, synced=synced, skipped=skipped, seconds=seconds):
            self._stepped()

    @entry
    def foreign_step(self, key: int, seconds: float) -> None:
        """The ``step`` of an optimizer that was never prepared has returned."""
        if (self._journal is not None or self._wake()) and self._clock.foreign_step(key, seconds=seconds):
            self._stepped()

    @entry
    def step_compiled(self) -> None:
        """Dynamo has taken an optimizer's ``step`` into a graph."""
        self._clock.step_compiled = True

    @entry
    def batch_wanted(self, key: int) -> None:
        """A loop asks a prepared dataloader for its next batch."""
        if self._journal is not None and self._clock.batch_wanted(key):
            self._stepped()

    @entry
    def batch(self, key: int, waited_s: float) -> None:
        """A prepared dataloader hands out a batch."""
        if self._journal is not None or self._wake():
            self._clock.batch(key, waited_s=waited_s)

    @entry
    def profiler_starting(self, profiler: Any) -> None:
        """A profiler of the script's own is about to start. torch runs one at a time: ours makes way."""
        self._foreign_profilers.add(profiler)
        if self._recorder is not None and self._journal is not None:
            self._end_capture(self._journal, whole=False)
            self._attention = 0

    @entry
    def profiler_stopped(self, profiler: Any) -> None:
        """A profiler of the script's own has stopped."""
        self._foreign_profilers.discard(profiler)

    # Waking up.

    def _wake(self) -> bool:
        """Begin to work: there is an Accelerator and this is its first batch, backward or step."""
        state = sys.modules.get("accelerate.state")
        if not self.live or state is None or not state.AcceleratorState._shared_state:
            return False
        with self._waking:  # two threads may train
            return self._journal is not None or self._wake_once()

    def _wake_once(self) -> bool:
        lifecycle.watch(self.close, self._forked)
        settings = self._settings
        me = identity.identify(os.environ, settings.run_id)
        run_dir = Path(settings.output_dir).absolute() / me.run_id
        journal = Journal(settings, self._plan, self._clock, me, run_dir)
        self._journal = journal
        try:
            self._scratch = recorder.scratch_folder(settings)
        except OSError as error:
            self.live = False
            if journal.speaks:
                folder, reason = settings.scratch_dir, error.strerror or error
                say(f"ACCELPROF_SCRATCH_DIR={folder!r} cannot be written: {reason}. This job runs unprofiled")
            return False
        present, absent = recorder.present_activities(settings)
        if absent and journal.speaks:
            say(f"{_lacking(settings.activities, absent)}; recording {','.join(present) or 'nothing'}")
        if not present:
            self.live = False
            return False
        self._finisher.submit(self._open_run)
        if settings.ranks.selects(me.rank, me.local_rank):
            self._attention = 0
            self._turn(journal)
        return True

    def _check_strictly(self) -> None:
        """End the job where the settings cannot be honoured here.

        Raises:
            SystemExit: with the reason; nothing has been trained yet.
        """
        _, absent = recorder.present_activities(self._settings)
        if absent:
            raise SystemExit(f"autoprof: {_lacking(self._settings.activities, absent)}")
        folder = Path(self._settings.output_dir).absolute()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe = store.temporary_name(folder / "probe")
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise SystemExit(f"autoprof: {_unusable(folder, error)}") from None

    @entry
    def _open_run(self) -> None:
        """On the finisher: make the run directory and say what will be recorded, or why nothing will."""
        journal = self._journal
        if journal is None:
            return
        try:
            journal.open()
        except OSError as error:
            if journal.speaks or (journal.identity.node > 0 and journal.identity.local_rank == 0):
                say(f"{_unusable(journal.run_dir.parent, error)}. This job runs unprofiled")
            self._retire()
        else:
            journal.announce_plan()

    # Steps.

    def _stepped(self) -> None:
        journal = self._journal
        if journal is None:
            return
        if self._clock.source != "optimizer" and not self._step_source_said:
            self._step_source_said = True
            if self._clock.source == "backward":
                journal.info(
                    "no optimizer steps through torch or Accelerate; counting backward passes as steps"
                )
            elif self._clock.step_compiled:
                journal.info("the optimizer steps inside compiled code; counting batches as steps")
        if self._clock.steps >= self._attention:
            self._turn(journal)

    def _turn(self, journal: Journal) -> None:
        """Do what the plan says at the start of the step that is now under way."""
        self._turning = True  # a signal may come in between: torch's profiler must not be re-entered
        try:
            self._follow_plan(journal)
        finally:
            self._turning = False
            self._abrupt_ends.catch_up()

    def _follow_plan(self, journal: Journal) -> None:
        step, current = self._clock.steps, self._recorder
        if current is not None:
            if not current.is_mine and not current.is_orphaned:
                return  # a profiler stops only on the thread that started it
            if current.is_mine and not self._retiring and not self._closing and step <= current.capture.last:
                current.advance(step)
                self.recording = current.recording
                return
            self._end_capture(journal, whole=step > current.capture.last)
        if self._closing:
            self._recorder_gone.set()
            return
        if self._retiring:
            self.live = False
            return
        self._begin_capture(journal, step)
        if self._recorder is None and self._abrupt_ends.held:
            if self._finisher.idle:
                self._abrupt_ends.release()
            else:
                self._attention = step + 1

    def _begin_capture(self, journal: Journal, step: int) -> None:
        capture = self._plan.next_capture(step)
        if capture is None:
            self._attention = _NEVER
            return
        if step < capture.warmup_from:
            self._attention = capture.warmup_from
            return
        self._attention = step + 1
        if self._finisher.is_full:
            self._attention = capture.last + 1
            journal.missed(f"{capture} not recorded: earlier traces are still being written")
            return
        if self._script_is_profiling():
            journal.stood_aside()
            if step == capture.last:
                journal.missed(f"{capture} not whole: the script was profiling itself", silently=True)
            return
        self._abrupt_ends.hold()
        fresh = Recorder(capture, self._settings, journal.identity)
        try:
            fresh.start(step)
        except CannotRecord as reason:
            self._attention = capture.last + 1
            journal.missed(f"{capture} not recorded: {reason}")
            return
        self._recorder = fresh
        self._has_profiled = True
        self.recording = fresh.recording

    def _script_is_profiling(self) -> bool:
        import torch

        # The second question finds a profiler that started before the hooks were in place.
        return bool(self._foreign_profilers) or torch.autograd._profiler_enabled()

    def _end_capture(self, journal: Journal, *, whole: bool) -> None:
        """Stop the recorder, if there is one, and hand what it has to the finisher."""
        current, self._recorder = self._recorder, None
        self.recording = False
        if current is None:
            return
        if not current.is_mine:
            current.abandon()
            journal.missed(f"{current.capture} lost: it had to stop on another thread than it began on")
            return
        step = self._clock.steps
        try:
            raw = current.stop(step=step, scratch=self._scratch, whole=whole)
        except OSError as error:
            journal.missed(f"{current.capture} lost: {error}")
            return
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
        journal = self._journal
        if journal is None:
            return
        me = journal.identity
        gzip = self._settings.compress == "gzip"
        # What follows an interruption is a capture of its own: readers take one trace per rank and folder.
        first = raw.first if raw.capture.first in self._begun else raw.capture.first
        self._begun.add(raw.capture.first)
        folder = layout.capture_dir(journal.run_dir, first)
        final = folder / layout.trace_name(me.rank, me.host, me.pid, raw.time_ns, gzip=gzip)
        try:
            written = chrome_trace.write(raw.path, final, gzip=gzip, cut_step=raw.cut_step)
        except (OSError, ValueError) as error:
            journal.missed(
                f"{raw.capture} could not be put into {folder}: {error}; torch's file is {raw.path}"
            )
            return
        journal.recorded(raw, written)
        _write(journal)

    # Ends.

    @entry
    def close(self) -> None:
        """The process ends: save what there is, wait for the finisher, say what happened."""
        journal = self._journal
        if journal is None:
            if self.live and identity.environment_rank(os.environ) == 0:
                say("nothing recorded: the Accelerator saw no batch, backward or optimizer step")
            return
        self._turning = True  # a SIGTERM now waits until everything is on disk
        try:
            if self.live:
                self._close_capture(journal)
        finally:
            self.live = False
            if not self._finisher.drain(self._settings.exit_timeout):
                say(
                    f"rank {journal.identity.rank}: traces were still being written after "
                    f"{self._settings.exit_timeout:g} s (ACCELPROF_EXIT_TIMEOUT); "
                    f"the rest is in {self._scratch}"
                )
            self._turning = False
            self._abrupt_ends.catch_up()

    def _close_capture(self, journal: Journal) -> None:
        if self._recorder is not None and not self._recorder.is_mine and not self._recorder.is_orphaned:
            # A thread still trains: at its next step it saves what only it can.
            self._closing, self._attention = True, 0
            self._recorder_gone.wait(min(self._settings.exit_timeout, _STEP_PATIENCE_S))
        self._end_capture(journal, whole=False)
        self._finisher.submit(self._close_run)

    @entry
    def _close_run(self) -> None:
        journal = self._journal
        if journal is None:
            return
        _write(journal)
        if not self._retiring:
            journal.say_outcome()

    def _retire(self) -> None:
        """Stop for good; where a capture is running, its own thread ends it at the next step."""
        self._retiring = True
        self._attention = 0
        if self._recorder is None and not self._turning:
            self.live = False

    def _fault(self, line: str, details: str) -> None:
        """Called by the guard, on any thread."""
        journal = self._journal
        if journal is not None:
            journal.fault(line, details)
        if self._retiring:  # one line is enough, and what follows a fault may be its doing
            self._drop_recorder()
            return
        self._retire()
        debug = self._settings.log_level == "debug"
        who = f"rank {journal.identity.rank}: " if journal else ""
        say(who + line + ("" if debug else "; ACCELPROF_LOG_LEVEL=debug tells more"))
        if debug:
            for detail in details.splitlines():
                say(detail)
        if journal is None:
            return
        current = self._recorder
        if current is not None and current.is_mine:
            try:
                self._turn(journal)
            finally:
                self._drop_recorder()
        self._finisher.submit(partial(_write, journal))

    def _drop_recorder(self) -> None:
        current = self._recorder
        if current is not None and not current.is_mine:
            return  # its own thread ends it at the next step
        self._recorder = None
        self.recording = self.live = False
        if current is not None:
            current.abandon()

    @entry
    def _forked(self) -> None:
        """In a forked child: one that was forked from a job at work is not a rank of it."""
        if self._journal is None:
            return
        self.live = False
        self.recording = False
        self._abrupt_ends.release()
        if self._has_profiled:
            lifecycle.skip_exit_handlers_of_libraries()
        if self._recorder is not None:
            import torch

            torch.autograd._disable_profiler()


def _write(journal: Journal) -> None:
    try:
        journal.write()
    except OSError as error:
        journal.missed(f"its record could not be written: {error}")


def _lacking(asked: tuple[str, ...], absent: list[str]) -> str:
    return f"ACCELPROF_ACTIVITIES={','.join(asked)!r} asks for {','.join(absent)}, which this machine lacks"


def _unusable(folder: Path, error: OSError) -> str:
    return f"ACCELPROF_OUTPUT_DIR={str(folder)!r} cannot be written: {error.strerror or error}"
