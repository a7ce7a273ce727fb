"""The one table of ``ACCELPROF_*`` settings: parsing, validation, listing and docs all come from it.

A setting is one row of :class:`Settings`. Values come from the environment, then from the TOML file that
``ACCELPROF_CONFIG`` names, then from the default. Standard library only.
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from autoprof import redact

PREFIX = "ACCELPROF_"

T = TypeVar("T")


class SettingsError(ValueError):
    """One or more settings cannot be used. ``problems`` holds one line for each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Kind(Generic[T]):
    """How the text of a setting becomes a value, and the words for what it accepts."""

    parse: Callable[[str], T]
    """Raises ``ValueError`` for text that it does not accept."""
    accepts: str


@dataclass(frozen=True)
class RankSelection:
    """Which ranks take part in a capture.

    ``ranges`` are over the global rank and ``local`` over the rank on its node; each is an inclusive
    ``(first, last, stride)``. With both empty every rank takes part.
    """

    text: str = "all"
    ranges: tuple[tuple[int, int, int], ...] = ()
    local: tuple[tuple[int, int, int], ...] = ()

    def selects(self, rank: int, local_rank: int) -> bool:
        """Say whether the rank takes part."""
        if not self.ranges and not self.local:
            return True
        return _within(rank, self.ranges) or _within(local_rank, self.local)

    def __str__(self) -> str:
        return self.text


def _within(number: int, ranges: tuple[tuple[int, int, int], ...]) -> bool:
    return any(first <= number <= last and (number - first) % stride == 0 for first, last, stride in ranges)


def _parse_flag(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off", ""):
        return False
    raise ValueError


def _whole_number(minimum: int) -> Kind[int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,18}", text, re.ASCII) or int(text) < minimum:
            raise ValueError
        return int(text)

    return Kind(parse, f"a whole number of {minimum} or more")


def _seconds() -> Kind[float]:
    def parse(text: str) -> float:
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text, re.ASCII):
            raise ValueError
        return float(text)

    return Kind(parse, "a number of seconds, 0 or more")


_SIZES = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


def _parse_bytes(text: str) -> int:
    match = re.fullmatch(r"(\d{1,15})(|kb|mb|gb|tb)", text.lower(), re.ASCII)
    if not match:
        raise ValueError
    return int(match[1]) * _SIZES[match[2]]


def _choice(*choices: str) -> Kind[str]:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError
        return text.lower()

    return Kind(parse, "one of " + ", ".join(choices))


