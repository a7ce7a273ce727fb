"""The agent of one process: takes the hooks' events, asks clock and plan, drives recorder and finisher."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from autoprof.agent import guard, identity, lifecycle, recorder
from autoprof.agent.artifacts import chrome_trace
from autoprof.agent.clock import StepClock
from autoprof.agent.finisher import Finisher
from autoprof.agent.guard import entry, say
from autoprof.agent.identity import Identity
from autoprof.agent.plan import CapturePlan
from autoprof.agent.recorder import CannotRecord, RawTrace, Recorder
from autoprof.run import layout, store
from autoprof.settings import Resolved, describe

_NEVER = sys.maxsize
_ANNOUNCED_CAPTURES = 3
"""Captures that get a line of their own; the rest are in the line at the end."""


class Agent:
    """One process's agent. It sleeps until an Accelerator has been built and is put to work."""

    def __init__(self, resolved: Resolved, optimizers: Any) -> None:
        self.live = True
        """False once retired: every hook then passes straight through."""
        self.recording = False
        """Whether the step under way is being kept, for hooks that add ranges."""
        self._settings = resolved.settings
        self._problems = resolved.problems
        self._plan = CapturePlan(resolved.settings)
        self._clock = StepClock(resolved.settings.step_on, optimizers=lambda: len(optimizers))
        self._finisher = Finisher()
        self._abrupt_ends = lifecycle.AbruptEnds(self.close, busy=lambda: self._turning)
        self._turning = False
        self._asleep = True
        self._recorder: Recorder | None = None
        self._has_profiled = False
        self._attention = _NEVER  # the step number from which something has to be done
        self._identity: Identity | None = None
        self._run_dir: Path | None = None
        self._scratch: Path | None = None
        self._retired_because = ""
        self._captures: list[dict[str, Any]] = []
        self._missed: list[str] = []
        self._faults: list[dict[str, Any]] = []
        self._step_source_said = False
        self._foreign_profilers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._aside_said = False
        self._begun: set[int] = set()  # first steps of captures that have left a trace
        guard.on_fault(self._fault)

    # Events, each sent by a hook on the thread that trains.

    @entry
    def accelerator_built(self) -> None:
        """An ``Accelerator`` has been constructed."""
        if not self.live or not self._asleep:
            return
        if self._problems:
            self.live = False
            if identity.environment_rank(os.environ) == 0:
                for problem in self._problems:
                    say(f"{problem}. This job runs unprofiled")
            return
        lifecycle.watch(self.close, self._forked)
        if self._settings.strict:
            self._check_strictly()

    @entry
    def backward(self, synced: bool) -> None:
        """``Accelerator.backward`` has returned."""
        if self._asleep and not self._wake():
            return
        if self._clock.backward(synced=synced):
            self._stepped()

    @entry
    def optimizer_step(self, key: int, synced: bool, skipped: bool, seconds: float) -> None:
        """A prepared optimizer's ``step``, or the engine that stands in for it, has returned."""
        if self._asleep and not self._wake():
            return
        if self._clock.optimizer_step(key, synced=synced, skipped=skipped, seconds=seconds):
            self._stepped()

    @entry
    def foreign_step(self, key: int, seconds: float) -> None:
        """The ``step`` of an optimizer that was never prepared has returned."""
        if self._asleep and not self._wake():
            return
        if self._clock.foreign_step(key, seconds=seconds):
            self._stepped()

    @entry
    def step_compiled(self) -> None:
        """Dynamo has taken an optimizer's ``step`` into a graph."""
        self._clock.step_compiled = True

    @entry
    def batch_wanted(self, key: int) -> None:
        """A loop asks a prepared dataloader for its next batch."""
        if not self._asleep and self._clock.batch_wanted(key):
            self._stepped()

    @entry
    def batch(self, key: int, waited_s: float) -> None:
        """A prepared dataloader hands out a batch."""
        if self._asleep and not self._wake():
            return
        self._clock.batch(key, waited_s=waited_s)

    @entry
    def profiler_starting(self, profiler: Any) -> None:
        """A profiler of the script's own is about to start. torch runs one at a time: ours makes way."""
        self._foreign_profilers.add(profiler)
        if self._recorder is None:
            return
        if self._recorder.thread != threading.get_ident():
            self._miss(f"{self._recorder.capture} cut short: the script profiles itself on another thread")
        self._end_capture(whole=False)
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
        self._asleep = False
        lifecycle.watch(self.close, self._forked)
        self._identity = me = identity.identify(os.environ, self._settings.run_id)
        self._run_dir = Path(self._settings.output_dir).absolute() / me.run_id
        self._scratch = recorder.scratch_folder(self._settings)
        self._check_activities()
        self._finisher.submit(self._open_run)
        if self._selected():
            self._attention = 0
            self._turn()
        return True

    def _selected(self) -> bool:
        me = self._me()
        return self._settings.ranks.selects(me.rank, me.local_rank)

    def _check_activities(self) -> None:
        present, absent = recorder.present_activities(self._settings)
        if not absent:
            return
        asked = f"ACCELPROF_ACTIVITIES={','.join(self._settings.activities)!r}"
        problem = f"{asked} asks for {','.join(absent)}, which this machine lacks"
        if not present:
            problem += "; nothing is recorded"
            self._retire(problem)
        if self._speaks():
            say(problem + (f"; recording {','.join(present)}" if present else ""))

    def _check_strictly(self) -> None:
        """End the job where the settings cannot be honoured here.

        Raises:
            SystemExit: with the reason; nothing has been trained yet.
        """
        _, absent = recorder.present_activities(self._settings)
        if absent:
            asked = ",".join(self._settings.activities)
            raise SystemExit(
                f"autoprof: ACCELPROF_ACTIVITIES={asked!r} asks for {','.join(absent)}, "
                "which this machine lacks"
            )
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
        me, run_dir = self._me(), self._run()
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            if me.rank == 0:
                store.write_json_once(run_dir / layout.MANIFEST, self._manifest())
            self._keep_earlier_rank_file()
            self._write_rank_file()
        except OSError as error:
            problem = _unusable(Path(self._settings.output_dir).absolute(), error)
            if self._speaks() or (me.node > 0 and me.local_rank == 0):
                say(f"{problem}. This job runs unprofiled")
            self._retire(problem)
            return
        if self._speaks() and not self._retired_because:
            ranks = f"rank{'s' if self._settings.ranks.text == 'all' and me.world_size > 1 else ''}"
            which = (
                f"0-{me.world_size - 1}" if self._settings.ranks.text == "all" else self._settings.ranks.text
            )
            which = "0" if me.world_size == 1 and self._settings.ranks.text == "all" else which
            self._say_info(f"will record {self._plan} of {ranks} {which} of {me.world_size} into {run_dir}")

    # Steps.

    def _stepped(self) -> None:
        if self._clock.source != "optimizer" and not self._step_source_said:
            self._say_step_source()
        if self._clock.steps >= self._attention:
            self._turn()

    def _say_step_source(self) -> None:
        self._step_source_said = True
        if not self._speaks():
            return
        if self._clock.source == "backward":
            self._say_info(
                "no optimizer steps through torch or Accelerate; counting backward passes as steps"
            )
        elif self._clock.step_compiled:
            self._say_info("the optimizer steps inside compiled code; counting batches as steps")

    def _turn(self) -> None:
        """Do what the plan says at the start of the step that is now under way."""
        self._turning = True  # a signal may come in between: torch's profiler must not be re-entered
        try:
            self._follow_plan()
        finally:
            self._turning = False
        self._abrupt_ends.catch_up()

    def _follow_plan(self) -> None:
        step = self._clock.steps
        current = self._recorder
        if current is not None:
            if threading.get_ident() != current.thread:
                return  # a profiler stops only on the thread that started it
            if self._retired_because:
                self._end_capture(whole=False)
            elif step <= current.capture.last:
                current.advance(step)
                self.recording = current.recording
                return
            else:
                self._end_capture(whole=True)
        if self._retired_because:
            self.live = False
            return
        self._begin_capture(step)
        if self._recorder is None and self._abrupt_ends.held:
            if self._finisher.idle:
                self._abrupt_ends.release()
            else:
                self._attention = step + 1

    def _begin_capture(self, step: int) -> None:
        capture = self._plan.next_capture(step)
        if capture is None:
            self._attention = _NEVER
            return
        if step < capture.warmup_from:
            self._attention = capture.warmup_from
            return
        self._attention = step + 1
        if self._script_is_profiling():
            if step == capture.last:
                self._missed.append(f"{capture} not recorded, or not whole: the script was profiling itself")
            return
        self._abrupt_ends.hold()
        fresh = Recorder(capture, self._settings, self._me())
        try:
            fresh.start(step)
        except CannotRecord as reason:
            self._attention = capture.last + 1
            self._miss(f"{capture} not recorded: {reason}")
            return
        self._recorder = fresh
        self._has_profiled = True
        self._attention = 0
        self.recording = fresh.recording

    def _script_is_profiling(self) -> bool:
        import torch

        # The second question finds a profiler that started before the hooks were in place.
        if not self._foreign_profilers and not torch.autograd._profiler_enabled():
            return False
        if not self._aside_said:
            self._aside_said = True
            if self._speaks():
                self._say_info("standing aside while the script profiles itself")
        return True

    def _end_capture(self, *, whole: bool) -> None:
        """Stop the recorder on its own thread and hand what it has to the finisher."""
        current, self._recorder = self._recorder, None
        self.recording = False
        if current is None or self._scratch is None:
            return
        try:
            raw = current.stop(step=self._clock.steps, scratch=self._scratch, whole=whole)
        except OSError as error:
            self._miss(f"{current.capture} lost: {error}")
            return
        if raw is None:
            self._missed.append(
                f"{current.capture} not recorded: stopped at step {self._clock.steps}, in warmup"
            )
        elif not self._finisher.submit(partial(self._finish, raw)):
            self._miss(f"{current.capture} not kept: earlier traces are still being written; see {raw.path}")

    @entry
    def _finish(self, raw: RawTrace) -> None:
        """On the finisher: put one trace in place and say so."""
        me, run_dir = self._me(), self._run()
        gzip = self._settings.compress == "gzip"
        name = layout.trace_name(me.rank, me.host, me.pid, raw.time_ns, gzip=gzip)
        # What follows an interruption is a capture of its own: readers take one trace per rank and folder.
        first = raw.first if raw.capture.first in self._begun else raw.capture.first
        self._begun.add(raw.capture.first)
        final = layout.capture_dir(run_dir, first) / name
        try:
            written = chrome_trace.write(raw.path, final, gzip=gzip, cut_step=raw.cut_step)
        except (OSError, ValueError) as error:
            self._miss(
                f"{raw.capture} could not be put into {final.parent}: {error}; torch's file is {raw.path}"
            )
            return
        damage = written.damage
        self._captures.append(
            {
                "first_step": raw.first,
                "last_step": raw.last,
                "planned_first_step": raw.capture.first,
                "planned_last_step": raw.capture.last,
                "partial": raw.partial,
                "trace": str(final.relative_to(run_dir)),
                "bytes": written.size_bytes,
                "blocked_start_s": round(raw.start_s, 6),
                "blocked_stop_s": round(raw.stop_s, 6),
                "repaired_events": damage.repaired_events,
                "dropped_events": damage.dropped_events,
                "truncated": damage.truncated,
            }
        )
        if damage.truncated:
            self._miss(f"{raw.capture}: the end of the trace is missing, {raw.path.parent} may be full")
        if self._speaks() and len(self._captures) <= _ANNOUNCED_CAPTURES:
            self._say_info(f"rank {me.rank} recorded {_recorded(self._captures[-1])}: {final}")

    # Ends.

    @entry
    def close(self) -> None:
        """The interpreter is going down: save what there is, wait for the finisher, say what happened."""
        if not self.live:
            return
        if self._asleep:
            if identity.environment_rank(os.environ) == 0:
                say("nothing recorded: the Accelerator saw no batch, backward or optimizer step")
            return
        if self._recorder is not None:
            if self._recorder.thread == threading.get_ident():
                self._end_capture(whole=False)
            else:
                self._miss(
                    f"{self._recorder.capture} lost: the job ended on another thread than it trains on"
                )
                self._recorder.abandon()
        self.live = False
        self._finisher.submit(self._close_run)
        if not self._finisher.drain(self._settings.exit_timeout):
            say(
                f"rank {self._me().rank}: traces were still being written after "
                f"{self._settings.exit_timeout:g} s (ACCELPROF_EXIT_TIMEOUT); the rest is in {self._scratch}"
            )

    @entry
    def _close_run(self) -> None:
        try:
            self._write_rank_file()
        except OSError as error:
            self._miss(f"its record could not be written: {error}")
        if self._speaks() and not self._retired_because:
            self._say_outcome()

    def _say_outcome(self) -> None:
        steps = self._clock.steps
        count = f"{steps:,} step{'' if steps == 1 else 's'}"
        if self._captures:
            total_kb = sum(capture["bytes"] for capture in self._captures) / 1000
            spans = ", ".join(map(_recorded, self._captures[:_ANNOUNCED_CAPTURES]))
            if len(self._captures) > _ANNOUNCED_CAPTURES:
                spans += f" and {len(self._captures) - _ANNOUNCED_CAPTURES} more"
            self._say_info(
                f"the run ended after {count}; rank {self._me().rank} recorded {spans} "
                f"({total_kb:,.0f} kB) into {self._run()}"
            )
            return
        if not self._selected():
            say(f"nothing recorded: ACCELPROF_RANKS={self._settings.ranks} selects none of the ranks")
            return
        if self._aside_said:
            say(f"nothing recorded: the script profiled itself; the capture was planned for {self._plan}")
            return
        line = f"nothing recorded: the run ended after {count}; the capture was planned for {self._plan}"
        if steps:
            first, last = max(0, steps - self._settings.active), steps - 1
            line += f". ACCELPROF_STEPS={first if first == last else f'{first}-{last}'} would fit"
        say(line)

    def _retire(self, reason: str) -> None:
        """Stop for good; where a capture is running, its own thread ends it at the next step."""
        self._retired_because = reason
        self._attention = 0
        if self._recorder is None:
            self.live = False

    def _fault(self, line: str, details: str) -> None:
        """Called by the guard, on any thread."""
        who = f"rank {self._identity.rank}: " if self._identity else ""
        self._faults.append({"at": _utc_now(), "what": line, "traceback": details})
        say(
            who
            + line
            + ("" if self._settings.log_level == "debug" else "; ACCELPROF_LOG_LEVEL=debug tells more")
        )
        if self._settings.log_level == "debug":
            for detail in details.splitlines():
                say(detail)
        first_fault = not self._retired_because
        self._retire(line)
        current = self._recorder
        if first_fault and current is not None and current.thread == threading.get_ident():
            self._turn()

    @entry
    def _forked(self) -> None:
        """In a forked child: one that was forked from a job at work is not a rank of it."""
        if self._asleep:
            return
        self.live = False
        self.recording = False
        if self._has_profiled:
            lifecycle.skip_exit_handlers_of_libraries()
        if self._recorder is not None:
            import torch

            torch.autograd._disable_profiler()

    # What is written and said.

    def _manifest(self) -> dict[str, Any]:
        me = self._me()
        return {
            "schema": 1,
            "run_id": me.run_id,
            "started_at": _utc_now(),
            "command": sys.orig_argv,
            "directory": os.getcwd(),
            "world_size": me.world_size,
            "host": me.host,
            "plan": str(self._plan),
            "settings": describe(self._settings),
            "versions": _versions(),
        }

    def _write_rank_file(self) -> None:
        me = self._me()
        document = {
            "schema": 1,
            "rank": me.rank,
            "world_size": me.world_size,
            "local_rank": me.local_rank,
            "node": me.node,
            "host": me.host,
            "pid": me.pid,
            "at": _utc_now(),
            "steps": self._clock.steps,
            "skipped_steps": self._clock.skipped_steps,
            "micro_steps": self._clock.micro_steps,
            "step_source": self._clock.source,
            "captures": self._captures,
            "missed": self._missed,
            "faults": self._faults,
        }
        store.write_json(layout.rank_file(self._run(), me.rank), document)

    def _keep_earlier_rank_file(self) -> None:
        """Set aside the file of an earlier attempt or run under the same id."""
        path = layout.rank_file(self._run(), self._me().rank)
        if path.exists():
            os.replace(path, path.with_name(f"{path.stem}.before-{self._me().pid}-{_utc_stamp()}.json"))

    def _miss(self, what: str) -> None:
        """Say that something planned was not recorded. Every rank says its own."""
        self._missed.append(what)
        if len(self._missed) <= _ANNOUNCED_CAPTURES:
            say(f"rank {self._me().rank}: {what}")

    def _say_info(self, line: str) -> None:
        if self._settings.log_level != "quiet":
            say(line)

    def _speaks(self) -> bool:
        """Whether this rank is the one that speaks for the job: the first that records."""
        me = self._me()
        chosen = (rank for rank in range(me.world_size) if self._settings.ranks.selects(rank, rank))
        return me.rank == next(chosen, 0)

    def _me(self) -> Identity:
        if self._identity is None:
            raise RuntimeError("the agent is asleep")
        return self._identity

    def _run(self) -> Path:
        if self._run_dir is None:
            raise RuntimeError("the agent is asleep")
        return self._run_dir


def _recorded(capture: dict[str, Any]) -> str:
    first, last = capture["first_step"], capture["last_step"]
    if last < first:
        return f"part of step {first}"
    steps = f"step {first}" if first == last else f"steps {first}-{last}"
    if not capture["partial"]:
        return steps
    return f"{steps} (partial: {capture['planned_first_step']}-{capture['planned_last_step']} was planned)"


def _unusable(folder: Path, error: OSError) -> str:
    return f"ACCELPROF_OUTPUT_DIR={str(folder)!r} cannot be written: {error.strerror or error}"


def _utc_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _utc_stamp() -> str:
    return datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%f")


def _versions() -> dict[str, str]:
    from autoprof import __version__

    found = {"autoprof": __version__, "python": sys.version.split()[0]}
    for name in ("torch", "accelerate", "transformers", "deepspeed"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version:
            found[name] = str(version)
    return found
