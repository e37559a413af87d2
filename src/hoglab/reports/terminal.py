"""Results in a terminal: warnings first, a table, and the intervals on one axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from statistics import median

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.console import Group as Lines
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from hoglab.reports.report import ExperimentReport, Group, Json, MetricReport
from hoglab.reports.tables import light_table
from hoglab.statistics.numbers import MISSING, effect_text, interval_text, mean_text, number_text, p_text

PLOT_WIDTH, MIN_PLOT_WIDTH = 61, 21
FEW_VARIANTS = 3
"""Maximum number of variants that are named on one line."""
CLIPPED_AT = 5
"""Factor of the middle interval's reach beyond which another interval is cut off, so that others can be seen."""

_STYLES = {"critical": "bold red", "warning": "yellow"}
_MARKS = {"critical": "✖", "warning": "▲"}
_STATE_STYLES = {
    "invalid": "bold red",
    "better": "bold green",
    "worse": "bold red",
    "mixed": "bold yellow",
    "not_shown_safe": "bold yellow",
}
_STATE_MARKS = {"invalid": "✖", "better": "✔", "worse": "✘", "mixed": "±", "not_shown_safe": "…"}


@dataclass(frozen=True, slots=True)
class PlotRow:
    """One interval of a plot; ``truth`` is the true effect where somebody knows it, ``metric`` the metric's name."""

    label: str
    low: float
    high: float
    truth: float | None = None
    style: str = ""
    metric: str = ""
    is_share: bool = False
    """Whether the metric is a share of people, and so its differences are in percentage points."""
    estimate: float | None = None
    """Estimate of the effect; None for the middle of the interval."""

    @property
    def effect(self) -> float:
        return (self.low + self.high) / 2 if self.estimate is None else self.estimate

    @property
    def covers_truth(self) -> bool:
        return self.truth is None or self.low <= self.truth <= self.high

    @property
    def reach(self) -> float:
        """Farthest bound from zero; of the estimate where there is none."""
        bounds = [abs(bound) for bound in (self.low, self.high) if isfinite(bound)]
        return max(bounds, default=abs(self.effect))


def report_lines(report: ExperimentReport) -> Iterator[RenderableType]:
    """Yield all lines that a terminal shows of an experiment, from top to bottom."""
    yield _heading(report)
    if report.verdict is not None:
        yield _verdict(report.verdict)
    for severity, message, advice in report.further_warnings:
        mark = Text(f"{_MARKS.get(severity, '·')} {message}", style=_STYLES.get(severity, "dim"))
        yield Lines(mark, Text(f"  {advice}", style="dim")) if advice else mark
    if report.exposed:
        yield _exposed(report)
    if report.held_out is not None:
        key, people = report.held_out
        yield Text(f"Held out: {people:,} ({key}), compared with nobody")
    if report.experiment["start_date"] is None:
        for metric in report.metrics:
            yield Text(f"Metric: {metric.name}" + (f": {metric.error}" if metric.error else ""))
        return
    for primary, name in ((True, "Primary metrics"), (False, "Secondary metrics")):
        metrics = report.section(primary=primary)
        if not metrics:
            continue
        table = results_table(metrics, name, report.level, relative=report.is_relative)
        table.caption = "\n".join(report.methods)
        yield table
        rows = [row for metric in metrics for row in plot_rows(metric)]
        marked = any(metric.is_significant(group) for metric in metrics for group in _compared(metric))
        yield IntervalPlot(rows, report.is_relative, marked=marked)


def _heading(report: ExperimentReport) -> Panel:
    experiment = report.experiment
    began, ended = (str(experiment[name] or "")[:10] for name in ("start_date", "end_date"))
    since = f", {began} to {ended}" if ended else f" since {began}" if began else ""
    return Panel(
        Text(
            f"flag {experiment['feature_flag_key']}, {experiment['status']}{since}, {report.config.method} statistics"
        ),
        title=Text(
            f"{experiment['name']} (experiment {experiment['id']})", style="bold", overflow="ellipsis"
        ),
        title_align="left",
        expand=False,
    )