def _parse_span(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", text, re.ASCII)
    if not match:
        raise ValueError
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ValueError
    return first, last


def _parse_steps(text: str) -> tuple[tuple[int, int], ...]:
    spans = tuple(_parse_span(part) for part in text.split(",")) if text else ()
    if any(later[0] <= earlier[1] for earlier, later in itertools.pairwise(spans)):
        raise ValueError
    return spans


def _parse_rank_item(text: str) -> tuple[int, int, int]:
    span, _, stride = text.partition(":")
    if ":" in text and (not re.fullmatch(r"\d{1,9}", stride, re.ASCII) or int(stride) < 1):
        raise ValueError
    return (*_parse_span(span), int(stride or 1))


def _parse_ranks(text: str) -> RankSelection:
    if text.lower() == "all":
        return RankSelection()
    ranges, local = [], []
    for part in text.split(","):
        if part.startswith("local:"):
            local.append(_parse_rank_item(part.removeprefix("local:")))
        else:
            ranges.append(_parse_rank_item(part))
    return RankSelection(text, tuple(ranges), tuple(local))


ACTIVITY_NAMES = ("cpu", "cuda", "xpu", "mtia", "hpu", "privateuse1")


def _parse_activities(text: str) -> tuple[str, ...]:
    names = tuple(text.lower().split(","))
    if names == ("auto",):
        return ()
    if len(set(names)) != len(names) or not set(names) <= set(ACTIVITY_NAMES):
        raise ValueError
    return names


def _parse_run_id(text: str) -> str:
    if text in ("", ".", "..") or not re.fullmatch(r"[\w.+=@-]{1,128}", text, re.ASCII):
        raise ValueError
    return text


def _parse_path(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError
    return text


def is_url(place: str) -> bool:
    """Say whether a place for output is a URL and not a folder's path."""
    return "://" in place


def _parse_place(text: str) -> str:
    if is_url(text) and not re.search(r"(^|::)[A-Za-z][A-Za-z0-9+.-]*://[^/\s]*/?[^/\s]", text):
        raise ValueError
    return _parse_path(text)


FLAG = Kind(_parse_flag, "1 or 0 (also true, false, yes, no, on, off)")
PATH = Kind(_parse_path, "a path")


class Setting(NamedTuple):
    """One row of the table."""

    name: str
    """With the prefix: ``ACCELPROF_ACTIVE``."""
    field: str
    kind: Kind[Any]
    default: str
    """As it would be written in the environment; empty where there is none."""
    unit: str
    help: str
    example: str


def _row(  # the type of the default is the type of the attribute
    kind: Kind[Any], default: T, written: str, help: str, *, example: str, unit: str = ""
) -> T:
    row = {"kind": kind, "default": written, "unit": unit, "help": help, "example": example}
    return field(default=default, metadata=row)


@dataclass(frozen=True)
class Settings:
    """Every setting, parsed. A new setting is one row here."""

    enable: bool = _row(
        FLAG, False, "0", "Switches the agent on. Without it nothing of the package is loaded.", example="1"
    )
    output_dir: str = _row(
        Kind(_parse_place, "a path, or a URL that fsspec can write to"),
        "autoprof_runs",
        "autoprof_runs",
        "Folder that receives one folder per run. It must be visible to whoever reads the traces. Where it "
        "is a URL (s3://bucket/folder, gs://, hf://), what is finished is copied there from SCRATCH_DIR.",
        example="/shared/traces",
    )
    run_id: str | None = _row(
        Kind(_parse_run_id, "up to 128 letters, digits and . _ + = @ -"),
        None,
        "",
        "Name of the run's folder. Default: the scheduler's or torchelastic's job id, else one made by the "
        "launcher.",
        example="exp-17",
    )
    skip_first: int = _row(
        _whole_number(0), 5, "5", "Steps before the first cycle of the schedule.", unit="steps", example="100"
    )
    wait: int = _row(
        _whole_number(0), 0, "0", "Idle steps at the start of each cycle.", unit="steps", example="1000"
    )
    warmup: int = _row(
        _whole_number(0),
        2,
        "2",
        "Steps before each capture on which the profiler runs without keeping anything.",
        unit="steps",
        example="1",
    )
    active: int = _row(_whole_number(1), 3, "3", "Steps each capture records.", unit="steps", example="5")
    repeat: int = _row(
        _whole_number(0),
        1,
        "1",
        "Cycles of the schedule; 0 repeats it to the end.",
        unit="cycles",
        example="10",
    )
    skip_first_wait: bool = _row(
        FLAG, False, "0", "Leaves out the wait of the first cycle, as torch's schedule does.", example="1"
    )
    steps: tuple[tuple[int, int], ...] = _row(
        Kind(_parse_steps, "ascending step ranges such as 10-12,500-502"),
        (),
        "",
        "Explicit steps to record, numbered from 0, each range preceded by WARMUP steps. Replaces the "
        "schedule.",
        example="10-12,500-502",
    )
    step_on: str = _row(
        _choice("auto", "optimizer", "micro-step", "batch"),
        "auto",
        "auto",
        "What ends a step. auto: the optimizer's step, and the batch in an inference job.",
        example="micro-step",
    )
    ranks: RankSelection = _row(
        Kind(_parse_ranks, "all, or a list of ranks and ranges such as 0,3 or 0-7 or 0-63:8 or local:0"),
        RankSelection(),
        "all",
        "Ranks that record. 0-63:8 is every eighth of the first 64; local:0 is one rank per node.",
        example="0-63:8",
    )
    activities: tuple[str, ...] = _row(
        Kind(_parse_activities, "auto, or a list of " + ", ".join(ACTIVITY_NAMES)),
        (),
        "auto",
        "Activities torch records. auto: the CPU and the accelerator that is present. cuda is ROCm's too.",
        example="cpu,cuda",
    )
    record_shapes: bool = _row(FLAG, False, "0", "Records the shapes of operator inputs.", example="1")
    profile_memory: bool = _row(FLAG, False, "0", "Records tensor allocations and releases.", example="1")
    with_stack: bool = _row(
        FLAG, False, "0", "Records Python call stacks. Slows every operator down.", example="1"
    )
    with_flops: bool = _row(
        FLAG,
        False,
        "0",
        "Records what torch estimates floating-point operations from: the shapes of operator inputs.",
        example="1",
    )
    with_modules: bool = _row(
        FLAG,
        False,
        "0",
        "Records the module hierarchy. In torch this works for TorchScript only.",
        example="1",
    )
    profile_all_threads: bool = _row(
        FLAG,
        False,
        "0",
        "Records operators on every thread of the process, not only on those that train.",
        example="1",
    )
    cuda_sync_events: bool = _row(
        FLAG,
        False,
        "0",
        "Records what waited for a CUDA device, stream or event.",
        example="1",
    )
    overload_names: bool = _row(
        FLAG, False, "0", "Names operators with their overload: aten::add.Tensor.", example="1"
    )
    python_gc: bool = _row(
        FLAG, False, "0", "Records Python's garbage collections. Turns WITH_STACK on.", example="1"
    )
    verbose_stacks: bool = _row(
        FLAG,
        False,
        "0",
        "Writes its Python call stack into each operator. Turns WITH_STACK on.",
        example="1",
    )
    post_processing_timeout: float = _row(
        _seconds(),
        0.0,
        "0",
        "Seconds that torch may spend on its own list of events, which no trace needs. 0 is no limit.",
        unit="seconds",
        example="30",
    )
    step_records: bool = _row(
        FLAG,
        True,
        "1",
        "Keeps a record of what every step cost, on every rank, with no profiler running.",
        example="0",
    )
    compress: str = _row(
        _choice("gzip", "none"), "gzip", "gzip", "How trace files are compressed.", example="none"
    )
    fork_save: bool = _row(
        FLAG,
        False,
        "0",
        "Has a forked child write torch's trace while the training goes on. Not where the script handles "
        "SIGCHLD or InfiniBand is in use.",
        example="1",
    )
    scratch_dir: str | None = _row(
        PATH,
        None,
        "",
        "Node-local folder for a trace before it is compressed or uploaded. Default: the system's temporary "
        "folder.",
        example="/local/scratch",
    )
    keep: int = _row(
        _whole_number(0),
        0,
        "0",
        "Newest captures of each rank that stay; older traces of the run are removed. 0 keeps all.",
        unit="captures",
        example="10",
    )
    max_bytes: int = _row(
        Kind(_parse_bytes, "a number of bytes such as 500MB or 20GB; 0 is no limit"),
        20 * 10**9,
        "20GB",
        "Bytes of traces each rank may leave in one run. No capture begins once they are there.",
        example="500MB",
    )
    max_seconds: float = _row(
        _seconds(),
        300.0,
        "300",
        "Seconds one capture may last, its warmup included. It is cut short at the end of the step then. "
        "0 is no limit.",
        unit="seconds",
        example="60",
    )
    exit_timeout: float = _row(
        _seconds(),
        20.0,
        "20",
        "How long the end of the job may wait for traces that are still being written.",
        unit="seconds",
        example="120",
    )
    report: bool = _row(
        FLAG,
        False,
        "0",
        "Has a separate process write report.html into the run's folder once the traces are there.",
        example="1",
    )
    log_level: str = _row(
        _choice("quiet", "info", "debug"),
        "info",
        "info",
        "What is said on stderr. quiet leaves only what went wrong.",
        example="quiet",
    )
    strict: bool = _row(
        FLAG, False, "0", "Ends the job at start-up when a setting cannot be used.", example="1"
    )
    config: str | None = _row(
        PATH,
        None,
        "",
        "TOML file with the same names. The environment wins over the file.",
        example="/jobs/autoprof.toml",
    )


def _table() -> tuple[Setting, ...]:
    return tuple(
        Setting(PREFIX + row.name.upper(), row.name, **row.metadata)
        for row in fields(Settings)
        if row.default is not MISSING
    )


SETTINGS: tuple[Setting, ...] = _table()


class Resolved(NamedTuple):
    """What every setting came to, and from where."""

    settings: Settings
    sources: dict[str, str]
    """Name to ``environment``, ``default`` or the path of the file."""
    problems: list[str]
    """One line for each value that cannot be used; its setting then holds the default."""


def load(environ: Mapping[str, str]) -> Settings:
    """Parse the settings of a process.

    Raises:
        SettingsError: a value cannot be used, or a name is not a setting.
    """
    resolved = resolve(environ)
    if resolved.problems:
        raise SettingsError(resolved.problems)
    return resolved.settings


def resolve(environ: Mapping[str, str]) -> Resolved:
    """Parse the settings of a process and keep going past values that cannot be used."""
    by_name = {setting.name: setting for setting in SETTINGS}
    given = {name: (value, "environment") for name, value in environ.items() if name.startswith(PREFIX)}
    problems: list[str] = []
    config_path = environ.get(PREFIX + "CONFIG", "").strip()
    if config_path:
        from_file, problems = _read_config(config_path)
        given = {name: (value, config_path) for name, value in from_file.items()} | given

    values: dict[str, Any] = {}
    sources = dict.fromkeys(by_name, "default")
    for name, (written, source) in sorted(given.items()):
        where = "" if source == "environment" else f" in {source}"
        setting = by_name.get(name)
        if setting is None:
            problems.append(_unknown(name, by_name, where))
            continue
        text = written.strip()
        if not text and setting.kind is not FLAG:
            continue  # an empty variable is how a job config says "unset"
        try:
            values[setting.field] = setting.kind.parse(text)
            sources[name] = source
        except ValueError:
            problems.append(
                f"{name}={redact.url(text)!r}{where} is not usable: expected {setting.kind.accepts}"
            )
    return Resolved(Settings(**values), sources, problems)


def _unknown(name: str, by_name: Mapping[str, Setting], where: str) -> str:
    known = [known.removeprefix(PREFIX) for known in by_name]
    near = difflib.get_close_matches(name.removeprefix(PREFIX), known, n=1, cutoff=0.6)
    hint = f"did you mean {PREFIX}{near[0]}?" if near else "`autoprof settings` lists them"
    shown = name if name.isprintable() else repr(name)
    return f"{shown}{where} is not a setting; {hint}"


def _read_config(path: str) -> tuple[dict[str, str], list[str]]:
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        return {}, [f"{PREFIX}CONFIG={path!r} cannot be read: {error.strerror}"]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return {}, [f"{PREFIX}CONFIG={path!r} is not valid TOML: {error}"]
    except RecursionError:
        return {}, [f"{PREFIX}CONFIG={path!r} is nested too deeply"]
    return {name: _as_text(value) for name, value in document.items()}, []


def _as_text(value: object) -> str:
    """Write a TOML value the way the environment would hold it."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, list):
        return ",".join(_as_text(item) for item in value)
    return str(value)


def describe(settings: Settings) -> dict[str, Any]:
    """Return the settings as JSON-ready values by name; the inverse of nothing, for people and records.

    Credentials in a URL are hidden.
    """
    described = {}
    for setting in SETTINGS:
        value = getattr(settings, setting.field)
        text = redact.url(value) if isinstance(value, str) else value
        described[setting.name] = str(value) if isinstance(value, RankSelection) else text
    return described


def to_json() -> str:
    """Return the table as a JSON array with one object per setting."""
    return json.dumps([_plain(setting) for setting in SETTINGS], indent=2)


def to_markdown() -> str:
    """Return the table as the docs page shows it."""
    lines = [
        "| setting | accepts | default | meaning | example |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in map(_plain, SETTINGS):
        default = f"`{row['default']}`" if row["default"] else ""
        if row["unit"] and default:
            default += f" {row['unit']}"
        lines.append(
            f"| `{row['name']}` | {row['accepts']} | {default} | {row['help']} | `{row['example']}` |"
        )
    return "\n".join(lines)


def to_text(width: int = 100) -> str:
    """Return the table for a terminal of ``width`` columns."""
    import textwrap

    blocks = []
    for row in map(_plain, SETTINGS):
        default = f"default {row['default']} {row['unit']}".rstrip() if row["default"] else "no default"
        body = f"{row['help']} Accepts {row['accepts']}. Example: {row['name']}={row['example']}"
        blocks.append(
            f"{row['name']} ({default})\n"
            + textwrap.fill(body, width, initial_indent="    ", subsequent_indent="    ")
        )
    return "\n".join(blocks)


def _plain(setting: Setting) -> dict[str, str]:
    row = setting._asdict()
    kind = row.pop("kind")
    del row["field"]
    return row | {"accepts": kind.accepts}
