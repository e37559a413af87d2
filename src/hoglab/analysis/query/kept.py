"""What is kept of events for a question that is asked again and again (spec experiment-results 11.2).

Kinds of tables in `hoglab.storage.event_store.results_state`:

- *Relevance logs*: the events that a question may look at, with the columns and properties that it reads. One of the
  exposures, which all metrics of an experiment share, and one of the events that the metric counts; where an event
  could be both, one of everything. Nothing of an experiment's own settings is in them: not its variants, not the
  handling of several variants, no windows, no percentile bounds. A log grows by what was ingested since
  (``seq``). It has the persons that events came with; merges are applied when it is read.
- *Contributions*: what each entity adds to the statistics, each day where days add up, else over the whole span.
  An entity's contribution depends on nothing but its own events, so that only entities with new events are
  looked at; and results are sums over contributions.
- *Histories and states* instead, for metrics where contributions can go on from what is known of an entity
  (`hoglab.analysis.query.resuming`), and the *sums* of what follows from them, to which each increment adds what it
  changes.
"""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property

from hoglab.analysis.query.dialect import Dialect
from hoglab.analysis.query.duckdb import PROMOTED, DuckDb
from hoglab.analysis.query.exposures import activation_condition, define_units, exposure_of_any_variant
from hoglab.analysis.query.model import (
    EventSource,
    MeanMetric,
    Question,
    Span,
    Value,
    event_names,
    metric_sources,
)
from hoglab.analysis.query.resuming import ENTITY, EVENTS, TOUCHED, Resuming, can_resume
from hoglab.analysis.query.scope import Scope, Statement
from hoglab.analysis.query.shared import COLUMNS, MAX_TAKEN, can_share
from hoglab.analysis.query.statements import Compiled, can_telescope, compiled
from hoglab.filters.sql import Parameters, combined

VERSION = 5
"""Raised when what is in the tables changes, or what statements make of it: older tables are then not read."""

SCHEMA = "results_state"
_LONG = timedelta(days=1000)


@dataclass(frozen=True)
class Log:
    """A relevance log. ``condition`` is over the table ``events``; ``taken`` are properties by column name.

    ``constants`` are columns that the condition leaves one value, which is not stored with every event.
    """

    project_id: int
    condition: str
    parameters: Mapping[str, object]
    columns: tuple[str, ...]
    taken: Mapping[str, str]
    constants: Mapping[str, str]

    @cached_property
    def key(self) -> str:
        return _digest(
            self.project_id,
            self.condition,
            sorted(self.parameters.items()),
            self.columns,
            sorted(self.taken.items()),
        )

    @property
    def table(self) -> str:
        return f"{SCHEMA}.log_{self.key}"

    def made(self) -> str:
        """The statement that makes the empty table; its values are the `parameters`."""
        return f"CREATE TABLE {self.table} AS {self._selected()} LIMIT 0"

    def grown(self, extent: str) -> str:
        """The statement that adds events; ``extent`` is a condition that says which."""
        return f"INSERT INTO {self.table} {self._selected()} AND {extent}"

    def _selected(self) -> str:
        taken = "".join(f", {text} AS {name}" for name, text in self.taken.items())
        return (
            f"SELECT seq, {', '.join(self.columns)}{taken} FROM stored_events "
            f"WHERE project_id = {self.project_id} AND {self.condition}"
        )


