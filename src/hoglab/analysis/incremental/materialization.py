"""Materialization, the stored part of the answer to a repeated question (spec experiment-results 11.2).

Kinds of tables in `hoglab.storage.event_store.aggregate_cache_file`:

- *Relevance logs*: the events that matter to a question, with the columns and properties that it reads. One log has
  the exposures, which all metrics of an experiment share, and one the events that the metric counts; where an event
  could be both, one log has all. Logs do not depend on an experiment's own settings: its variants, the handling of
  several variants, windows, percentile bounds. A log grows by the events ingested since (``seq``). It stores the
  original persons of events; merges are applied when it is read.
- *Contributions*: the amounts that each entity adds to the statistics, for each day of an additive metric, else for
  the whole span. An entity's contribution depends only on its own events, so that only entities with new events are
  computed; results are sums over contributions.
- *Histories and states* replace contributions where they can continue from an entity's state
  (`hoglab.analysis.incremental.aggregation`), with *sums* of the contributions, to which each increment adds its
  changes.
"""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from hoglab.analysis.incremental.aggregation import (
    ENTITY,
    EVENTS,
    TOUCHED,
    IncrementalAggregation,
    can_resume,
)
from hoglab.analysis.query import (
    Compiled,
    Pipeline,
    activation_condition,
    can_share,
    exposure_of_any_variant,
    is_additive,
    pipeline_of,
)
from hoglab.analysis.query.event_relation import (
    COLUMNS,
    PROMOTED,
    STORED_EVENTS,
    ColumnUse,
    EventRelation,
    Form,
    Property,
)
from hoglab.analysis.query.model import (
    EventSource,
    MeanMeasure,
    Question,
    Span,
    Value,
    event_names,
    metric_sources,
)
from hoglab.analysis.query.scope import Scope, SqlStatement
from hoglab.analysis.query.shared_scan import MAX_PROPERTIES
from hoglab.filters.sql import combined

if TYPE_CHECKING:
    from hoglab.storage.event_store.dialects import Dialect

VERSION = 9
"""Version of the tables, raised when their content or its meaning changes: older tables are not read."""

SCHEMA = "aggregate_cache"
_OF_ALL = frozenset({"project_id", "seq"})
"""Columns that each table of events has in any case."""
_RELATION = EventRelation(EVENTS, ENTITY, property_forms=frozenset((Form.TEXT, Form.JSON_NUMBER)))
"""Events of logs as statements read them."""


@dataclass(frozen=True)
class RelevanceLog:
    """A relevance log. ``condition`` is over stored events; ``properties`` are the stored properties by column name.

    ``constants`` are columns to which the condition leaves one value, which is not stored with every event.
    ``condition_use`` has the columns that the condition depends on.
    """

    project_id: int
    condition: str
    parameters: Mapping[str, object]
    columns: tuple[str, ...]
    properties: Mapping[str, str]
    constants: Mapping[str, str]
    condition_use: ColumnUse

    @cached_property
    def key(self) -> str:
        return _digest(
            self.project_id,
            self.condition,
            sorted(self.parameters.items()),
            self.columns,
            sorted(self.properties.items()),
        )

    @property
    def table(self) -> str:
        return f"{SCHEMA}.log_{self.key}"

    def made(self) -> str:
        """Return the statement that creates the empty table; its values are the `parameters`."""
        return f"CREATE TABLE {self.table} AS {self._selected()} LIMIT 0"

    def grown(self, extent: str) -> str:
        """Return the statement that adds events; ``extent`` is a condition that selects them."""
        return f"INSERT INTO {self.table} {self._selected()} AND {extent}"

    def _selected(self) -> str:
        properties = "".join(f", {text} AS {name}" for name, text in self.properties.items())
        return (
            f"SELECT seq, {', '.join(self.columns)}{properties} FROM {STORED_EVENTS} "
            f"WHERE project_id = {self.project_id} AND {self.condition}"
        )


