"""The statistics made of a statement's rows, and the questions that one statement can answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import accumulate, chain
from math import fsum
from typing import Any

from hoglab.analysis.query.days import end_of_day
from hoglab.analysis.query.metrics.outcome import Outcome
from hoglab.analysis.query.metrics.quantiles import quantile_sample
from hoglab.analysis.query.model import (
    FunnelMeasure,
    Math,
    MeanMeasure,
    Metric,
    QuantileMeasure,
    Question,
    RatioMeasure,
    RetentionMeasure,
    Span,
    Value,
    of_sessions,
    tables_of,
)
from hoglab.analysis.query.scope import SqlStatement
from hoglab.statistics import (
    Proportion,
    QuantileSample,
    Ratio,
    Retention,
    SampleMean,
    SufficientStatistics,
    WithCovariate,
)

Groups = Mapping[str, SufficientStatistics]
"""Statistics by variant; a variant without samples is missing."""

Cell = tuple[str, ...]
"""The values of the breakdowns; empty without any."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Statistics by variant, over everybody and for each cell of breakdowns (none without breakdowns)."""

    groups: Groups
    cells: Mapping[Cell, Groups] = field(default_factory=dict)

    @classmethod
    def of(cls, cells: Mapping[Cell, Groups]) -> Answer:
        """Make an answer of cells and their sum (spec experiment-results 3.9); quantiles do not add up."""
        if set(cells) <= {()}:
            return cls(cells.get((), {}))
        groups: dict[str, Any] = {}
        for cell in cells.values():
            for variant, statistics in cell.items():
                if isinstance(statistics, QuantileSample):
                    continue
                groups[variant] = groups[variant] + statistics if variant in groups else statistics
        return cls(groups, dict(sorted(cells.items())))


@dataclass(frozen=True, slots=True)
class Compiled:
    """A statement, and the way to read its rows."""

    question: Question
    statement: SqlStatement
    outcome: Outcome

    def answer(self, rows: Sequence[tuple[Any, ...]]) -> Answer:
        """Read the answer of a question without days."""
        variants = self.question.exposures.variants
        width = len(self.question.exposures.breakdowns)
        cells: dict[Cell, dict[str, SufficientStatistics]] = {}
        for variant, *rest in rows:
            cell, sums = tuple(rest[:width]), rest[width:]
            if 0 <= variant < len(variants) and sums[0]:
                cells.setdefault(cell, {})[variants[variant]] = self.statistics(sums)
        return Answer.of(cells)

    def points(self, rows: Sequence[tuple[Any, ...]]) -> Sequence[Answer]:
        """Read the answer of a question with days: the statistics at the end of each day of the grid."""
        grid = self.question.span.days
        assert grid is not None  # noqa: S101 - the caller asked for days
        variants = self.question.exposures.variants
        width = len(self.question.exposures.breakdowns)
        changes: dict[tuple[int, Cell], list[list[Sequence[Any]]]] = {}
        for variant, *rest in rows:
            cell, day, changed = tuple(rest[:width]), rest[width], rest[width + 1 :]
            if 0 <= variant < len(variants):
                changes.setdefault((variant, cell), [[] for _ in range(grid.count)])[day].append(changed)
        points: list[dict[Cell, dict[str, SufficientStatistics]]] = [{} for _ in range(grid.count)]
        for (variant, cell), days in changes.items():
            columns = [
                _running([[changed[place] for changed in day] for day in days])
                for place in range(len(self.outcome.statistics))
            ]
            for point, sums in zip(points, zip(*columns, strict=True), strict=True):
                if sums[0]:
                    point.setdefault(cell, {})[variants[variant]] = self.statistics(sums)
        return [Answer.of(point) for point in points]

    def statistics(self, sums: Sequence[Any]) -> SufficientStatistics:
        """Compute the statistics of one row of sums."""
        if isinstance(self.question.metric, QuantileMeasure):
            return quantile_sample(self.question.metric, sums)
        numbers = [_plain(number) for number in sums]
        size = int(numbers[0])
        match self.question.metric:
            case MeanMeasure() as metric:
                mean = SampleMean(size, numbers[1], numbers[2])
                return WithCovariate(mean, *numbers[3:]) if metric.covariate_us else mean
            case RatioMeasure():
                return Ratio(size, *numbers[1:-1], people_counted=int(numbers[-1]))
            case FunnelMeasure() as metric:
                last = len(metric.steps)
                steps = tuple(int(number) for number in numbers[1 : last + 1])
                funnel = Proportion(size, steps[-1], steps)
                return WithCovariate(funnel, *numbers[last + 1 :]) if metric.covariate_us else funnel
            case RetentionMeasure():
                return Retention(size, int(numbers[1]))


def is_additive(metric: Metric) -> bool:
    """Return whether all days of a series can be computed in one pass (spec experiment-results 11.3).

    It is not additive when percentile bounds, quantiles (also those of an entity's own events), the last start of
    an entity or the length of a session change from day to day.
    """
    match metric:
        case MeanMeasure():
            return _adds_up(metric.value)
        case RatioMeasure():
            return _adds_up(metric.numerator) and _adds_up(metric.denominator)
        case QuantileMeasure():
            return False
        case RetentionMeasure():
            return not metric.last_seen
        case FunnelMeasure():
            return True


def can_share(question: Question) -> bool:
    """Return whether a question only reads events of its own entities.

    Then other questions can share the scan, and the results of entities can be materialized.

    Sessions consist of events that no metric asks for; sessions, tables and groups are joined by the question
    itself; and quantiles of cells need another question for everybody.
    """
    metric = question.metric
    return (
        not tables_of(metric)
        and not question.group_properties
        and not question.session_properties
        and not (isinstance(metric, QuantileMeasure) and question.exposures.breakdowns)
        and not of_sessions(metric)
    )


def all_days_at_once(question: Question) -> bool:
    """Return whether all days of a question can be computed in one pass.

    The properties of a session that filters ask for change from day to day.
    """
    return is_additive(question.metric) and not question.session_properties


def _adds_up(value: Value) -> bool:
    return value.bounds is None and value.session_property is None and value.math is not Math.QUANTILE


def at_end_of_day(question: Question, number: int) -> Question:
    """Return the question of one point of a series alone."""
    grid = question.span.days
    assert grid is not None  # noqa: S101 - the caller asked for days
    span = question.span
    if number == grid.count - 1:
        return replace(question, span=replace(span, days=None))
    end = end_of_day(grid.days[number], grid.zone) - timedelta(microseconds=1)
    return replace(question, span=Span(span.start, end, span.now, capped=True))


def _running(changes: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the sums of all changes up to each day; sums of floats without accumulated rounding."""
    if all(isinstance(change, int) for day in changes for change in day):
        return list(accumulate(map(sum, changes)))
    return [fsum(chain.from_iterable(changes[: index + 1])) for index in range(len(changes))]


def _plain(number: Any) -> Any:
    if number is None:
        return 0
    return (
        int(number) if isinstance(number, float) and number.is_integer() and abs(number) < 2**53 else number
    )