def _verdict(verdict: Json) -> Lines:
    """Yield the verdict, the next step, and the reasons besides its headline."""
    state = verdict["state"]
    said = [
        Text(f"{_STATE_MARKS.get(state, '→')} {verdict['headline']}", style=_STATE_STYLES.get(state, "bold")),
        Text(f"Next: {verdict['next_action']['text']}"),
    ]
    if not verdict["withholds_decisions"]:
        said += [Text(f"· {line['text']}", style="dim") for line in verdict["reasons"]]
    return Lines(said[0], *(Padding(line, (0, 0, 0, 2)) for line in said[1:]))


def _exposed(report: ExperimentReport) -> Text:
    totals = report.exposed
    everybody = sum(totals.values())
    mismatch = report.exposures.get("sample_ratio_mismatch")
    check = "" if mismatch is None else f"; sample ratio {p_text(mismatch['p_value'])}"
    parts = [
        f"{key} {count:,}" + (f" ({count / everybody:.1%})" if everybody else "")
        for key, count in totals.items()
    ]
    if len(parts) <= FEW_VARIANTS:
        return Text(f"Exposed: {', '.join(parts)}{check}")
    return Text("\n  ".join([f"Exposed: {everybody:,}{check}", *parts]))


def results_table(metrics: Sequence[MetricReport], name: str, level: float, *, relative: bool) -> Table:
    """Return a table, 80 columns wide at most, of people, totals, means and effects for each metric and variant."""
    table = light_table(name)
    if any(group.chance_to_win is not None for metric in metrics for group in _compared(metric)):
        table.caption = "Certainty: the chance to beat the baseline."
    table.add_column("Metric", overflow="fold")
    for column in ("People", "Total", "Value", "Effect"):
        table.add_column(column, justify="right", no_wrap=True)
    intervals = [
        interval_text(group.interval, relative=relative, is_share=metric.is_share)
        for metric in metrics
        for group in _compared(metric)
        if group.interval is not None
    ]
    # An interval stays on one line; what is said in the place of one may take more.
    table.add_column(
        f"{level * 100:g}% interval", justify="right", min_width=max(map(len, intervals), default=0)
    )
    table.add_column("Certainty", justify="right", no_wrap=True)
    for metric in metrics:
        if metric.result is None:
            table.add_row(metric.title, "", "", "", "", metric.error or "not computed", "")
        else:
            baseline = metric.result.baseline
            table.add_row(metric.title, "", "", Text(metric.value_label, style="dim"))
            table.add_row(f"  {baseline.key}", *_totals(metric, baseline), "baseline", "", "")
            for group in metric.result.variants:
                table.add_row(
                    f"  {group.key}",
                    *_totals(metric, group),
                    Text(
                        effect_text(
                            group.effect, relative=relative, is_share=metric.is_share, baseline=baseline.mean
                        )
                        if group.effect is not None
                        else MISSING,
                        _style(metric, group),
                    ),
                    interval_text(group.interval, relative=relative, is_share=metric.is_share)
                    if group.interval is not None
                    else Text(group.problem or "", style="dim"),
                    metric.certainty(group) + (" *" if metric.is_significant(group) else ""),
                )
    return table


def _compared(metric: MetricReport) -> Sequence[Group]:
    return metric.result.variants if metric.result is not None else ()


def _totals(metric: MetricReport, group: Group) -> tuple[str, str, str]:
    return f"{group.size:,}", number_text(group.total), mean_text(group.mean, is_share=metric.is_share)


def _style(metric: MetricReport, group: Group) -> str:
    return {True: "green", False: "red", None: ""}[metric.is_better(group)]


def plot_rows(metric: MetricReport, truth: float | None = None) -> list[PlotRow]:
    """Return the intervals of a metric's variants."""
    return [
        PlotRow(
            group.key,
            *group.interval,
            truth,
            _style(metric, group),
            metric.name,
            metric.is_share,
            group.effect,
        )
        for group in _compared(metric)
        if group.interval is not None
    ]