@dataclass(frozen=True)
class Materialization:
    """Materialization of a question: the tables stored for it, and the statements over them."""

    question: Question
    logs: tuple[RelevanceLog, ...]
    pipeline: Pipeline
    """Stages over the logs."""
    counts_exposures: bool = False
    """Whether new entities are counted by day and variant, instead of summing contributions."""

    @cached_property
    def key(self) -> str:
        return key_of(self.question)

    @property
    def since(self) -> datetime:
        """Moment before which no event matters."""
        return self.question.span.start - timedelta(microseconds=self.question.lookback_us)

    @property
    def table(self) -> str:
        """Table of the contributions of entities, or of their histories."""
        return f"{SCHEMA}.of_{self.key}"

    @property
    def sums_table(self) -> str:
        """Table of sums over contributions, beside the histories that they follow from."""
        return f"{SCHEMA}.sum_{self.key}"

    @cached_property
    def aggregation(self) -> IncrementalAggregation | None:
        """Aggregation by which entities continue from their states; None where contributions are stored instead."""
        if not can_resume(self.question.metric):
            return None
        return IncrementalAggregation(self.pipeline, self.table, f"{SCHEMA}.at_{self.key}")

    @cached_property
    def query(self) -> Compiled:
        """Statement whose rows answer the question."""
        if self.aggregation is None:
            return self.pipeline.from_contributions(self.table)
        if self.counts_exposures:
            return replace(self.pipeline.compiled, statement=self.aggregation.exposures_per_day())
        return self.pipeline.from_sums(self.sums_table)

    def summed(self, contributions: str) -> SqlStatement:
        """Return sums over a relation of contributions."""
        return self.pipeline.from_sums(contributions).statement

    @property
    def is_of_people(self) -> bool:
        """Whether entities are persons."""
        return self.question.exposures.group_type_index is None

    @property
    def reads_people(self) -> bool:
        """Whether merges of persons matter."""
        return any("person_id" in log.columns for log in self.logs)

    def contributions(self, *, merged: bool, touched: bool = False) -> SqlStatement:
        """Return the contributions of all entities, or of the entities in the table `TOUCHED`."""
        relation = self.events(merged=merged, where=self.of_touched if touched else "TRUE")
        subqueries = [
            f"{subquery.name} AS (\n{subquery.sql}\n)" for subquery in self.pipeline.to_contributions
        ]
        once = "" if touched else "NOT "  # few rows, or the logs as they are
        named = ",\n".join([f"{EVENTS} AS {once}MATERIALIZED (\n{relation}\n)", *subqueries])
        return self.stated(f"WITH {named}\nSELECT * FROM {self.pipeline.contributions.name}")

    def stated(self, sql: str, more: Mapping[str, object] | None = None) -> SqlStatement:
        """Return SQL over `events` with its values and ``more`` values."""
        return SqlStatement(sql, self.pipeline.scope.parameters.values | dict(more or {}))

    @property
    def of_touched(self) -> str:
        """Whether an event is of an entity in the table `TOUCHED`."""
        return f"{ENTITY} IN (SELECT entity FROM {TOUCHED})"

    def events(self, *, merged: bool, where: str = "TRUE") -> str:
        """Return events of the logs as one relation; ``merged`` if some persons of the project were merged.

        The condition ``where`` is applied to each log: the engine does not push the entities of a join through a
        union.
        """
        project = f"{self.question.exposures.project_id} AS project_id"
        return " UNION ALL ".join(
            f"SELECT * FROM ({self._selected(log, self._names, [project], merged=merged)}) AS log WHERE {where}"
            for log in self.logs
        )

    def recent(self, *, merged: bool) -> str:
        """Return events that came in after ``$watermark``.

        They have only the columns that vary within a log; the number in the column ``log`` stands for the constant
        ones. Only events of the first log may be exposures.
        """
        return " UNION ALL ".join(
            f"SELECT * FROM ({self._selected(log, self._stored, [f'{place} AS log'], merged=merged)}) AS log "
            "WHERE seq > $watermark"
            for place, log in enumerate(self.logs)
        )

    @property
    def has_recent(self) -> str:
        """Whether any events came in after ``$watermark``."""
        return " OR ".join(f"EXISTS (SELECT 1 FROM {log.table} WHERE seq > $watermark)" for log in self.logs)

    def restored(self, table: str, also: Sequence[str], *, counted: bool = False) -> str:
        """Return the `events` of a table with the columns of `recent`, and ``also`` further columns of the table.

        With ``counted`` without events that are exposures and nothing else.
        """
        parts = []
        for place, log in enumerate(self.logs):
            stored = {name: name for name in self._stored if name not in log.constants}
            columns = [
                f"{stored.get(name) or self._column_of(log, name, merged=False)} AS {name}"
                for name in self._names
            ]
            shown = [f"{self.question.exposures.project_id} AS project_id", "seq", ENTITY, *columns, *also]
            parts.append(f"SELECT {', '.join(shown)} FROM {table} WHERE log = {place}")
        return parts[-1] if counted else " UNION ALL ".join(parts)

    def exposed(self, *, merged: bool) -> str:
        """Return entities that may have been exposed."""
        return (
            f"SELECT {ENTITY} AS entity FROM ({self._selected(self.logs[0], [], [], merged=merged)}) AS log"
        )

    @cached_property
    def _names(self) -> list[str]:
        """Columns of events that statements read, besides the ones that all events have."""
        known = [name for log in self.logs for name in (*log.columns, *log.constants)]
        read = self.pipeline.column_use.columns
        names = [name for name in COLUMNS if name in known and name in read and name not in _OF_ALL]
        return [*names, *dict.fromkeys(name for log in self.logs for name in log.properties)]

    @cached_property
    def _stored(self) -> list[str]:
        """Columns of events that vary within a log."""
        return [
            name for name in self._names if any(name in (*log.columns, *log.properties) for log in self.logs)
        ]

    def _selected(self, log: RelevanceLog, names: Sequence[str], also: Sequence[str], *, merged: bool) -> str:
        """Return the events of one log with some columns and ``also`` others, each with its entity."""
        entity = self._column_of(log, self.question.exposures.entity_column, merged=merged)
        if not self.is_of_people:
            entity = f"nullif({entity}, '')"
        shown = [*also, "seq", f"{entity} AS {ENTITY}"]
        shown += [f"{self._column_of(log, name, merged=merged)} AS {name}" for name in names]
        override = ""
        if merged and "person_id" in log.columns:
            override = (
                f" LEFT JOIN {SCHEMA}.applied_override AS override "
                f"ON override.project_id = {self.question.exposures.project_id} "
                "AND override.old_person_id = log.person_id"
            )
        return f"SELECT {', '.join(shown)} FROM {log.table} AS log{override}"

    def _column_of(self, log: RelevanceLog, name: str, *, merged: bool) -> str:
        if name in log.constants:
            return self.pipeline.scope.bind(log.constants[name])
        if name not in log.columns and name not in log.properties:
            return "NULL"
        if merged and name == "person_id":
            return "coalesce(override.person_id, log.person_id)"
        return f"log.{name}"


