"""Results of an experiment for a terminal: a table and a plot of the intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

PLOT_WIDTH = 61


@dataclass(frozen=True, slots=True)
class Estimate:
    """The relative effect of one variant on one metric: a share (0.2 = +20 %), with its interval."""

    metric: str
    variant: str
    low: float
    high: float
    truth: float
    chance_to_win: float | None
    significant: bool

    @property
    def effect(self) -> float:
        """The point estimate: the intervals are symmetric around it (spec experiment-results 5.1)."""
        return (self.low + self.high) / 2

    @property
    def covers_truth(self) -> bool:
        return self.low <= self.truth <= self.high


def estimates(metric_name: str, result: dict[str, Any], truth: float) -> list[Estimate]:
    """One estimate for each test variant of a metric result. A variant without an interval is left out."""
    found = []
    for variant in result["variant_results"]:
        interval = variant.get("credible_interval") or variant.get("confidence_interval")
        if interval is None:
            continue
        found.append(
            Estimate(
                metric=metric_name,
                variant=variant["key"],
                low=interval[0],
                high=interval[1],
                truth=truth,
                chance_to_win=variant.get("chance_to_win"),
                significant=bool(variant.get("significant")),
            )
        )
    return found


def results_table(results: Sequence[tuple[str, dict[str, Any]]]) -> Table:
    """Users, totals and means per variant for every metric."""
    table = Table(title="Results", title_justify="left", title_style="bold")
    table.add_column("Metric")
    table.add_column("Variant")
    for column in ("Users", "Total", "Per user", "Effect", "95 % interval", "Chance to win"):
        table.add_column(column, justify="right")
    for name, result in results:
        baseline = result["baseline"]
        table.add_row(name, baseline["key"], *_totals(baseline), "baseline", "", "")
        for variant in result["variant_results"]:
            interval = variant.get("credible_interval") or variant.get("confidence_interval")
            chance = variant.get("chance_to_win")
            table.add_row(
                "",
                variant["key"],
                *_totals(variant),
                _percent((interval[0] + interval[1]) / 2) if interval else "–",
                f"{_percent(interval[0])} … {_percent(interval[1])}" if interval else "not enough data",
                f"{chance:.1%}" if chance is not None else "–",
            )
        table.add_section()
    return table


def _totals(variant: dict[str, Any]) -> tuple[str, str, str]:
    users, total = variant["number_of_samples"], variant["sum"]
    return f"{users:,}", f"{total:,.0f}", f"{total / users:,.4f}" if users else "–"


def _percent(share: float) -> str:
    return f"{share:+.1%}"


def interval_plot(rows: Sequence[Estimate], width: int = PLOT_WIDTH) -> RenderableType:
    """The intervals on one axis: ``┃`` no effect, ``◆`` the known truth, ``●`` the estimate."""
    if not rows:
        return Text("No intervals yet.")
    low = min(0.0, *(row.low for row in rows), *(row.truth for row in rows))
    high = max(0.0, *(row.high for row in rows), *(row.truth for row in rows))
    margin = (high - low) * 0.05 or 0.01
    low, high = low - margin, high + margin

    def place(value: float) -> int:
        return round((value - low) / (high - low) * (width - 1))

    label_width = max(len(f"{row.metric} · {row.variant}") for row in rows)
    lines: list[RenderableType] = []
    for row in rows:
        cells = [" "] * width
        cells[place(row.low) : place(row.high) + 1] = ["─"] * (place(row.high) - place(row.low) + 1)
        cells[place(row.low)], cells[place(row.high)] = "├", "┤"
        cells[place(0.0)] = "┃"
        cells[place(row.effect)] = "●"
        cells[place(row.truth)] = "◆"
        label = f"{row.metric} · {row.variant}".ljust(label_width)
        lines.append(Text(f"{label}  {''.join(cells)}", no_wrap=True))
    axis = [" "] * width
    for value in (low + margin, 0.0, high - margin):
        text = _percent(value)
        start = min(max(place(value) - len(text) // 2, 0), width - len(text))
        axis[start : start + len(text)] = text
    lines.append(Text(" " * label_width + "  " + "".join(axis), style="dim", no_wrap=True))
    lines.append(Text("┃ no effect   ● estimate   ◆ the true effect of the simulation", style="dim"))
    return Group(*lines)
