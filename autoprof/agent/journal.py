"""What the agent writes down about itself and says on stderr: a handful of lines per run, by one rank."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from time import time_ns
from typing import Any

from autoprof import redact
from autoprof.agent.artifacts.chrome_trace import Written
from autoprof.agent.clock import StepClock
from autoprof.agent.guard import say
from autoprof.agent.identity import Identity, first_on_node, versions
from autoprof.agent.plan import CapturePlan
from autoprof.agent.recorder import RawTrace
from autoprof.agent.upload import Mirror, Upload
from autoprof.run import layout, pace, steps, store
from autoprof.settings import Settings, describe, is_url

_ANNOUNCED = 3
"""Captures, and captures missed, that get a line of their own; the rest are in the file of the rank."""


class Journal:
    """One rank's account of one run."""

    def __init__(
        self, settings: Settings, plan: CapturePlan, clock: StepClock, identity: Identity, run_dir: Path
    ) -> None:
        self.run_dir = run_dir
        self.identity = identity
        self._settings = settings
        self._plan = plan
        self._clock = clock
        self._captures: list[dict[str, Any]] = []
        self._missed: list[str] = []
        self._faults: list[dict[str, Any]] = []
        self._asides = 0
        self._cause = ""  # what was said last of what was missed
        self._path = layout.rank_file(run_dir, identity.rank)
        self.step_file: Path | None = None
        """The file of step records, once it is there."""
        self.accelerator = ""
        """The kind of accelerator that is present; empty where there is none."""
        self._opened = False
        self._manifest: dict[str, Any] = {}
        self._manifest_path: Path | None = None  # on rank 0, once it is written
        self._started_at = _utc_now()
        self._arrived: set[str] = set()  # traces that have been uploaded
        self._announced: set[int] = set()  # captures of which it was said where they are
        url = settings.output_dir
        self.mirror = Mirror(url, run_dir, self._warn_of_upload) if is_url(url) else None
        """The copy of the run elsewhere, where the output goes to a URL."""
        chosen = (rank for rank in range(identity.world_size) if settings.ranks.selects(rank, rank))
        self.speaks = identity.rank == next(chosen, 0)
        """Whether this rank speaks for the job: the first that records."""

    @property
    def faulty(self) -> bool:
        """Whether there has been a fault of ours."""
        return bool(self._faults)

    @property
    def step_source(self) -> str:
        """What ends the steps, as the clock names it."""
        return self._clock.source

    # On disk.

    def open(self) -> None:
        """Make the run directory and write what is known at the start.

        Raises:
            OSError: it cannot be written.
        """
        self.run_dir.mkdir(parents=True, exist_ok=True)
        if self.identity.rank == 0:
            self._manifest = self._describe_run()
            self._manifest_path = store.write_json_once(self.run_dir / layout.MANIFEST, self._manifest)
        if self._path.exists():  # of an earlier attempt or another run under the same id
            stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%f")
            name = f"{self._path.stem}.before-{self.identity.pid}-{stamp}.json"
            with suppress(FileNotFoundError):  # two that start together: the other one has done it
                os.replace(self._path, self._path.with_name(name))
        self.write()
        self._opened = True

    def write(self) -> None:
        """Write where this rank is.

        Raises:
            OSError: the run directory cannot be written.
        """
        me, clock = self.identity, self._clock
        if self._opened and not self._is_mine(self._path):
            # Another run under the same id has begun since and has the name now.
            self._path = self._path.with_name(f"{self._path.stem}.{layout.short_host(me.host)}_{me.pid}.json")
        document = {
            "schema": 1,
            "rank": me.rank,
            "world_size": me.world_size,
            "local_rank": me.local_rank,
            "node": me.node,
            "host": me.host,
            "pid": me.pid,
            "started_at": self._started_at,
            "at": _utc_now(),
            "steps": clock.steps,
            "skipped_steps": clock.skipped_steps,
            "micro_steps": clock.micro_steps,
            "step_source": clock.source,
            "step_records": self.step_file and self.step_file.relative_to(self.run_dir).as_posix(),
            "captures": self._captures,
            "cost": self.cost(),
            "missed": self._missed,
            "faults": self._faults,
        }
        store.write_json(self._path, document)

    def close(self) -> None:
        """Write where this rank has ended, and on rank 0 what the run has cost."""
        self.write_or_say()
        if self._manifest_path is None:
            return
        ended, cost = self._clock.steps, self.cost()
        with suppress(OSError):  # said by the line above, if it is the disk
            store.write_json(
                self._manifest_path, {**self._manifest, "ended_at": _utc_now(), "steps": ended, "cost": cost}
            )

    def write_or_say(self) -> None:
        """Write where this rank is, or say that it cannot be done."""
        try:
            self.write()
        except OSError as error:
            self.missed(f"its record could not be written: {error}")

    # Elsewhere.

    def upload(self) -> None:
        """Have what is new on disk copied to where the output goes, if that is a URL. Does not wait."""
        if self.mirror is not None and self._opened:
            self._hand_over(self.mirror, ending=False)
            self.mirror.start()

    def deliver(self) -> None:
        """Copy what is left, wait for it within its bound and say what has not arrived."""
        if self.mirror is None or not self._opened:
            return
        self._hand_over(self.mirror, ending=True)
        left = self.mirror.finish()
        told = self.mirror.useless and self.mirror.warned
        if left and not told and self.may_say("left"):
            count = f"{len(left)} file{'s have' if len(left) > 1 else ' has'}"
            say(
                f"rank {self.identity.rank}: {count} not been uploaded to {self.mirror.place} "
                f"({self.mirror.why or 'still under way'}) and can be found in {self.run_dir}"
            )
        if self.mirror.unremoved and self.may_say("unremoved"):
            say(
                f"rank {self.identity.rank}: {self.mirror.unremoved} older traces than ACCELPROF_KEEP="
                f"{self._settings.keep} could not be removed from {self.mirror.place}: {self.mirror.why}"
            )

    def _hand_over(self, mirror: Mirror, *, ending: bool) -> None:
        host: dict[str, Any] = {"host": self.identity.host, "started_at": self._started_at}
        jsons = [(self._path, {**host, "pid": self.identity.pid})]
        if self._manifest_path is not None:
            jsons.append((self._manifest_path, host))
        for path, owner in jsons:
            name = path.relative_to(self.run_dir).as_posix()
            otherwise = f"{name.removesuffix('.json')}.{time_ns()}.json"
            mirror.put(Upload(path, name, passing=ending, otherwise=otherwise, owner=owner))
        if self.step_file is not None:
            name = self.step_file.relative_to(self.run_dir).as_posix()
            mirror.put(Upload(self.step_file, name, passing=ending))

    def _warn_of_upload(self, line: str) -> None:
        if self.may_say("upload"):
            say(f"rank {self.identity.rank}: {line}")

    def _uploaded(self, capture: dict[str, Any], path: Path, number: int, arrived: bool) -> None:
        """On the mirror's thread: an attempt to upload a trace has ended."""
        if arrived:
            self._arrived.add(capture["trace"])
        if number not in self._announced and self.mirror is not None:
            self._announced.add(number)
            where = f"{self.mirror.place}/{capture['trace']}" if arrived else str(path)
            self._say_recorded(capture, number, where)

    @property
    def _place(self) -> str:
        """Where the traces of this rank are, for people."""
        wanted = {each["trace"] for each in self._captures if not each.get("removed")}
        return str(self.run_dir) if self.mirror is None or wanted - self._arrived else self.mirror.place

    def _is_mine(self, path: Path) -> bool:
        try:
            found = store.read_json(path)
        except FileNotFoundError:
            return True
        except (OSError, ValueError):
            return False
        return (found.get("host"), found.get("pid")) == (self.identity.host, self.identity.pid)

    def _describe_run(self) -> dict[str, Any]:
        me = self.identity
        return {
            "schema": 1,
            "run_id": me.run_id,
            "started_at": self._started_at,
            "command": redact.command(sys.orig_argv, os.environ, self._settings.output_dir),
            "directory": os.getcwd(),
            "world_size": me.world_size,
            "host": me.host,
            "plan": str(self._plan),
            "settings": describe(self._settings),
            "versions": versions(),
        }

    # In words.

    def may_say(self, kind: str) -> bool:
        """Say whether this rank speaks for its node on a matter that may befall all of them at once."""
        return first_on_node(f"{self.run_dir}/{kind}")

    def info(self, line: str) -> None:
        """Say something that a person may want to know, if this rank speaks for the job."""
        if self.speaks and self._settings.log_level != "quiet":
            say(line)

    def say_step_source(self, *, compiled: bool) -> None:
        """Say what is counted as steps, where that is not what an optimizer does."""
        source = self._clock.source
        if source == "backward":
            self.info("no optimizer steps through torch or Accelerate; counting backward passes as steps")
        elif source == "batch" and compiled:
            self.info("the optimizer steps inside compiled code; counting batches as steps")
        elif source == "batch" and self._settings.step_on == "auto":
            self.info("there is no optimizer; counting batches as steps")

    def announce_plan(self) -> None:
        """Say what will be recorded."""
        world_size = self.identity.world_size
        into = self.run_dir if self.mirror is None else self.mirror.place
        if self._settings.ranks.text != "all":
            ranks = f"ranks {self._settings.ranks}"
        else:
            ranks = "rank 0" if world_size == 1 else f"ranks 0-{world_size - 1}"
        self.info(f"will record {self._plan} of {ranks} of {world_size} into {into}")

    def recorded(self, raw: RawTrace, written: Written) -> None:
        """Note a trace that is in place, and say so."""
        damage = written.damage
        capture: dict[str, Any] = {
            "first_step": raw.first,
            "last_step": raw.last,
            "planned_first_step": raw.capture.first,
            "planned_last_step": raw.capture.last,
            "partial": raw.partial,
            "step_source": raw.step_source,
            "trace": str(written.path.relative_to(self.run_dir)),
            "bytes": written.size_bytes,
            "inode": written.inode,
            "raw_bytes": raw.raw_bytes,
            "saved_in_child": raw.saved_in_child,
            "blocked_start_s": round(raw.start_s, 6),
            "blocked_stop_s": round(raw.stop_s, 6),
            "step_s": raw.step_s and round(raw.step_s, 6),
            "usual_step_s": raw.usual_step_s and round(raw.usual_step_s, 6),
            "repaired_events": damage.repaired_events,
            "dropped_events": damage.dropped_events,
            "truncated": damage.truncated,
        }
        self._captures.append(capture)
        if self.mirror is not None:
            arrived = partial(self._uploaded, capture, written.path, len(self._captures))
            self.mirror.put(Upload(written.path, capture["trace"], passing=True, arrived=arrived))
        if damage.truncated:
            self.missed(
                f"{raw.capture}: the end of the trace is missing, {raw.path.parent} may have been full"
            )
        if raw.not_forked and len(self._captures) == 1:
            self.info(f"ACCELPROF_FORK_SAVE: the training thread writes the traces itself, {raw.not_forked}")
        if self.mirror is None:
            self._say_recorded(capture, len(self._captures), str(written.path))

    def _say_recorded(self, capture: dict[str, Any], number: int, where: str) -> None:
        if number <= _ANNOUNCED:
            self.info(f"rank {self.identity.rank} recorded {_span(capture)}: {where}")

    @property
    def bytes_kept(self) -> int:
        """Bytes of the traces that this rank has left and not removed."""
        return sum(capture["bytes"] for capture in self._captures if not capture.get("removed"))

    def prune(self, keep: int) -> None:
        """Remove the traces of all but the ``keep`` newest captures, as far as they are what was written."""
        kept = [capture for capture in self._captures if not capture.get("removed")]
        for capture in kept[:-keep]:
            path = self.run_dir / capture["trace"]
            if self.mirror is not None:
                self.mirror.remove(capture["trace"])
            with suppress(OSError):
                if path.stat().st_size == capture["bytes"] and path.stat().st_ino == capture["inode"]:
                    path.unlink()
                    path.parent.rmdir()  # fails, as it should, while other ranks have a trace there
            capture["removed"] = not path.exists()

    def cost(self) -> dict[str, Any]:
        """Return what profiling has cost the training thread, in seconds, and the disk, in bytes."""
        slower = [
            capture["step_s"] / capture["usual_step_s"]
            for capture in self._captures
            if capture["step_s"] and capture["usual_step_s"]
        ]
        return {
            "blocked_s": round(
                sum(capture["blocked_start_s"] + capture["blocked_stop_s"] for capture in self._captures), 6
            ),
            "recorded_step_to_usual_step": round(max(slower), 3) if slower else None,
            "bytes": self.bytes_kept,
        }

    def missed(self, what: str, *, silently: bool = False) -> None:
        """Note that something planned was not recorded; one rank of each node says so."""
        self._missed.append(what)
        if silently:
            return
        self._cause = what
        if len(self._missed) <= _ANNOUNCED and self.may_say("missed"):
            say(f"rank {self.identity.rank}: {what}")

    def step_file_header(self) -> bytes:
        """Return the first line of the file of step records."""
        me = self.identity
        return steps.header(
            rank=me.rank,
            world_size=me.world_size,
            host=me.host,
            pid=me.pid,
            run_id=me.run_id,
            accelerator=self.accelerator,
            started_at=self._started_at,
        )

    def say_pace(self, records: list[steps.StepRecord]) -> None:
        """Say how the steps of this rank went, if it speaks for the job."""
        if records and self.step_file is not None:
            me = self.identity
            file = steps.StepFile(self.step_file, me.rank, me.host, self.accelerator, records, cut_off=False)
            self.info(pace.in_one_line(pace.pace(file), me.world_size))

    def step_records_failed(self, error: OSError) -> None:
        """Note that step records cannot be written for now; one rank of each node says so."""
        if not self._opened:
            return  # there is no run to write them into, which has been said
        line = f"step records could not be written: {error}; they are tried again"
        self._missed.append(line)
        if self.may_say("step records"):
            say(f"rank {self.identity.rank}: {line}")

    def stood_aside(self) -> None:
        """Note that the script was profiling itself when a capture was due, and say so once."""
        self._asides += 1
        if self._asides == 1:
            self.info("standing aside while the script profiles itself")

    def fault(self, line: str, details: str) -> None:
        """Note a fault of ours with its traceback."""
        self._faults.append({"at": _utc_now(), "what": line, "traceback": details})

    def say_outcome(self) -> None:
        """Say at the end what was recorded, or why nothing was."""
        if not self.speaks:
            return
        ended = self._clock.steps
        count = f"{ended:,} step{'' if ended == 1 else 's'}"
        if self._captures:
            cost = self.cost()
            slower = cost["recorded_step_to_usual_step"]
            times = f", recorded steps took {slower:.1f} times the usual" if slower else ""
            spans = ", ".join(map(_span, self._captures[:_ANNOUNCED]))
            if len(self._captures) > _ANNOUNCED:
                spans += f" and {len(self._captures) - _ANNOUNCED} more"
            self.info(
                f"the run ended after {count}; rank {self.identity.rank} recorded {spans} "
                f"({cost['bytes'] / 1000:,.0f} kB) into {self._place}; training was held up for "
                f"{cost['blocked_s']:.2g} s{times}{self._not_reached()}"
            )
        elif not self._settings.ranks.selects(self.identity.rank, self.identity.local_rank):
            say(f"nothing recorded: ACCELPROF_RANKS={self._settings.ranks} selects none of the ranks")
        elif self._asides:
            say(f"nothing recorded: the script profiled itself; the capture was planned for {self._plan}")
        elif self._cause:
            say(f"nothing recorded: {self._cause}")
        else:
            line = f"nothing recorded: the run ended after {count}; the capture was planned for {self._plan}"
            if ended:
                first, last = max(0, ended - self._settings.active), ended - 1
                line += f". ACCELPROF_STEPS={first if first == last else f'{first}-{last}'} would fit"
            say(line)

    def _not_reached(self) -> str:
        beyond = self._plan.next_capture(self._clock.steps) if self._settings.steps else None
        return f"; {beyond} and what was planned after it were not reached" if beyond else ""


def _span(capture: dict[str, Any]) -> str:
    first, last = capture["first_step"], capture["last_step"]
    if last < first:
        return f"part of step {first}"
    steps = f"step {first}" if first == last else f"steps {first}-{last}"
    if not capture["partial"]:
        return steps
    return f"{steps} (partial: {capture['planned_first_step']}-{capture['planned_last_step']} was planned)"


def _utc_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