def materialized(question: Question, dialect: Dialect) -> Materialization | None:
    """Return the materialization of a question with a grid of days; None when its events cannot be kept.

    They cannot when a contribution depends on more than its entity's own events (sessions), when time alone changes
    it (maturity, filters with relative dates), when merges change which events matter (lists of people in filters),
    for points of the past, and for questions that read too many properties. Raises `hoglab.filters.FilterError` as
    `compiled` does.
    """
    span = question.span
    if span.days is None or span.capped or question.matured_only or not can_share(question):
        return None
    if not question.exposures.variants:
        return None
    additive = is_additive(question.metric)
    asked = question if additive else replace(question, span=replace(span, days=None))
    pipeline = pipeline_of(Scope(asked, dialect, _RELATION, resumable=can_resume(question.metric)))
    logs = tuple(_logs(question, pipeline))
    conditions = ColumnUse.of(log.condition_use for log in logs)
    if pipeline.column_use.now or conditions.now or "person_id" in conditions.columns:
        return None
    if any(len(log.properties) > MAX_PROPERTIES for log in logs):
        return None
    return Materialization(question, logs, pipeline)


def materialized_exposures(question: Question, dialect: Dialect) -> Materialization | None:
    """Return the materialization of new entities by day and variant: rows as of `exposures_per_day`.

    None as for `materialized`.

    The states are those of a metric that counts nothing. Exposures without variants, as plans ask for, have none:
    they may be all events.
    """
    if question.exposures.breakdowns or question.exposures.variant_property is None:
        return None
    materialization = materialized(replace(question, metric=MeanMeasure(Value(EventSource(())))), dialect)
    return None if materialization is None else replace(materialization, counts_exposures=True)