@dataclass(frozen=True)
class Kept:
    """How a question is answered from what is kept."""

    question: Question
    since: datetime
    """No event before this is looked at."""
    logs: tuple[Log, ...]
    query: Compiled
    """Its statement reads the contributions."""
    _summing: Statement
    _filling: tuple[tuple[str, str], ...]
    _parameters: Parameters
    _dialect: Dialect

    @cached_property
    def key(self) -> str:
        return key_of(self.question)

    @property
    def table(self) -> str:
        return _table(self.key)

    @property
    def resuming(self) -> Resuming | None:
        """How entities go on from their states; None: they cannot. Their history is in the place of contributions."""
        if not can_resume(self.question.metric):
            return None
        state = f"{SCHEMA}.at_{self.key}"
        scope = Scope(self.question, self._dialect, values=self._parameters)
        return Resuming(scope, self.query.outcome, self._filling, self.table, state)

    @property
    def sums_table(self) -> str:
        """Sums over contributions, beside the histories that these follow from."""
        return f"{SCHEMA}.sum_{self.key}"

    @property
    def reads_sums(self) -> bool:
        """Whether the answer is read from the table of sums."""
        return self.resuming is not None and self.query.statement == self._summing

    def summed(self, contributions: str) -> Statement:
        """Sums over a relation of contributions, or over one of such sums."""
        return Statement(self._summing.sql.replace(self.table, contributions), self._summing.parameters)

    @property
    def is_of_people(self) -> bool:
        """Whether entities are persons."""
        return self.question.exposures.group_type_index is None

    @property
    def reads_people(self) -> bool:
        """Whether merges of persons matter."""
        return any("person_id" in log.columns for log in self.logs)

    def contributions(self, *, merged: bool, touched: bool = False) -> Statement:
        """The contributions of all entities, or of those in the table `TOUCHED`."""
        relation = self.events(merged=merged, where=self.of_touched if touched else "TRUE")
        subqueries = [f"{name} AS (\n{sql}\n)" for name, sql in self._filling]
        once = "" if touched else "NOT "  # few rows, or the logs as they are
        named = ",\n".join([f"{EVENTS} AS {once}MATERIALIZED (\n{relation}\n)", *subqueries])
        sql = f"WITH {named}\nSELECT * FROM {self._filling[-1][0]}"
        return Statement(sql, self._parameters.used_in(sql))

    def stated(self, sql: str, more: Mapping[str, object] | None = None) -> Statement:
        """SQL over `events` with its values, and ``more`` of them."""
        return Statement(sql, self._parameters.used_in(sql) | dict(more or {}))

    @property
    def of_touched(self) -> str:
        """Whether an event is of an entity in the table `TOUCHED`."""
        return f"{ENTITY} IN (SELECT entity FROM {TOUCHED})"

    def events(self, *, merged: bool, where: str = "TRUE") -> str:
        """Events of the logs as one relation; ``merged``: some persons of the project were.

        Each log is asked by itself for ``where``: the engine does not look ahead through a union at whom a join wants.
        """
        project = f"{self.question.exposures.project_id} AS project_id"
        return " UNION ALL ".join(
            f"SELECT * FROM ({self._selected(log, self._names, [project], merged=merged)}) AS log WHERE {where}"
            for log in self.logs
        )

    def recent(self, *, merged: bool) -> str:
        """Events that came in after ``$watermark``: what of them is not the same for a whole log, whose number in
        the column ``log`` says what is. Only those of the first one may be exposures."""
        return " UNION ALL ".join(
            f"SELECT * FROM ({self._selected(log, self._stored, [f'{place} AS log'], merged=merged)}) AS log "
            "WHERE seq > $watermark"
            for place, log in enumerate(self.logs)
        )

    @property
    def has_recent(self) -> str:
        """Whether there are any of them."""
        return " OR ".join(f"EXISTS (SELECT 1 FROM {log.table} WHERE seq > $watermark)" for log in self.logs)

    def restored(self, table: str, also: Sequence[str], *, counted: bool = False) -> str:
        """The `events` of which a table has what is `recent`, and with each ``also`` other columns of the table.

        ``counted``: without those that are told to be exposures and nothing else.
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
        """Entities that may have been exposed."""
        return (
            f"SELECT {ENTITY} AS entity FROM ({self._selected(self.logs[0], [], [], merged=merged)}) AS log"
        )

    @cached_property
    def _names(self) -> list[str]:
        """The columns of events that statements read, beside those that all have."""
        known = [name for each in self.logs for name in (*each.columns, *each.constants)]
        read = words_of("\n".join(sql for _, sql in self._filling))
        names = [name for name in COLUMNS if name in known and name in read]
        return [*names, *dict.fromkeys(name for each in self.logs for name in each.taken)]

    @cached_property
    def _stored(self) -> list[str]:
        """Those of them that differ from event to event of a log."""
        return [name for name in self._names if any(name in (*log.columns, *log.taken) for log in self.logs)]

    def _selected(self, log: Log, names: Sequence[str], also: Sequence[str], *, merged: bool) -> str:
        """Events of one log with some columns and ``also`` others, each with its entity."""
        entity = self._column_of(log, entity_column(self.question), merged=merged)
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

    def _column_of(self, log: Log, name: str, *, merged: bool) -> str:
        if name in log.constants:
            return self._parameters.bind(log.constants[name])
        if name not in log.columns and name not in log.taken:
            return "NULL"
        if merged and name == "person_id":
            return "coalesce(override.person_id, log.person_id)"
        return f"log.{name}"


class _Reading(DuckDb):
    """Statements over logs and contributions. Notes what properties they read, by the column of a log."""

    events = EVENTS
    entity: str | None = ENTITY

    def __init__(self, kept: str, table: str) -> None:
        self._kept = kept
        self._table = table
        self.taken: dict[str, tuple[bool, str, str]] = {}
        self.filling: Sequence[tuple[str, str]] = ()
        self.values = Parameters()

    def property_text(self, column: str, key: str, parameters: Parameters) -> str:
        del parameters
        if column == "properties" and key in PROMOTED:
            return PROMOTED[key]
        return self._noted(False, column, key)

    def json_number(self, column: str, key: str, parameters: Parameters) -> str:
        del parameters
        return self._noted(True, column, key)

    def _noted(self, is_number: bool, column: str, key: str) -> str:
        place = (is_number, column, key)
        name = f"p_{_digest(*place)}"
        self.taken[name] = place
        return name

    def ready(
        self, subqueries: Sequence[tuple[str, str]], parameters: Parameters
    ) -> Sequence[tuple[str, str]]:
        """With the contributions in the place of what they were made of."""
        end = [name for name, _ in subqueries].index(self._kept) + 1
        self.filling, self.values = subqueries[:end], parameters
        return [(self._kept, f"SELECT * FROM {self._table}"), *subqueries[end:]]


def kept(question: Question) -> Kept | None:
    """How a question with a grid of days is answered from state; None when its events cannot be kept.

    That is so when more than its entity's own events decide a contribution (sessions), when time alone changes it
    (maturity, filters with relative dates), when merges change which events matter (lists of people in filters),
    for points of the past, and for what reads too many properties. Raises `hoglab.filters.FilterError` as `compiled`
    does.
    """
    span = question.span
    if span.days is None or span.capped or question.matured_only or not can_share(question):
        return None
    if not question.exposures.variants:
        return None
    found = _read(question)
    later = _read(replace(question, span=replace(span, now=span.now + _LONG)))
    if any("person_id" in log.condition or len(log.taken) > MAX_TAKEN for log in found.logs):
        return None
    same = found.query.statement == later.query.statement and found.logs == later.logs
    return found if same and found.contributions(merged=True) == later.contributions(merged=True) else None


def kept_exposures(question: Question) -> Kept | None:
    """How new entities by day and variant are counted from state: rows as of `exposures_per_day`; None as of `kept`.

    The states are those of a metric that counts nothing. Those without variants, as plans ask for, are not kept:
    they may be of all events.
    """
    if question.exposures.breakdowns or question.exposures.variant_property is None:
        return None
    found = kept(replace(question, metric=MeanMetric(Value(EventSource(())))))
    if found is None:
        return None
    assert found.resuming is not None  # noqa: S101 - nothing is easier to go on with
    return replace(found, query=replace(found.query, statement=found.resuming.exposures_per_day()))


def _read(question: Question) -> Kept:
    adds_up = can_telescope(question.metric)
    asked = question if adds_up else replace(question, span=replace(question.span, days=None))
    dialect = _Reading("change" if adds_up else "valued", _table(key_of(question)))
    query = compiled(asked, dialect, resumable=can_resume(question.metric))
    scope = Scope(asked, dialect)
    define_units(scope)
    of_units = len(scope.subqueries)
    texts = [sql for _, sql in dialect.filling]
    return Kept(
        question,
        question.span.start - timedelta(microseconds=question.lookback_us),
        tuple(_logs(question, dialect.taken, "\n".join(texts[:of_units]), "\n".join(texts[of_units:]))),
        query,
        query.statement,
        tuple(dialect.filling),
        dialect.values,
        dialect,
    )


def _logs(
    question: Question, taken: Mapping[str, tuple[bool, str, str]], units: str, metric: str
) -> Iterator[Log]:
    sources = list(metric_sources(question.metric))
    if any(mine.may_overlap(other) for mine in sources for other in question.exposures.sources):
        yield _log(question, taken, f"{units}\n{metric}", exposed=True, counted=sources)
    else:
        yield _log(question, taken, units, exposed=True, counted=[])
        yield _log(question, taken, metric, exposed=False, counted=sources)


def _log(
    question: Question,
    taken: Mapping[str, tuple[bool, str, str]],
    text: str,
    *,
    exposed: bool,
    counted: Sequence[EventSource],
) -> Log:
    """The log of exposures, of counted events, or of both; ``text`` is what reads it."""
    scope = Scope(question, DuckDb())  # its own one: logs that say the same have the same values
    activation = question.exposures.activation
    conditions = [scope.matches(source) for source in counted]
    if exposed:
        conditions.append(exposure_of_any_variant(scope))
        if activation is not None:
            conditions.append(activation_condition(scope, activation))
    words = words_of(text) | {entity_column(question)} | ({"uuid"} if exposed else set())
    texts = {
        name: (scope.dialect.json_number if is_number else scope.dialect.property_text)(
            column, key, scope.parameters
        )
        for name, (is_number, column, key) in sorted(taken.items())
        if name in words
    }
    condition = combined("OR", list(dict.fromkeys(conditions)))
    sources = [*counted, *(question.exposures.sources if exposed else ())]
    constants = _constants(question, sources, counts=bool(counted))
    return Log(
        question.exposures.project_id,
        condition,
        scope.parameters.used_in(" ".join([condition, *texts.values()])),
        tuple(name for name in COLUMNS if name != "project_id" and name in words and name not in constants),
        texts,
        {name: value for name, value in constants.items() if name in words},
    )


def words_of(sql: str) -> set[str]:
    """The names that a statement may read, among others."""
    return set(re.findall(r"\w+", sql))


def entity_column(question: Question) -> str:
    """The column of stored events that identifies an entity."""
    return Scope(question, DuckDb()).entity()


def _constants(question: Question, sources: Sequence[EventSource], *, counts: bool) -> dict[str, str]:
    """The columns of which all events of some sources have the same value; ``counts``: not exposures alone."""
    found = {}
    match tuple(event_names(sources)):
        case (str(name),):
            found["event"] = name
    exposures = question.exposures
    if not counts and exposures.activation is None and exposures.flag_key is not None:
        found[PROMOTED["$feature_flag"]] = exposures.flag_key
    return found


def _table(key: str) -> str:
    return f"{SCHEMA}.of_{key}"


def key_of(question: Question) -> str:
    """What a question with a grid of days is known by: the same for the same question at another time."""
    span, days = question.span, question.span.days
    assert days is not None  # noqa: S101 - others are not kept
    at_any_time = Span(span.start, span.start, span.start, replace(days, count=1))
    return _digest(repr(replace(question, span=at_any_time)))


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr((VERSION, *parts)).encode()).hexdigest()[:20]
