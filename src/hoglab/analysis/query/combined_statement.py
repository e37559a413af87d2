"""Several metrics from one pass over the events of exposed entities.

Means and ratios whose values are sums, averages or extremes of events differ only in the events that count and in
their values. So one statement combines them side by side: the events are joined and grouped by entity once,
and the statistics of all metrics come in one row for each variant.
"""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hoglab.analysis.query.event_relation import ALL_EVENTS, NO_USE, EventRelation
from hoglab.analysis.query.exposures import define_exposures, define_units
from hoglab.analysis.query.metrics.outcome import Outcome, total_columns
from hoglab.analysis.query.metrics.values import (
    aggregates,
    counted,
    is_of_different_ones,
    ratio_outcome,
    sides_of,
    value_of_event,
    valued_outcome,
)
from hoglab.analysis.query.model import (
    EventSource,
    MeanMeasure,
    Question,
    RatioMeasure,
    Value,
    metric_sources,
)
from hoglab.analysis.query.scope import Scope, SqlStatement
from hoglab.analysis.query.statements import Answer, Compiled
from hoglab.filters.sql import combined
from hoglab.storage.event_store.dialects import Dialect

MAX_COMBINED = 10
"""Maximum number of metrics in one statement.

Each of them takes memory for every exposed entity; with dozens of them the values exceed the processor's caches,
which costs more than another scan of the events.
"""


@dataclass(frozen=True, slots=True)
class CombinedStatement:
    """One statement for several questions."""

    statement: SqlStatement
    parts: tuple[Compiled, ...]
    """The compiled question of each part, with the common statement."""

    def answers(self, rows: Sequence[tuple[object, ...]]) -> Iterator[Answer]:
        """Yield the answer of each question."""
        key = 1 + len(self.parts[0].question.exposures.breakdowns)
        start = key
        for part in self.parts:
            end = start + len(part.outcome.statistics)
            yield part.answer([(*row[:key], *row[start:end]) for row in rows])
            start = end


def can_combine(question: Question) -> bool:
    """Return whether `combine_questions` answers a question."""
    metric = question.metric
    return (
        question.span.days is None
        and not question.matured_only
        and not (isinstance(metric, MeanMeasure) and metric.covariate_us)
        and bool(values := _values(question))
        and all(
            isinstance(value.source, EventSource)
            and value.session_property is None
            and value.bounds is None
            and not is_of_different_ones(value)
            for value in values.values()
        )
    )


def combine_questions(
    questions: Sequence[Question], dialect: Dialect, relation: EventRelation = ALL_EVENTS
) -> CombinedStatement:
    """Return one statement for questions about the same exposures and span that `can_combine`.

    Raises `hoglab.filters.FilterError` as `compiled` does.
    """
    scope = Scope(questions[0], dialect, relation)
    define_exposures(scope)
    define_units(scope)
    partials: list[str] = []
    values: list[str] = []
    statistics: list[str] = []
    outcomes: list[Outcome] = []
    use = NO_USE
    for number, question in enumerate(questions):
        prefix = f"q{number}_"
        outcome = _outcome(question)
        beside = scope.beside(question)
        partials += _partials(beside, prefix)
        use |= beside.row.take_use()
        evaluated = outcome.evaluated(f"combined.{prefix}{{name}}")
        values += [f"{text} AS {prefix}{name}" for name, text in evaluated.items()]
        statistics += total_columns(scope, outcome, prefix)
        outcomes.append(outcome)
    names = [
        scope.may_come_from(source) for question in questions for source in metric_sources(question.metric)
    ]
    some = combined("OR", list(dict.fromkeys(names)))
    scope.define(
        "combined",
        f"SELECT unit.entity AS entity, {', '.join(partials)} "
        f"FROM {scope.events} INNER JOIN unit ON unit.entity = {scope.entity()} "
        f"WHERE {some} AND {scope.ts()} >= unit.t0 GROUP BY unit.entity",
        use,
    )
    scope.define(
        "valued",
        f"SELECT unit.variant AS variant{scope.cell_of('unit')}, {', '.join(values)} "
        "FROM unit LEFT JOIN combined ON combined.entity = unit.entity",
    )
    key = ", ".join(["variant", *scope.cell])
    statement = scope.statement(f"SELECT {key}, {', '.join(statistics)} FROM valued GROUP BY {key}")
    parts = zip(questions, outcomes, strict=True)
    return CombinedStatement(
        statement, tuple(Compiled(question, statement, outcome) for question, outcome in parts)
    )


def _values(question: Question) -> Mapping[str, Value]:
    """Return the values that a metric combines, by their names in its outcome."""
    match question.metric:
        case MeanMeasure() as metric:
            return {"a": metric.value}
        case RatioMeasure() as metric:
            return sides_of(metric)
    return {}


def _outcome(question: Question) -> Outcome:
    metric = question.metric
    assert isinstance(metric, MeanMeasure | RatioMeasure)  # noqa: S101 - see can_combine
    return ratio_outcome(metric) if isinstance(metric, RatioMeasure) else valued_outcome(metric.value, "a")


def _partials(scope: Scope, prefix: str) -> Iterator[str]:
    """Yield the partials of one question, as columns of the statement that scans the events."""
    metric = scope.question.metric
    assert isinstance(metric, MeanMeasure | RatioMeasure)  # noqa: S101 - see can_combine
    window_us = metric.window_us
    within = scope.within(scope.question.span.start, scope.read_until(window_us))
    window = f"{scope.ts()} < unit.t0 + {window_us}" if window_us else ""
    for side, value in _values(scope.question).items():
        assert isinstance(value.source, EventSource)  # noqa: S101 - see can_combine
        counts = combined("AND", [within, scope.matches(value.source), *([window] if window else [])])
        x = counted(value, value_of_event(scope, value))
        for name, text in aggregates(scope, value, side, x).items():
            yield f"{text} FILTER (WHERE {counts}) AS {prefix}{name}"