def _logs(question: Question, pipeline: Pipeline) -> Iterator[RelevanceLog]:
    sources = list(metric_sources(question.metric))
    dialect = pipeline.scope.dialect
    if any(mine.may_overlap(other) for mine in sources for other in question.exposures.sources):
        yield _log(question, dialect, pipeline.column_use, exposed=True, counted=sources)
    else:
        yield _log(question, dialect, pipeline.use_of_exposures, exposed=True, counted=[])
        yield _log(question, dialect, pipeline.use_of_metric, exposed=False, counted=sources)


def _log(
    question: Question, dialect: Dialect, use: ColumnUse, *, exposed: bool, counted: Sequence[EventSource]
) -> RelevanceLog:
    """Return the log of exposures, of counted events, or of both, with the columns that statements use."""
    scope = Scope(question, dialect)  # its own one: logs that say the same have the same values
    activation = question.exposures.activation
    conditions = [scope.matches(source) for source in counted]
    if exposed:
        conditions.append(exposure_of_any_variant(scope))
        if activation is not None:
            conditions.append(activation_condition(scope, activation))
    condition = combined("OR", list(dict.fromkeys(conditions)))
    condition_use = scope.row.take_use()
    names = use.columns | {question.exposures.entity_column} | ({"uuid"} if exposed else set())
    texts = {wanted.name: scope.row.read(wanted) for wanted in sorted(use.properties, key=_name)}
    sources = [*counted, *(question.exposures.sources if exposed else ())]
    constants = _constants(question, sources, counts=bool(counted))
    return RelevanceLog(
        question.exposures.project_id,
        condition,
        scope.parameters.values,
        tuple(name for name in COLUMNS if name in names and name not in _OF_ALL and name not in constants),
        texts,
        {name: value for name, value in constants.items() if name in names},
        condition_use,
    )


def _name(wanted: Property) -> str:
    return wanted.name


def _constants(question: Question, sources: Sequence[EventSource], *, counts: bool) -> dict[str, str]:
    """Return the columns that have one value in all events of some sources; ``counts`` for events beside exposures."""
    constants = {}
    match tuple(event_names(sources)):
        case (str(name),):
            constants["event"] = name
    exposures = question.exposures
    if not counts and exposures.activation is None and exposures.flag_key is not None:
        constants[PROMOTED["$feature_flag"]] = exposures.flag_key
    return constants


def key_of(question: Question) -> str:
    """Return the key of a question with a grid of days, equal for the same question at another time."""
    span, days = question.span, question.span.days
    assert days is not None  # noqa: S101 - others are not kept
    at_any_time = Span(span.start, span.start, span.start, replace(days, count=1))
    return _digest(repr(replace(question, span=at_any_time)))


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr((VERSION, *parts)).encode()).hexdigest()[:20]
