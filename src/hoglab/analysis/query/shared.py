"""Many questions about the same exposures from one look at the events.

What the statements of all questions read of the events of exposed entities is put into a temporary table once:
the columns, and each property that any of them asks for, taken out of its JSON. The statements then read that
narrow table instead of all events (spec experiment-results 11: relevance logs, for the time of one computation).
"""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from hoglab.analysis.query.duckdb import PROMOTED, DuckDb
from hoglab.analysis.query.exposures import define_units, exposure_condition
from hoglab.analysis.query.model import (
    EventSource,
    FunnelMetric,
    MeanMetric,
    Metric,
    QuantileMetric,
    Question,
    RatioMetric,
    RetentionMetric,
    Value,
    later,
    sources_of,
    tables_of,
)
from hoglab.analysis.query.retention import span_us
from hoglab.analysis.query.scope import Scope, Statement, exclusive
from hoglab.analysis.query.statements import compiled
from hoglab.filters import FilterError
from hoglab.filters.model import GROUP_TYPES
from hoglab.filters.sql import Parameters, combined

TABLE = "shared_events"
UNIT_TABLES = ("shared_exposures", "shared_flagged")
"""The exposures, and who was exposed to what: the first two subqueries of every statement."""
DROP = tuple(f"DROP TABLE IF EXISTS {table}" for table in (TABLE, *UNIT_TABLES))
MIN_QUESTIONS = 3
"""For fewer questions the table costs more than it saves."""

COLUMNS = (
    *("project_id", "uuid", "event", "distinct_id", "timestamp", "person_id", "elements_chain"),
    *(f"group_{index}" for index in range(GROUP_TYPES)),
    *PROMOTED.values(),
)
"""What statements may read of an event beside its properties."""


class _Noting(DuckDb):
    """Notes what properties statements read."""

    def __init__(self) -> None:
        self.texts: dict[tuple[str, str], str] = {}
        self.numbers: dict[tuple[str, str], str] = {}

    def property_text(self, column: str, key: str, parameters: Parameters) -> str:
        if column != "properties" or key not in PROMOTED:
            self.texts.setdefault((column, key), f"text_{len(self.texts)}")
        return super().property_text(column, key, parameters)

    def json_number(self, column: str, key: str, parameters: Parameters) -> str:
        self.numbers.setdefault((column, key), f"number_{len(self.numbers)}")
        return super().json_number(column, key, parameters)


class SharedEvents(DuckDb):
    """Statements over the temporary tables that `statements` make, one after the other."""

    events = TABLE

    def __init__(self, questions: Sequence[Question]) -> None:
        """``questions`` have the same project, entities and span; one that no statement can answer is passed
        over here. Raises `hoglab.filters.FilterError` when that is so for all."""
        noting, usable = _Noting(), []
        for question in questions:
            with suppress(FilterError):
                compiled(question, noting)
                usable.append(question)
        self._texts, self._numbers = noting.texts, noting.numbers
        self._units: list[tuple[str, str]] = []
        self._unit_values: dict[str, object] = {}
        self.statements = [_table(questions, noting), *self._unit_tables((usable or questions)[0])]

    def _unit_tables(self, question: Question) -> Iterator[Statement]:
        """Tables of who was exposed, read from the events' table; `ready` puts them into statements."""
        scope = Scope(question, self)
        define_units(scope)
        before = ""
        for name, sql in scope.subqueries[: len(UNIT_TABLES)]:
            yield Statement(
                f"CREATE TEMP TABLE {UNIT_TABLES[len(self._units)]} AS {before}{sql}",
                scope.parameters.used_in(sql),
            )
            before = f"WITH {name} AS (SELECT * FROM {UNIT_TABLES[len(self._units)]}) "
            self._unit_values |= scope.parameters.used_in(sql)
            self._units.append((name, sql))

    def ready(
        self, subqueries: Sequence[tuple[str, str]], parameters: Parameters
    ) -> Sequence[tuple[str, str]]:
        """With the tables of the exposed in the place of what they were made of, where that is the same."""
        count = len(self._units)
        same = list(subqueries[:count]) == self._units and all(
            parameters.used_in(sql).items() <= self._unit_values.items() for _, sql in self._units
        )
        if not count or not same:
            return subqueries
        made = [
            (name, f"SELECT * FROM {table}")
            for (name, _), table in zip(self._units, UNIT_TABLES, strict=True)
        ]
        return [*made, *subqueries[count:]]

    def property_text(self, column: str, key: str, parameters: Parameters) -> str:
        known = self._texts.get((column, key))
        return super().property_text(column, key, parameters) if known is None else known

    def json_number(self, column: str, key: str, parameters: Parameters) -> str:
        known = self._numbers.get((column, key))
        return super().json_number(column, key, parameters) if known is None else known


