"""Two runs side by side in a terminal."""

from __future__ import annotations

from rich.console import Console

from autoprof.analysis.compare import Comparison, Difference, Figure
from autoprof.report.terminal import ms, new_table, plain


def print_comparison(console: Console, comparison: Comparison, *, top: int) -> None:
    """Print the figures of a step, then the ``top`` operators and kernels by what differs most."""
    before, after = comparison.steps_before, comparison.steps_after
    table = new_table(
        f"time per step, ms: medians over {before} and {after} steps",
        ["figure"],
        ["before", "after", "change", "95% interval", "more than noise"],
    )
    for figure in comparison.figures:
        table.add_row(
            figure.name, ms(figure.before_us), ms(figure.after_us), _change(figure.change), *_told(figure)
        )
    console.print(table)
    for kind, differences in (("operators", comparison.operators), ("kernels", comparison.kernels)):
        if differences:
            _print_differences(console, kind, differences[:top])
    if not before or not after:
        console.print(
            "note: without whole steps in both runs nothing can be set side by side", highlight=False
        )


def _told(figure: Figure) -> tuple[str, str]:
    if figure.change is None or figure.low is None or figure.high is None:
        return "-", "-"
    told = {True: "yes", False: "no", None: "too few steps"}[figure.significant]
    return f"{_change(figure.low)} to {_change(figure.high)}", told


def _change(change: float | None) -> str:
    return "-" if change is None else f"{100 * change:+.1f}%"


def _print_differences(console: Console, kind: str, differences: list[Difference]) -> None:
    table = new_table(
        f"{kind} by what differs most, self ms per step", ["name"], ["before", "after", "difference"]
    )
    for one in differences:
        table.add_row(
            plain(one.name), ms(one.before_us), ms(one.after_us), f"{one.difference_us / 1000:+,.3f}"
        )
    console.print(table)
