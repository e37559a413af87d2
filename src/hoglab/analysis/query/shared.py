"""Many questions about the same exposures from one look at the events.

What the statements of all questions read of the events of exposed entities is put into a temporary table once:
the columns, and each property that any of them asks for, taken out of its JSON. The statements then read that
narrow table instead of all events (spec experiment-results 11: relevance logs, for the time of one computation).
"""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from hoglab.analysis.query.duckdb import PROMOTED, DuckDb
from hoglab.analysis.query.exposures import define_units
from hoglab.analysis.query.model import (
    EventSource,
    FunnelMetric,
    Metric,
    QuantileMetric,
    Question,
    RetentionMetric,
    later,
    metric_sources,
    tables_of,
    values_of,
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

MAX_TAKEN = 500
"""How many properties a table of events may have; what reads more is computed from all events."""

COLUMNS = (
    *("project_id", "uuid", "event", "distinct_id", "timestamp", "person_id", "elements_chain"),
    *(f"group_{index}" for index in range(GROUP_TYPES)),
    *PROMOTED.values(),
)
"""What statements may read of an event beside its properties."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """A question, and the words of what its statement reads of events: to tell who is exposed, beside
    `UNIT_TABLES`, and for the rest."""

    question: Question
    units: frozenset[str]
    metric: frozenset[str]

    def sources_of(self, words: Collection[str]) -> Iterator[EventSource]:
        """Where the events come from of which any of the words is read."""
        if not self.units.isdisjoint(words):
            yield from self.question.exposures.sources
        if not self.metric.isdisjoint(words):
            yield from metric_sources(self.question.metric)
            if isinstance(self.question.metric, FunnelMetric):  # an exposure is the first step
                yield from self.question.exposures.sources


class SharedEvents(DuckDb):
    """Statements over the temporary tables that `statements` make, one after the other."""

    events = TABLE

    def __init__(self, questions: Sequence[Question]) -> None:
        """``questions`` have the same project, entities and span; one that no statement can answer is passed
        over here. Raises `hoglab.filters.FilterError` when that is so for all, or when they read too much."""
        self._taken: dict[tuple[bool, str, str], str] = {}
        self._numbers: dict[str, str] = {}
        self._subqueries: Sequence[tuple[str, str]] = ()
        self._units: list[tuple[str, str]] = []
        self._unit_values: dict[str, object] = {}
        found = []
        for question in questions:
            try:
                found.append(self._reading(question))
            except FilterError as error:
                refused = error
        if not found:
            raise refused
        self.statements = [*self._unit_tables(found[0].question), self._table(found)]

    def _reading(self, question: Question) -> _Reading:
        """What the statement of a question reads, which is noted on the way."""
        scope = Scope(question, self)
        define_units(scope)
        compiled(question, self)
        of_units = [sql for _, sql in scope.subqueries]
        others = [sql for _, sql in self._subqueries if sql not in of_units]
        return _Reading(question, _words(of_units[len(UNIT_TABLES) :]), _words(others))

    def _table(self, found: Sequence[_Reading]) -> Statement:
        """``CREATE TEMP TABLE``: events of exposed entities that any of the questions may read."""
        questions = [reading.question for reading in found]
        first = replace(questions[0], exposures=replace(questions[0].exposures, breakdowns=()))
        scope = Scope(first, DuckDb())
        span, events, entity = first.span, scope.dialect.events, scope.entity()
        since = span.start - timedelta(microseconds=max(question.lookback_us for question in questions))
        until = later(exclusive(span.end), max(map(_reach_us, questions)))
        words = {word for reading in found for word in reading.units | reading.metric} | {entity}
        columns = [name for name in COLUMNS if name in words]
        numbers = {text: name for text, name in self._numbers.items() if name in words}
        taken = {name: place for place, name in self._taken.items() if name in words or name in numbers}
        if len(taken) > MAX_TAKEN:
            raise FilterError(f"more than {MAX_TAKEN} properties are read", "")
        read = [
            f"{_extracted(scope, *place, _readers(scope, found, {name, numbers.get(name, name)}))} AS {name}"
            for name, place in taken.items()
        ]
        made = [f"{scope.dialect.number(text)} AS {name}" for text, name in numbers.items()]
        sql = (
            f"CREATE TEMP TABLE {TABLE} AS "
            f"SELECT {', '.join([*columns, *(name for name in taken if name in words), *made])} "
            f"FROM (SELECT {', '.join([*columns, *read])} FROM {events} "
            f"WHERE {scope.within(since, until)} AND {_readers(scope, found, words)} "
            f"AND {entity} IN (SELECT entity FROM {UNIT_TABLES[-1]})) AS event_of_exposed"
        )
        return Statement(sql, scope.parameters.used_in(sql))

    def _unit_tables(self, question: Question) -> Iterator[Statement]:
        """Tables of who was exposed; `ready` puts them into statements."""
        scope, of_shared = Scope(question, DuckDb()), Scope(question, self)
        define_units(scope)
        define_units(of_shared)
        before = ""
        replaced = of_shared.subqueries[: len(UNIT_TABLES)]
        for table, (name, sql), same in zip(UNIT_TABLES, scope.subqueries, replaced, strict=False):
            values = scope.parameters.used_in(sql)
            yield Statement(f"CREATE TEMP TABLE {table} AS {before}{sql}", values)
            before = f"WITH {name} AS (SELECT * FROM {table}) "
            self._unit_values |= of_shared.parameters.used_in(same[1])
            self._units.append(same)

    def ready(
        self, subqueries: Sequence[tuple[str, str]], parameters: Parameters
    ) -> Sequence[tuple[str, str]]:
        """With the tables of the exposed in the place of what they were made of, where that is the same."""
        self._subqueries = subqueries
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
        if column == "properties" and key in PROMOTED:
            return super().property_text(column, key, parameters)
        return self._taken.setdefault((False, column, key), f"taken_{len(self._taken)}")

    def json_number(self, column: str, key: str, parameters: Parameters) -> str:
        del parameters
        return self._taken.setdefault((True, column, key), f"taken_{len(self._taken)}")

    def number(self, text: str) -> str:
        if text not in self._taken.values():
            return super().number(text)
        return self._numbers.setdefault(text, f"number_of_{text}")


def can_share(question: Question) -> bool:
    """Sessions are made of events that no metric asks for, they, tables and groups are joined by those who ask, and
    quantiles of cells need another question for everybody."""
    metric = question.metric
    return (
        not tables_of(metric)
        and not question.group_properties
        and not question.session_properties
        and not (isinstance(metric, QuantileMetric) and question.exposures.breakdowns)
        and not of_sessions(metric)
    )


def _extracted(scope: Scope, is_number: bool, column: str, key: str, readers: str) -> str:
    """A property, taken out of its JSON only where somebody reads it."""
    take = scope.dialect.json_number if is_number else scope.dialect.property_text
    return f"CASE WHEN {readers} THEN {take(column, key, scope.parameters)} END"


def _readers(scope: Scope, found: Sequence[_Reading], words: Collection[str]) -> str:
    """A condition that every event meets of which any of the words is read."""
    sources = [source for reading in found for source in reading.sources_of(words)]
    return combined("OR", list(dict.fromkeys(named(scope, source) for source in sources)))


def named(scope: Scope, source: EventSource) -> str:
    """A condition that every event of a source meets."""
    parts = [
        "TRUE" if match.event is None else f"event = {scope.bind(match.event)}"
        for match in source.alternatives
    ]
    return combined("OR", parts) if parts else "FALSE"


def of_sessions(metric: Metric) -> bool:
    """Whether a metric takes a value of sessions."""
    return any(value.session_property is not None for value in values_of(metric))


def _reach_us(question: Question) -> int:
    """How long after the end of the span a question may read."""
    metric = question.metric
    extra = max(0, span_us(metric)) if isinstance(metric, RetentionMetric) else 0
    return metric.window_us + extra


def _words(texts: Iterable[str]) -> frozenset[str]:
    """The words of subqueries that read the shared events."""
    return frozenset(word for text in texts if TABLE in text for word in re.findall(r"\w+", text))
