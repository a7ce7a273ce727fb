"""What accelerators did, for ``autoprof device``: in a terminal and as plain data."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from autoprof.analysis.launches import Spread
from autoprof.analysis.summary import Summary, TraceSummary
from autoprof.report.document import as_document
from autoprof.report.terminal import ms, new_table, plain, rank_of

_OF_TRACE = (
    "rank",
    "capture_first_step",
    "file",
    "device_name",
    "device",
    "device_per_step_median",
    "streams",
    "launches",
    "copies",
    "collectives",
    "notes",
)


def device_document(summary: Summary, traces: list[TraceSummary]) -> dict[str, Any]:
    """Return what is told of these traces' devices as plain data; times are microseconds."""
    whole = as_document(summary, top=0)
    files = {str(trace.given.path) for trace in traces}
    return {
        "schema": whole["schema"],
        "traces": [
            {name: trace[name] for name in _OF_TRACE} for trace in whole["traces"] if trace["file"] in files
        ],
        "captures": [
            {name: capture[name] for name in ("first_step", "ranks", "waited_in_collectives_us")}
            for capture in whole["captures"]
        ],
        "unreadable": whole["unreadable"],
    }


def print_device(console: Console, summary: Summary, traces: list[TraceSummary]) -> None:
    """Print the tables of these traces that have rows, or the line that says why there is none."""
    tables = [
        _streams(traces),
        _launches(traces),
        _copies(traces),
        _collectives(traces),
        _waited(summary, traces),
    ]
    for table in tables:
        if table.row_count:
            console.print(table)
    if not any(trace.device for trace in traces):
        console.print("no trace holds an event of an accelerator", highlight=False)


def _streams(traces: list[TraceSummary]) -> Table:
    table = new_table(
        "streams, ms: from the first event to the last; idle is split by what it waited for",
        ["rank", "stream"],
        ["events", "busy", "idle", "CPU", "start", "communication", "other", "queue mean", "longest"],
    )
    for trace in traces:
        for use in trace.streams:
            table.add_row(
                rank_of(trace),
                plain(use.stream),
                f"{use.events:,}",
                ms(use.busy_us),
                ms(use.idle_us),
                ms(use.host_wait_us),
                ms(use.start_us),
                ms(use.communication_wait_us),
                ms(use.other_us),
                _number(use.queue_mean, 1),
                _number(use.queue_longest, 0),
            )
    return table


def _launches(traces: list[TraceSummary]) -> Table:
    table = new_table(
        "launches, us: in the calls, from a call to its work, in the work",
        ["rank"],
        ["calls", "call", "95%", "until work", "95%", "work", "95%", "longer than work"],
    )
    for trace in traces:
        if made := trace.launches:
            spreads = [
                text for spread in (made.call, made.delay, made.work) for text in _middle_and_slow(spread)
            ]
            share = f"{100 * made.short / made.calls:.1f}%"
            table.add_row(rank_of(trace), f"{made.calls:,}", *spreads, share)
    return table


def _middle_and_slow(spread: Spread) -> tuple[str, str]:
    return f"{spread.median_us:,.1f}", f"{spread.p95_us:,.1f}"


def _copies(traces: list[TraceSummary]) -> Table:
    table = new_table(
        "copies and fills", ["rank", "kind"], ["count", "pageable", "ms", "MB", "GB/s", "mean GB/s"]
    )
    for trace in traces:
        for use in trace.copies:
            table.add_row(
                rank_of(trace),
                plain(use.kind),
                f"{use.count:,}",
                f"{use.pageable:,}",
                ms(use.time_us),
                f"{use.size_bytes / 1e6:,.1f}" if use.sized else "-",
                _number(use.overall_gb_per_s, 1),
                _number(use.mean_gb_per_s, 1),
            )
    return table


def _collectives(traces: list[TraceSummary]) -> Table:
    table = new_table("collectives", ["rank", "kind", "group"], ["count", "ms", "mean us", "MB", "GB/s"])
    for trace in traces:
        for use in trace.collectives:
            table.add_row(
                rank_of(trace),
                plain(use.kind),
                plain(use.group),
                f"{use.count:,}",
                ms(use.time_us),
                f"{use.time_us / use.count:,.1f}",
                f"{use.size_bytes / 1e6:,.1f}" if use.sized else "-",
                _number(use.gb_per_s, 2),
            )
    return table


def _waited(summary: Summary, traces: list[TraceSummary]) -> Table:
    table = new_table("waiting in collectives", ["capture", "rank"], ["for the last rank, ms"])
    shown = {trace.rank for trace in traces}
    for capture in as_document(summary, top=0)["captures"]:
        for one in capture["waited_in_collectives_us"]:
            if one["rank"] in shown:
                first = capture["first_step"]
                table.add_row("-" if first is None else str(first), str(one["rank"]), ms(one["waited_us"]))
    return table


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