@dataclass(frozen=True, slots=True)
class IntervalPlot:
    """Plot of intervals as wide as the terminal, up to ``width`` characters.

    They share an axis when they are relative, else each metric has its own, because it has a unit of its own.

    ``┃`` no effect, ``●`` the estimate, ``◆`` the known truth, ``◀▶`` cut off.
    """

    rows: Sequence[PlotRow]
    relative: bool = True
    width: int = PLOT_WIDTH
    marked: bool = True
    """Whether anything in the table beside the plot is marked as significant."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.rows:
            yield Text("No intervals yet.")
            return
        room = options.max_width - MIN_PLOT_WIDTH - 2
        labels = [f"{row.metric} · {row.label}" if row.metric else row.label for row in self.rows]
        in_one = max(map(cell_len, labels)) <= room
        if not in_one:  # the metric on a line of its own, above its variants
            labels = [f"  {row.label}" for row in self.rows]
        width = min(max(map(cell_len, labels)), room) + 2
        above = ""
        of_axis = groupby(
            zip(self.rows, labels, strict=True),
            lambda row_and_label: "" if self.relative else row_and_label[0].metric,
        )
        for drawn in (list(row_and_label) for _, row_and_label in of_axis):
            rows = [row for row, _ in drawn]
            axis = _Axis.of(rows, min(self.width, options.max_width - width))
            for row, label in drawn:
                if not in_one and row.metric != above:
                    yield Text(row.metric, no_wrap=True, overflow="ellipsis")
                    above = row.metric
                yield Text(set_cell_size(_shown(label, width - 2), width), no_wrap=True).append(
                    axis.drawn(row), style=row.style
                )
            ticks = axis.ticks(relative=self.relative, is_share=rows[0].is_share)
            yield Text(" " * width + ticks, style="dim", no_wrap=True)
        known = "   ◆ the true effect" if any(row.truth is not None for row in self.rows) else ""
        marked = "   * significant" if self.marked else ""
        yield Text(f"┃ no effect   ● estimate{known}{marked}", style="dim")


def _shown(label: str, width: int) -> str:
    """Return a label that fits; the middle is left out of a long one, as names of variants differ at their ends."""
    if cell_len(label) <= width:
        return label
    end = label[-(width // 2) :]
    return f"{set_cell_size(label, width - 1 - cell_len(end))}…{end}"


@dataclass(frozen=True, slots=True)
class _Axis:
    """Axis of effects on a line of the given number of characters."""

    low: float
    high: float
    margin: float
    width: int

    @classmethod
    def of(cls, rows: Sequence[PlotRow], width: int) -> _Axis:
        bounds = [bound for row in rows for bound in (row.low, row.high) if isfinite(bound)]
        points = [0.0, *bounds, *(point for row in rows for point in (row.effect, row.truth or 0.0))]
        farthest = CLIPPED_AT * median(row.reach for row in rows)
        low, high = max(min(points), -farthest), min(max(points), farthest)
        margin = (high - low) * 0.05 or 0.01
        return cls(low - margin, high + margin, margin, width)

    def place(self, value: float) -> int:
        inside = min(max(value, self.low), self.high)
        return round((inside - self.low) / (self.high - self.low) * (self.width - 1))

    def drawn(self, row: PlotRow) -> str:
        cells = [" "] * self.width
        first, last = self.place(row.low), self.place(row.high)
        cells[first : last + 1] = ["─"] * (last - first + 1)
        cells[first] = "├" if row.low >= self.low else "◀"
        cells[last] = "┤" if row.high <= self.high else "▶"
        cells[self.place(0.0)] = "┃"
        cells[self.place(row.effect)] = "●"
        if row.truth is not None:
            cells[self.place(row.truth)] = "◆"
        return "".join(cells)

    def ticks(self, *, relative: bool, is_share: bool) -> str:
        cells = [" "] * self.width
        for value in (self.low + self.margin, self.high - self.margin, 0.0):
            text = effect_text(value, relative=relative, is_share=is_share)
            start = min(max(self.place(value) - len(text) // 2, 0), self.width - len(text))
            cells[start : start + len(text)] = text
        return "".join(cells)
