"""The agent of one process: takes the hooks' events, asks the clock, has the plan followed, ends in order."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from time import monotonic, time_ns
from typing import Any

from autoprof.agent import guard, identity, lifecycle, options, recorder, reporting, upload
from autoprof.agent.captures import NEVER, Captures
from autoprof.agent.clock import StepClock
from autoprof.agent.finisher import Finisher
from autoprof.agent.guard import entry, say
from autoprof.agent.journal import Journal
from autoprof.agent.plan import CapturePlan
from autoprof.agent.step_records import StepRecords
from autoprof.run import steps, store
from autoprof.settings import Resolved, is_url

_UPLOAD_RECORDS_S = 600.0
"""Between copies of the step records to a URL, where nothing else is copied meanwhile."""
_STEP_PATIENCE_S = 5.0
"""How long the end of the process waits for a thread that trains to end its step."""


class _State(Enum):
    """What the agent of a process is about."""

    ASLEEP = "no Accelerator has been put to work yet"
    AT_WORK = "counts steps and follows the plan"
    RETIRING = "after a fault: the thread that records ends its capture at its next step"
    CLOSING = "the process ends: the thread that records ends its capture at its next step"
    GONE = "every hook passes straight through"


class Agent:
    """One process's agent. It sleeps until an Accelerator has been built and is put to work.

    ``optimizers`` returns how many optimizers exist in the process.
    """

    def __init__(self, resolved: Resolved, optimizers: Callable[[], int]) -> None:
        self.live = True
        """False once gone: every hook then passes straight through."""
        self.recording = False
        """Whether the step under way is being kept, for hooks that add ranges."""
        self._settings = resolved.settings
        self._problems = resolved.problems
        self._state = _State.ASLEEP
        self._plan = CapturePlan(resolved.settings)
        self._clock = StepClock(resolved.settings.step_on, optimizers=optimizers)
        self._restarts = 0
        self._scratch = Path()
        self._finisher = Finisher()
        self._journal: Journal | None = None  # both come with waking up
        self._captures: Captures | None = None  # none in a rank that is not to record
        self._records: StepRecords | None = None
        self._upload_records_at = 0.0
        self._attention = 0  # as the captures have it; a plain number, since every step looks at it
        self._overdue = False  # in the same way
        self._busy_with_torch = False  # torch's profiler must not be re-entered from a signal handler
        self._abrupt_ends = lifecycle.AbruptEnds(self.close, busy=lambda: self._busy_with_torch)
        self._recorder_gone = threading.Event()
        self._waking = threading.Lock()
        self._step_source = ""  # the latest that was said
        self._idle_steps: deque[float] = deque(maxlen=64)
        self._script_profilers: weakref.WeakSet[Any] = weakref.WeakSet()
        guard.on_fault(self._fault)

    def retire(self) -> None:
        """Stop for good; where a capture is running, its own thread ends it at the next step."""
        if self._state is not _State.CLOSING:
            self._state = _State.RETIRING
        self._attention = 0
        if not self._busy_with_torch and (self._captures is None or not self._captures.running):
            self._go()

    def _go(self) -> None:
        self._state = _State.GONE
        self.live = self.recording = False

    # Events, each sent by a hook on the thread that trains.

    @entry
    def accelerator_built(self) -> None:
        """An ``Accelerator`` has been constructed."""
        if not self.live or self._journal is not None:
            return
        if self._problems:
            self._go()
            if identity.environment_rank(os.environ) == 0:
                for problem in self._problems:
                    say(f"{problem}. This job runs unprofiled")
            return
        lifecycle.watch(self.close, self._forked)
        if self._settings.strict:
            self.live = False  # should the check end the job
            self._check_strictly()
            self.live = True

    # These run in every step of a job, each inside an entry point of the hooks.

    def backward(self, synced: bool) -> None:
        """``Accelerator.backward`` has returned."""
        woke = self._journal is None
        if woke and not self._wake():
            return
        ended = self._clock.backward(synced)
        if ended or woke or self._overdue or self._clock.restarts != self._restarts:
            self._took(ended, late=not ended)

    def optimizer_step(
        self, key: int, synced: bool, skipped: bool, seconds: float, now: float | None = None
    ) -> None:
        """An optimizer's ``step``, or that of the engine in its place, has returned after ``seconds``.

        ``now`` is the time by ``time.perf_counter``.
        """
        woke = self._journal is None
        if woke and not self._wake():
            return
        clock = self._clock
        ended = clock.optimizer_step(key, synced, skipped, seconds, now)
        if not ended:
            if woke or self._overdue or clock.restarts != self._restarts:
                self._took(0, late=True)
        elif clock.steps < self._attention and clock.source == self._step_source:
            self._idle_steps.append(clock.wall_s)
            if self._records is not None:
                self._records.add(clock.parts, clock.begun_at)
        else:
            self._took(ended)

    @entry
    def step_compiled(self) -> None:
        """Dynamo has taken an optimizer's ``step`` into a graph."""
        self._clock.step_compiled = True

    def batch_wanted(self, key: int, evaluating: Callable[[], bool]) -> None:
        """A loop asks a prepared dataloader for its next batch; ``evaluating`` says whether it evaluates."""
        if self._journal is not None and (ended := self._clock.batch_wanted(key, evaluating=evaluating)):
            self._took(ended)

    def batch(self, key: int, waited_s: float, evaluating: Callable[[], bool]) -> None:
        """A prepared dataloader hands out a batch for which the loop waited ``waited_s``."""
        woke = self._journal is None
        if not woke or self._wake(waited_s):
            self._clock.batch(key, waited_s=waited_s, evaluating=evaluating)
            if woke or self._clock.restarts != self._restarts:
                self._took(0)

    @entry
    def profiler_starting(self, profiler: Any) -> None:
        """A profiler of the script's own is about to start. torch runs one at a time: ours makes way."""
        self._script_profilers.add(profiler)
        captures = self._captures
        if captures is not None and captures.running:
            with self._torch(captures):
                captures.interrupt()

    @entry
    def profiler_stopped(self, profiler: Any) -> None:
        """A profiler of the script's own has stopped."""
        self._script_profilers.discard(profiler)

    # Waking up.

    def _wake(self, waited_s: float = 0.0) -> bool:
        """Begin to work: there is an Accelerator and this is its first batch, backward or step."""
        state = sys.modules.get("accelerate.state")
        if not self.live or state is None or not state.AcceleratorState._shared_state:
            return False
        with self._waking:  # two threads may train
            return self._journal is not None or self._wake_once(waited_s)

    def _wake_once(self, waited_s: float) -> bool:
        lifecycle.watch(self.close, self._forked)
        settings = self._settings
        me = identity.identify(os.environ, settings.run_id)
        if is_url(settings.output_dir):
            run_dir = upload.working_folder(recorder.scratch_path(settings), me.run_id)
        else:
            run_dir = Path(settings.output_dir).absolute() / me.run_id
        self._journal = journal = Journal(settings, self._plan, self._clock, me, run_dir)
        try:
            self._scratch = recorder.scratch_folder(settings)
        except OSError as error:
            self._go()
            if journal.speaks:
                folder, reason = settings.scratch_dir, error.strerror or error
                say(f"ACCELPROF_SCRATCH_DIR={folder!r} cannot be written: {reason}. This job runs unprofiled")
            return False
        present, absent = recorder.present_activities(settings)
        if absent and journal.speaks:
            say(f"{_lacking(settings.activities, absent)}; recording {','.join(present) or 'nothing'}")
        if not present:
            self._go()
            return False
        for line in options.lacking(settings):
            journal.missed(line, silently=True)
            if journal.speaks:
                say(line)
        if settings.ranks.selects(me.rank, me.local_rank):
            ends, theirs = self._abrupt_ends, self._script_profilers
            self._captures = Captures(
                settings, self._plan, journal, self._finisher, ends, self._scratch, theirs, self._idle_steps
            )
        if settings.step_records:
            journal.accelerator = next((name for name in present if name != "cpu"), "")
            name = steps.file_name(me.rank, me.host, me.pid, time_ns())
            self._records = StepRecords(
                run_dir / steps.FOLDER / name,
                journal.step_file_header(),
                self._finisher,
                failed=journal.step_records_failed,
                written=self._records_written,
                whole=journal.mirror is not None,  # what is being uploaded must not change
            )
        self._state = _State.AT_WORK
        self._finisher.submit(self._open_run)
        self._clock.begin(waited_s)
        return True

    def _records_written(self) -> None:
        journal, records, now = self._journal, self._records, monotonic()
        if journal is None or records is None:
            return
        journal.step_file = records.path
        if journal.mirror is not None and now >= self._upload_records_at:
            self._upload_records_at = now + _UPLOAD_RECORDS_S
            journal.upload()

    def _check_strictly(self) -> None:
        """End the job where the settings cannot be honoured here.

        Raises:
            SystemExit: with the reason; nothing has been trained yet.
        """
        _, absent = recorder.present_activities(self._settings)
        if absent:
            raise SystemExit(f"autoprof: {_lacking(self._settings.activities, absent)}")
        if lines := options.lacking(self._settings):
            raise SystemExit("\n".join(f"autoprof: {line}" for line in lines))
        if is_url(self._settings.output_dir):
            if why := upload.try_out(self._settings.output_dir):
                raise SystemExit(f"autoprof: ACCELPROF_OUTPUT_DIR: {why}")
            return
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
                setting = "SCRATCH_DIR" if journal.mirror else "OUTPUT_DIR"
                say(f"{_unusable(journal.run_dir.parent, error, setting)}. This job runs unprofiled")
            self.retire()
        else:
            journal.announce_plan()
            journal.upload()

    # Steps.

    def _took(self, ended: int, *, late: bool = False) -> None:
        """Look up after an event that ended a step, woke the agent or began the training.

        ``late`` says that the step under way began before that event.
        """
        captures, journal, clock, records = self._captures, self._journal, self._clock, self._records
        restarted, self._restarts = clock.restarts != self._restarts, clock.restarts
        if records is not None:
            if restarted:
                records.start_over()
            if ended:
                records.add(clock.parts, clock.begun_at)
        if captures is None or journal is None:
            self._attention, self._step_source = NEVER, clock.source  # this rank records no trace
            return
        if restarted:
            journal.info(
                f"training begins after {clock.discarded_steps:,} batches without an optimizer; "
                "its steps count from 0"
            )
            with self._torch(captures):
                captures.start_over()
        if ended and clock.source != self._step_source:
            self._step_source = clock.source
            journal.say_step_source(compiled=clock.step_compiled)
        if ended == 1 and not captures.running:
            self._idle_steps.append(clock.wall_s)
        if clock.steps >= self._attention:
            self._turn(captures, late=late)

    def _turn(self, captures: Captures, *, late: bool = False) -> None:
        """Do what the plan says at the start of the step that is now under way."""
        with self._torch(captures):
            captures.follow(self._clock.steps, late=late, ending=self._state is not _State.AT_WORK)
        if captures.running:
            return
        if self._state is _State.CLOSING:
            self._recorder_gone.set()
        elif self._state is _State.RETIRING:
            self._go()

    @contextmanager
    def _torch(self, captures: Captures) -> Iterator[None]:
        """While torch's profiler is started, stepped or stopped: signals wait."""
        already, self._busy_with_torch = self._busy_with_torch, True
        ran = captures.running
        try:
            yield
        finally:
            if self._records is not None and (ran or captures.running):
                self._records.note_profiled(self._clock.steps)
            self.recording = captures.recording
            self._attention = captures.attention
            self._overdue = captures.overdue
            self._busy_with_torch = already
            if not already:
                self._abrupt_ends.catch_up()

    # Ends.

    @entry
    def close(self) -> None:
        """The process ends: save what there is, wait for the finisher, say what happened."""
        journal = self._journal
        if journal is None:
            if self.live and identity.environment_rank(os.environ) == 0:
                say("nothing recorded: the Accelerator saw no batch, backward or optimizer step")
            return
        self._busy_with_torch = True  # a SIGTERM now waits until everything is on disk
        mirror = journal.mirror
        if mirror is not None:
            mirror.hurry(self._settings.exit_timeout)
        try:
            orderly = self.live and self._state is not _State.RETIRING
            if self.live:
                self._close_capture()
                if self._records is not None:
                    self._finisher.submit(self._records.flush)
                self._finisher.submit(self._close_run if orderly else journal.write_or_say)
            if mirror is not None and not orderly:
                self._finisher.submit(journal.deliver)
        finally:
            self._go()
            if not self._finisher.drain(self._settings.exit_timeout) and journal.may_say("exit"):
                say(
                    f"rank {journal.identity.rank}: traces were still being written after "
                    f"{self._settings.exit_timeout:g} s (ACCELPROF_EXIT_TIMEOUT); the rest is in "
                    f"{f'{journal.run_dir} and ' if mirror else ''}{self._scratch}"
                )
            if mirror is not None:
                mirror.kill()
            self._busy_with_torch = False
            self._abrupt_ends.catch_up()

    def _close_capture(self) -> None:
        captures = self._captures
        if captures is None:
            return
        if not captures.mine_to_end:
            # A thread still trains: at its next step it saves what only it can.
            self._state, self._attention = _State.CLOSING, 0
            self._recorder_gone.wait(min(self._settings.exit_timeout, _STEP_PATIENCE_S))
        captures.interrupt()

    @entry
    def _close_run(self) -> None:
        journal = self._journal
        if journal is None:
            return
        journal.close()
        journal.deliver()
        if not journal.faulty:
            if self._records is not None:
                journal.say_pace(self._records.kept)
            journal.say_outcome()
        if self._settings.report and journal.speaks and journal.bytes_kept:
            reporting.start(journal)

    def _fault(self, line: str, details: str) -> None:
        """Called by the guard, on any thread."""
        journal, captures = self._journal, self._captures
        one_more = journal is not None and journal.faulty
        if journal is not None:
            journal.fault(line, details)
        if one_more or self._state is _State.RETIRING:
            # One line is enough, and what follows a fault may be its doing.
            self._drop(captures)
            return
        self.retire()
        debug = self._settings.log_level == "debug"
        if journal is None or journal.may_say("fault"):
            who = f"rank {journal.identity.rank}: " if journal else ""
            say(who + line + ("" if debug else "; ACCELPROF_LOG_LEVEL=debug tells more"))
            if debug:
                for detail in details.splitlines():
                    say(detail)
        if journal is None:
            return
        if captures is not None and captures.running and captures.mine_to_end:
            try:
                self._turn(captures)
            finally:
                self._drop(captures)
        self._finisher.submit(journal.write_or_say)

    def _drop(self, captures: Captures | None) -> None:
        if captures is not None:
            captures.abandon()
            if captures.running:
                return  # its own thread ends it at the next step
        self._go()

    @entry
    def _forked(self) -> None:
        """In a forked child: one that was forked from a job at work is not a rank of it."""
        captures = self._captures
        if self._journal is None:
            return
        self._go()
        self._abrupt_ends.release()
        if captures is None:
            return
        if captures.have_profiled:
            lifecycle.skip_exit_handlers_of_libraries()
        if captures.running:
            import torch

            torch.autograd._disable_profiler()


def _lacking(asked: tuple[str, ...], absent: list[str]) -> str:
    return f"ACCELPROF_ACTIVITIES={','.join(asked)!r} asks for {','.join(absent)}, which this machine lacks"


def _unusable(folder: Path, error: OSError, setting: str = "OUTPUT_DIR") -> str:
    return f"ACCELPROF_{setting}={str(folder)!r} cannot be written: {error.strerror or error}"