def can_share(question: Question) -> bool:
    """Sessions are made of events that no metric asks for, and tables and groups are joined by those who ask."""
    return (
        not tables_of(question.metric)
        and not question.group_properties
        and all(value.session_property is None for value in _values(question.metric))
    )


def _table(questions: Sequence[Question], noting: _Noting) -> Statement:
    """``CREATE TEMP TABLE``: events of exposed entities that any of the questions may read."""
    first = replace(questions[0], exposures=replace(questions[0].exposures, breakdowns=()))
    scope = Scope(first, DuckDb())
    span = first.span
    taken = [
        *(
            f"{scope.dialect.property_text(*place, scope.parameters)} AS {name}"
            for place, name in noting.texts.items()
        ),
        *(
            f"{scope.dialect.json_number(*place, scope.parameters)} AS {name}"
            for place, name in noting.numbers.items()
        ),
    ]
    since = span.start - timedelta(microseconds=max(map(lookback_us, questions)))
    until = later(exclusive(span.end), max(map(_reach_us, questions)))
    names = [_named(scope, source) for question in questions for source in _sources(question)]
    exposed = combined("AND", [scope.within(span.start, exclusive(span.end)), exposure_condition(scope)])
    sql = (
        f"CREATE TEMP TABLE {TABLE} AS SELECT {', '.join((*COLUMNS, *taken))} FROM {scope.dialect.events} "
        f"WHERE {scope.within(since, until)} AND {combined('OR', list(dict.fromkeys(names)))} "
        f"AND {scope.entity()} IN (SELECT {scope.entity()} FROM {scope.dialect.events} WHERE {exposed})"
    )
    return Statement(sql, scope.parameters.used_in(sql))


def _named(scope: Scope, source: EventSource) -> str:
    """A condition that every event of a source meets."""
    parts = [
        "TRUE" if match.event is None else f"event = {scope.bind(match.event)}"
        for match in source.alternatives
    ]
    return combined("OR", parts) if parts else "FALSE"


def _sources(question: Question) -> Iterator[EventSource]:
    yield from exposure_sources(question)
    yield from metric_sources(question.metric)


def exposure_sources(question: Question) -> Iterator[EventSource]:
    """Where the events come from that expose an entity."""
    yield question.exposures.source
    if question.exposures.activation is not None:
        yield question.exposures.activation


def metric_sources(metric: Metric) -> Iterator[EventSource]:
    """Where the events come from that a metric counts."""
    yield from (source for source in sources_of(metric) if isinstance(source, EventSource))


def _values(metric: Metric) -> tuple[Value, ...]:
    match metric:
        case MeanMetric() | QuantileMetric():
            return (metric.value,)
        case RatioMetric():
            return (metric.numerator, metric.denominator)
    return ()


def lookback_us(question: Question) -> int:
    """How long before the start of the span a question may read."""
    metric = question.metric
    return metric.covariate_us if isinstance(metric, MeanMetric | FunnelMetric) else 0


def _reach_us(question: Question) -> int:
    """How long after the end of the span a question may read."""
    metric = question.metric
    extra = max(0, span_us(metric)) if isinstance(metric, RetentionMetric) else 0
    return metric.window_us + extra
