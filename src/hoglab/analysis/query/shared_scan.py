"""Many questions about the same exposures from one scan of the events.

The columns of exposed entities' events that the statements of all questions use are put into a temporary table
once, with each property that any of them asks for extracted from its JSON. The statements then read that narrow
table instead of all events (spec experiment-results 11: relevance logs, for the time of one computation).
"""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from hoglab.analysis.query.event_relation import (
    COLUMNS,
    ColumnUse,
    EventRelation,
    ExposureTables,
    Form,
    Property,
)
from hoglab.analysis.query.exposures import define_exposures
from hoglab.analysis.query.metrics.retention import span_us
from hoglab.analysis.query.model import (
    EventSource,
    FunnelMeasure,
    Question,
    RetentionMeasure,
    later,
    metric_sources,
)
from hoglab.analysis.query.pipeline import pipeline_of
from hoglab.analysis.query.scope import Scope, SqlStatement, exclusive
from hoglab.filters import FilterError
from hoglab.filters.sql import combined
from hoglab.storage.event_store.dialects import Dialect

TABLE = "shared_events"
EXPOSURE_TABLES = ("shared_exposures", "shared_flagged")
"""The exposures, and the variants of entities: the first stage of every statement."""
MIN_QUESTIONS = 3
"""Smallest number of questions for which the table saves more than it costs."""

MAX_PROPERTIES = 500
"""Maximum number of properties in a table of events; a question with more is computed from all events."""


@dataclass(frozen=True, slots=True)
class SharedScan:
    """Temporary tables, created by ``statements`` in order, and the relation that then replaces all events."""

    statements: tuple[SqlStatement, ...]
    relation: EventRelation


@dataclass(frozen=True, slots=True)
class _QuestionUse:
    """A question, and the columns that its statement uses of events.

    It has the columns for deciding who is exposed, besides `EXPOSURE_TABLES`, and the ones for the rest.
    """

    question: Question
    exposures: ColumnUse
    metric: ColumnUse

    @property
    def column_use(self) -> ColumnUse:
        return self.exposures | self.metric

    def sources_of(self, wanted: Callable[[ColumnUse], bool]) -> Iterator[EventSource]:
        """Yield the sources of the events whose uses satisfy a condition."""
        if wanted(self.exposures):
            yield from self.question.exposures.sources
        if wanted(self.metric):
            yield from metric_sources(self.question.metric)
            if isinstance(self.question.metric, FunnelMeasure):  # an exposure is the first step
                yield from self.question.exposures.sources


def shared_scan(questions: Sequence[Question], dialect: Dialect) -> SharedScan:
    """Return one scan of the events for questions about a whole span that have the same project, entities and span.

    A question that no statement can answer is skipped. Raises `hoglab.filters.FilterError` when all are skipped, or
    when they use too many properties.
    """
    relation = EventRelation(TABLE, property_forms=frozenset(Form))
    uses: list[_QuestionUse] = []
    for question in questions:
        try:
            pipeline = pipeline_of(Scope(question, dialect, relation))
        except FilterError as error:
            refused = error
        else:
            uses.append(_QuestionUse(question, pipeline.use_of_entry, pipeline.use_of_metric))
    if not uses:
        raise refused
    first = uses[0].question
    return SharedScan(
        (*_exposure_tables(Scope(first, dialect)), _event_table(Scope(first, dialect), uses)),
        replace(relation, exposures=ExposureTables(first, EXPOSURE_TABLES)),
    )


def drop_tables(dialect: Dialect) -> list[str]:
    """Return the statements that drop these tables."""
    return [dialect.drop_table(table) for table in (TABLE, *EXPOSURE_TABLES)]


def _exposure_tables(scope: Scope) -> Iterator[SqlStatement]:
    """Yield the tables of exposures and variants."""
    tables: dict[str, str] = {}
    for table, subquery in zip(EXPOSURE_TABLES, scope.collect(define_exposures), strict=True):
        named = ",\n".join(scope.dialect.named(name, f"SELECT * FROM {tables[name]}") for name in tables)
        sql = f"WITH {named} {subquery.sql}" if named else subquery.sql
        yield _table(scope, table, sql)
        tables[subquery.name] = table


def _event_table(scope: Scope, uses: Sequence[_QuestionUse]) -> SqlStatement:
    """Return the table of events of exposed entities that any of the questions may read."""
    questions = [use.question for use in uses]
    since = scope.question.span.start - timedelta(
        microseconds=max(question.lookback_us for question in questions)
    )
    until = later(exclusive(scope.question.span.end), max(map(_reach_us, questions)))
    entity = scope.entity()
    used = ColumnUse.of(use.column_use for use in uses) | ColumnUse(columns=frozenset((entity,)))
    columns = [name for name in COLUMNS if name in used.columns]
    properties = sorted(used.properties, key=lambda wanted: wanted.name)
    numbers = [number for number in properties if number.form is Form.NUMBER]  # computed from their texts
    extracted = list(
        dict.fromkeys(wanted.as_(Form.TEXT) if wanted in numbers else wanted for wanted in properties)
    )
    if len(extracted) > MAX_PROPERTIES:
        raise FilterError(f"more than {MAX_PROPERTIES} properties are read", "")
    texts = [f"{_extract(scope, uses, wanted)} AS {wanted.name}" for wanted in extracted]
    shown = [wanted.name for wanted in extracted if wanted in used.properties]
    shown += [f"{scope.dialect.number(number.as_(Form.TEXT).name)} AS {number.name}" for number in numbers]
    return _table(
        scope,
        TABLE,
        f"SELECT {', '.join([*columns, *shown])} "
        f"FROM (SELECT {', '.join([*columns, *texts])} FROM {scope.relation.name} "
        f"WHERE {scope.within(since, until)} AND {_used_events(scope, uses, bool)} "
        f"AND {entity} IN (SELECT entity FROM {EXPOSURE_TABLES[-1]})) AS event_of_exposed",
    )


def _table(scope: Scope, name: str, sql: str) -> SqlStatement:
    create = scope.dialect.finished(scope.dialect.temporary_table(name, sql))
    return SqlStatement(create, scope.parameters.values)


def _extract(scope: Scope, uses: Sequence[_QuestionUse], wanted: Property) -> str:
    """Extract a property from its JSON, only where somebody reads it."""
    forms = {wanted, wanted.as_(Form.NUMBER)} if wanted.form is Form.TEXT else {wanted}
    events = _used_events(scope, uses, lambda use: not forms.isdisjoint(use.properties))
    return f"CASE WHEN {events} THEN {scope.row.read(wanted)} END"


def _used_events(scope: Scope, uses: Sequence[_QuestionUse], wanted: Callable[[ColumnUse], bool]) -> str:
    """Return a condition that every event meets of which the given columns are used."""
    sources = [source for use in uses for source in use.sources_of(wanted)]
    return combined("OR", list(dict.fromkeys(map(scope.may_come_from, sources))))


def _reach_us(question: Question) -> int:
    """Return the time after the end of the span within which a question may read, in microseconds."""
    metric = question.metric
    extra = max(0, span_us(metric)) if isinstance(metric, RetentionMeasure) else 0
    return metric.window_us + extra
