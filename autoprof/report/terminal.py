"""The summary in a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from autoprof.analysis.findings import find
from autoprof.analysis.hotspots import Hotspot, joined
from autoprof.analysis.phases import MARKED
from autoprof.analysis.summary import Summary, TraceSummary
from autoprof.report.document import DEVICE, device_medians, phase_medians, step_time

_PHASES = {
    "data_us": "data",
    "forward_us": "forward",
    "backward_us": "backward",
    "optimizer_us": "optimizer",
    "other_us": "other",
    "collective_us": "collectives",
}
_DEVICE = dict(
    zip(
        DEVICE,
        ("busy", "idle", "computation", "communication", "copies", "overlapped", "exposed", "host wait"),
        strict=True,
    )
)


def print_summary(console: Console, summary: Summary, *, top: int, steps: bool) -> None:
    """Print the tables of a summary: ranks, device, operators, kernels, and what else must be said."""
    captures = {trace.given.capture for trace in summary.traces}
    console.print(_ranks(summary.traces, several_captures=len(captures) > 1))
    if steps:
        console.print(_steps(summary.traces))
    if any(trace.device for trace in summary.traces):
        console.print(_device(summary.traces))
    count = sum(len(trace.steps) for trace in summary.traces)
    hottest = joined([trace.operators for trace in summary.traces])
    if hottest:
        console.print(hotspots_table("operators by self time on the CPU", hottest, top, count))
    slowest = joined([trace.kernels for trace in summary.traces])
    if slowest:
        console.print(hotspots_table("kernels and copies on the device", slowest, top, count))
    for capture in sorted(captures, key=lambda first: first or 0):
        _say_who_is_slowest(console, summary, capture)
    _say_findings(console, summary)
    _say_notes(console, summary)


def new_table(title: str, names: list[str], numbers: list[str]) -> Table:
    """Return a table without rows: ``names`` are columns of text, ``numbers`` of figures."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="ellipsis", no_wrap=True, max_width=60)
    for number in numbers:
        table.add_column(number, justify="right", no_wrap=True)
    return table


def _ranks(traces: list[TraceSummary], *, several_captures: bool) -> Table:
    medians = [phase_medians(trace.steps) or {} for trace in traces]
    shown = [name for name in _PHASES if any(median.get(name) is not None for median in medians)]
    title = "time per step, ms: median over steps" if any(trace.steps for trace in traces) else "traces"
    names = ["rank", *(["capture"] if several_captures else [])]
    table = new_table(title, names, ["steps", "step", "min", "max", *(_PHASES[name] for name in shown)])
    for trace, median in zip(traces, medians, strict=True):
        time = step_time(trace.steps) or {}
        table.add_row(
            rank_of(trace),
            *([str(trace.given.capture)] if several_captures else []),
            str(len(trace.steps)),
            *(ms(time.get(name)) for name in ("median_us", "min_us", "max_us")),
            *(ms(median.get(name)) for name in shown),
        )
    return table


def _steps(traces: list[TraceSummary]) -> Table:
    table = new_table(
        "each step, ms", ["rank", "step"], ["time", *_PHASES.values(), "device busy", "exposed"]
    )
    for trace in traces:
        for step in trace.steps:
            table.add_row(
                rank_of(trace),
                str(step.number),
                ms(step.duration_us),
                *(ms(getattr(step.phases, name)) for name in _PHASES),
                ms(step.device.busy_us if step.device else None),
                ms(step.device.exposed_us if step.device else None),
            )
    return table


def _device(traces: list[TraceSummary]) -> Table:
    per_step = any(device_medians(trace.steps) for trace in traces)
    what = "median over steps" if per_step else "from its first event to its last"
    table = new_table(f"device, ms: {what}", ["rank", "device"], list(_DEVICE.values()))
    for trace in traces:
        use = device_medians(trace.steps) or {}
        if not use and trace.device and not per_step:
            use = {name: getattr(trace.device, name) for name in DEVICE}
        table.add_row(rank_of(trace), plain(trace.device_name or ""), *(ms(use.get(name)) for name in DEVICE))
    return table


def hotspots_table(title: str, hotspots: list[Hotspot], top: int, steps: int) -> Table:
    """Lay out the first ``top`` hotspots; ``steps`` is what to divide by, 0 where there are none."""
    whole = sum(hotspot.self_us for hotspot in hotspots) or 1.0
    table = new_table(title, ["name"], ["calls", "self ms", *(["per step"] if steps else []), "%", "mean us"])
    for hotspot in hotspots[:top]:
        table.add_row(
            plain(hotspot.name),
            f"{hotspot.calls:,}",
            ms(hotspot.self_us),
            *([ms(hotspot.self_us / steps)] if steps else []),
            f"{100 * hotspot.self_us / whole:.1f}",
            f"{hotspot.mean_us:,.1f}",
        )
    return table


def _say_who_is_slowest(console: Console, summary: Summary, capture: int | None) -> None:
    medians = summary.steps_by_rank(capture)
    if len(medians) < 2:
        return
    slowest, fastest = (
        max(medians, key=lambda rank: medians[rank]),
        min(medians, key=lambda rank: medians[rank]),
    )
    more = 100 * (medians[slowest] / medians[fastest] - 1) if medians[fastest] else 0.0
    where = "" if capture is None else f"capture from step {capture}: "
    console.print(
        f"{where}slowest rank {slowest} ({medians[slowest] / 1000:,.3f} ms), fastest rank {fastest}"
        f" ({medians[fastest] / 1000:,.3f} ms), {more:.1f}% apart",
        highlight=False,
    )


def _say_findings(console: Console, summary: Summary) -> None:
    for finding in find(summary):
        low, high = finding.low_share, finding.share
        share = (
            f"{100 * low:.0f}-{100 * high:.0f}%"
            if round(100 * low) != round(100 * high)
            else f"{100 * high:.0f}%"
        )
        console.print(
            plain(f"{finding.severity}: {finding.title} ({share} of a step at stake)"), style="bold"
        )
        console.print(plain(f"  {finding.evidence}"), highlight=False)
        console.print(plain(f"  {finding.advice}"), highlight=False)


def _say_notes(console: Console, summary: Summary) -> None:
    notes = list(summary.notes)
    for trace in summary.traces:
        if not trace.steps:
            notes.append(
                f"{trace.given.path.name}: no whole step is marked in it, so nothing is told per step"
            )
        if trace.partial:
            notes.append(f"rank {rank_of(trace)}: the capture is partial")
        notes += [f"{trace.given.path.name}: {line}" for line in trace.notes]
    for name in ("forward", "backward"):
        sources = {getattr(trace, f"{name}_from") for trace in summary.traces} - {None, MARKED}
        notes += [f"{name} is told from {source}" for source in sorted(sources)]
    for note in notes:
        console.print(plain(f"note: {note}"), highlight=False)


def plain(text: str) -> Text:
    """Return a name as it is: brackets are no markup, and a terminal gets no control characters."""
    return Text("".join(letter if letter.isprintable() else "?" for letter in text))


def rank_of(trace: TraceSummary) -> str:
    """Return a trace's rank as text."""
    return "?" if trace.rank is None else str(trace.rank)


def ms(us: float | None) -> str:
    """Return microseconds as text in milliseconds."""
    return "-" if us is None else f"{us / 1000:,.3f}"
