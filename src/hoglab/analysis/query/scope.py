"""The parts that all statements share: events of a source, entities, days, and named subqueries.

A subquery knows the columns that it uses of events: every use of a row goes through the scope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise

from hoglab.analysis.query.days import DAY_US, DayGrid, OffsetStep, zone_of
from hoglab.analysis.query.event_relation import ALL_EVENTS, NO_USE, ColumnUse, EventRelation, RelationRow
from hoglab.analysis.query.expressions import read, truth_of
from hoglab.analysis.query.model import (
    LAST_MOMENT,
    CohortMembers,
    EventMatch,
    EventSource,
    Question,
    TableSource,
    group_column,
    group_property,
    later,
    tables_of,
)
from hoglab.analysis.query.session_facts import (
    SESSION_REACH,
    facts_of_sessions,
    field_of_session,
    reads_properties,
)
from hoglab.filters.model import COHORT_OPERATORS, FilterError, PropertyFilter, PropertyGroup
from hoglab.filters.sql import FALSE, TRUE, FilterField, FilterScope, Parameters, combined, group_condition
from hoglab.storage.event_store.dialects import Dialect


@dataclass(frozen=True, slots=True)
class SqlStatement:
    """SQL and the values of its parameters, perhaps with further values, which the reader leaves out."""

    sql: str
    parameters: dict[str, object]


@dataclass(frozen=True, slots=True)
class Subquery:
    """A part of a statement with a name (``WITH name AS …``), and the columns that it uses of events."""

    name: str
    sql: str
    column_use: ColumnUse = NO_USE


@dataclass(frozen=True, slots=True)
class Stage:
    """Subqueries that lead to one relation, the last of them."""

    subqueries: tuple[Subquery, ...]

    @property
    def name(self) -> str:
        """The name of the relation."""
        return self.subqueries[-1].name

    @property
    def column_use(self) -> ColumnUse:
        return ColumnUse.of(subquery.column_use for subquery in self.subqueries)

    @property
    def before(self) -> tuple[Subquery, ...]:
        """The subqueries before the relation."""
        return self.subqueries[:-1]

    @property
    def sql(self) -> str:
        """The query of the relation."""
        return self.subqueries[-1].sql

    def giving(self, sql: str) -> Subquery:
        """Return the stage with another query for its relation."""
        return Subquery(self.name, sql)


@dataclass(frozen=True)
class Scope:
    """A statement under construction: one question, one engine, one relation of events."""

    question: Question
    dialect: Dialect
    relation: EventRelation = ALL_EVENTS
    entities: int | None = None
    """Number of entities, chosen without regard to their events, whose contributions are asked for; None: sums."""
    resumable: bool = False
    """Whether an entity's later events can continue from the partials."""
    subqueries: list[Subquery] = field(default_factory=list)
    values: Parameters | None = None
    """Parameters of the statement, where it has several scopes."""

    @cached_property
    def parameters(self) -> Parameters:
        return self.dialect.parameters() if self.values is None else self.values

    @cached_property
    def row(self) -> RelationRow:
        """A row of events: the columns that it reads are noted for the next subquery."""
        return RelationRow(self.dialect, self.parameters, self.relation)

    def group_place(self, chain: Sequence[str]) -> tuple[str, str] | None:
        """Return column and key of a property of an event's group that the question reads; None for other names."""
        asked, question = group_property(chain), self.question
        if asked is None or asked[0] not in question.groups:
            return None
        index, key = asked
        return (group_column(index), key) if key in question.group_properties[index] else None

    def beside(self, question: Question) -> Scope:
        """Return the scope of another question in the same statement."""
        return replace(self, question=question, values=self.parameters)

    def define(self, name: str, sql: str, use: ColumnUse | None = None) -> str:
        """Name a subquery (``WITH name AS …``); return the name. ``use`` has the columns that it uses besides `row`."""
        of_row = self.row.take_use()
        self.subqueries.append(Subquery(name, sql, of_row if use is None else of_row | use))
        return name

    def collect(self, define: Callable[[Scope], object]) -> tuple[Subquery, ...]:
        """Return the subqueries that the block defines."""
        begin = len(self.subqueries)
        define(self)
        return tuple(self.subqueries[begin:])

    def statement(self, sql: str) -> SqlStatement:
        """Return the statement: every subquery so far, then ``sql``."""
        return self.stated(self.subqueries, sql)

    def stated(self, subqueries: Iterable[Subquery], sql: str) -> SqlStatement:
        """Return a statement of other subqueries, with the values of this scope."""
        named = ",\n".join(self.dialect.named(subquery.name, subquery.sql) for subquery in subqueries)
        whole = self.dialect.finished(f"WITH {named}\n{sql}" if named else sql)
        return SqlStatement(whole, self.parameters.values)

    # -- events ----------------------------------------------------------------------------------------

    @cached_property
    def events(self) -> str:
        """The relation of all events, with the properties of groups and sessions that the question asks for."""
        relation = self.relation.name
        if not self.question.groups and not self.question.session_properties:
            return relation
        columns, joins = "", ""
        for index, known in self.question.groups.items():
            name = f"known_{index}"
            columns += f", {name}.properties AS {group_column(index)}"
            pairs = self.dialect.pairs(
                "group_key", known.keys, "properties", known.properties, self.parameters
            )
            joins += f" LEFT JOIN {pairs} AS {name} ON {name}.group_key = all_events.{self.column(f'group_{index}')}"
        if self.question.session_properties:
            facts = self._define_sessions()
            columns += "".join(f", {facts}.{name}" for name in self._session_columns.values())
            joins += f" LEFT JOIN {facts} ON {facts}.session = all_events.{self.column('session_id')}"
        return f"(SELECT all_events.*{columns} FROM {relation} AS all_events{joins}) AS joined_events"  # noqa: S608 - all of it is ours

    @cached_property
    def _session_columns(self) -> dict[str, str]:
        """Columns of `events` that hold properties of an event's session, by property."""
        return {name: f"session_{place}" for place, name in enumerate(self.question.session_properties)}

    def _define_sessions(self) -> str:
        """Define ``session_fact(session, …)``: sessions of the events that ask for them, within the span's reach."""
        span, question = self.question.span, self.question
        since = span.start - timedelta(microseconds=question.lookback_us) - SESSION_REACH
        until = exclusive(span.end) if span.capped else LAST_MOMENT
        apart = self.beside(question)
        condition = f"{apart.within(since, until)} AND {apart.column('session_id')} <> ''"
        if reads_properties(self._session_columns):
            condition += apart.asking(apart.within(since, until))
        facts = facts_of_sessions(self._session_columns, self.relation.name, condition, apart.row)
        return apart.define("session_fact", facts)

    def asking(self, within: str) -> str:
        """Return a further condition on events: that they belong to requested sessions, as far as names of events tell.

        Reading the properties of all events of these sessions costs more than finding the sessions.
        """
        question, events, session = self.question, self.relation.name, self.column("session_id")
        asking, exposing = question.session_events, question.exposures.event_names
        if None in asking:
            return ""
        some = f"{within} AND {self._named(asking)}"
        # Rows of tables may belong to anybody who has their key, and so do events beside them.
        if not asking <= exposing and None not in exposing and not tables_of(question.metric):
            entity = self.entity()
            some += (
                f" AND {entity} IN (SELECT {entity} FROM {events} WHERE {within} AND {self._named(exposing)})"  # noqa: S608 - all of it is ours
            )
        return f" AND {session} IN (SELECT {session} FROM {events} WHERE {some})"  # noqa: S608 - all of it is ours

    def _named(self, names: Iterable[str | None]) -> str:
        """Return the condition that a row of events has one of these names."""
        known = sorted(name for name in names if name is not None)
        return combined("OR", [FALSE, *(self.has_name(name) for name in known)])

    def has_name(self, name: str) -> str:
        """Return the condition that a row of events has this name."""
        return f"{self.column('event')} = {self.bind(name)}"

    def of_session(self, name: str) -> FilterField:
        """Return a property of an event's session; NULL where it has none. Raises `FilterError`."""
        return field_of_session(name, self._session_columns[name], self.dialect)

    def column(self, name: str) -> str:
        """Return a column of a row of events."""
        return self.row.column(name)

    def property_text(self, key: str) -> str:
        """Return an event's own property as text."""
        return self.row.text("properties", key)

    def entity(self) -> str:
        """Return the column that identifies an entity; NULL or empty for events that belong to none."""
        return self.relation.entity or self.column(self.question.exposures.entity_column)

    def has_entity(self) -> str:
        column = self.entity()
        return f"{column} IS NOT NULL" + (f" AND {column} <> ''" if column.startswith("group_") else "")

    @property
    def cell(self) -> list[str]:
        """Names of the columns that hold the values of breakdowns."""
        return [f"b{number}" for number in range(len(self.question.exposures.breakdowns))]

    @property
    def carried(self) -> list[str]:
        """Names of all columns that are read from the first exposure: of breakdowns, and of keys of tables."""
        return [*self.cell, *(f"k{number}" for number in range(len(self.question.join_keys)))]

    def carried_of(self, relation: str) -> str:
        """Return these columns of a relation as further items of a list."""
        return "".join(f", {relation}.{name} AS {name}" for name in self.carried)

    def key_of(self, source: TableSource) -> str:
        """Return the column of ``unit`` that joins a table's rows; empty for entities that have no key."""
        return f"k{self.question.join_keys.index(source.events_join_key)}"

    def cell_of(self, relation: str) -> str:
        """Return the breakdown columns of a relation as further items of a list."""
        return "".join(f", {relation}.{name} AS {name}" for name in self.cell)

    def bind(self, value: str | float | datetime) -> str:
        return self.parameters.bind(value)

    def filters(
        self, group: PropertyGroup, field_of: Callable[[PropertyFilter], FilterField] | None = None
    ) -> str:
        """Return filters on a row of events.

        ``field_of`` makes them filters on another kind of row, where cohorts have no meaning.
        """
        if field_of is None:
            return group_condition(group, self._filter_scope)
        return group_condition(
            group,
            replace(self._filter_scope, cohort=None, session=None, expression=None, field_of=field_of),
        )

    @property
    def _filter_scope(self) -> FilterScope:
        question = self.question
        scope = FilterScope(
            self.row,
            question.span.now,
            zone_of(question.zone),
            group_columns={index: group_column(index) for index in question.groups},
            session=self.of_session,
            expression=lambda leaf: truth_of(read(leaf.key, leaf.type), self, leaf.type),
        )
        return with_cohorts(scope, self.row, question.cohorts)

    def matches(self, source: EventSource) -> str:
        """Return the condition that a row of events matches a source."""
        if not source.alternatives:
            return FALSE
        either = combined("OR", [self._match(match) for match in source.alternatives])
        return combined("AND", [either, self.filters(source.filters)])

    def _match(self, match: EventMatch) -> str:
        parts = []
        if match.event is not None:
            parts.append(self.parameters.written(self.has_name(match.event), match.event))
        return combined("AND", [*parts, self.filters(match.filters)])

    def may_come_from(self, source: EventSource) -> str:
        """Return a condition that every event of a source meets, judged by names."""
        names = [TRUE if match.event is None else self.has_name(match.event) for match in source.alternatives]
        return combined("OR", names) if names else FALSE

    def within(self, since: datetime, before: datetime) -> str:
        """Return rows of the project's events in ``[since, before)``."""
        project, timestamp = self.column("project_id"), self.column("timestamp")
        return (
            f"{project} = {self.bind(self.question.exposures.project_id)} "
            f"AND {timestamp} >= {self.bind(since)} AND {timestamp} < {self.bind(before)}"
        )

    def before_exposures(self, lookback_us: int) -> str:
        """Return rows of the project's events that may lie within a duration before an exposure."""
        span = self.question.span
        return self.within(span.start - timedelta(microseconds=lookback_us), exclusive(span.end))

    def read_until(self, window_us: int = 0, *, inclusive: bool = False) -> datetime:
        """Return the bound before which events are read: the end of the span and what may follow it.

        ``inclusive``: an event at the very end is read. A capped span reads no events after it.
        """
        span = self.question.span
        if span.capped:
            return exclusive(span.end)
        end = later(span.end, window_us)
        return exclusive(end) if inclusive else end

    def ts(self) -> str:
        return self.dialect.micros(self.column("timestamp"))

    # -- days ------------------------------------------------------------------------------------------

    @property
    def days(self) -> DayGrid | None:
        return self.question.span.days

    def day(self, ts: str) -> str:
        """Return the number of the grid's day on which a moment (microseconds) lies, limited at both ends."""
        grid = self.days
        if grid is None or grid.count == 1:
            return "CAST(0 AS INTEGER)"  # a bare number in GROUP BY would be the number of a column
        # Shifted so that the dividend is not negative, because engines round negative quotients differently.
        since_first = f"greatest({local_time(ts, grid.offsets)} - {grid.first_number * DAY_US}, 0)"
        return f"least({self.dialect.integer_division(since_first, DAY_US)}, {grid.count - 1})"


def with_cohorts(
    scope: FilterScope,
    row: RelationRow,
    cohorts: Mapping[int, CohortMembers],
    inside: tuple[int, ...] = (),
) -> FilterScope:
    """Return a scope of filters on a row of events in which cohorts can be looked up.

    ``inside`` are the cohorts around a filter, which it may not name again.
    """

    def belongs(identifier: int, key: str) -> str:
        cohort = cohorts.get(identifier)
        if cohort is None:
            raise FilterError(f"cohort {identifier} does not exist", key)
        if identifier in inside:
            raise FilterError(f"cohort {identifier} contains itself", key)
        if not cohort.is_calculated:
            raise FilterError(f"cohort {identifier} has not been calculated yet", key)
        if cohort.people is None:
            return group_condition(cohort.filters, with_cohorts(scope, row, cohorts, (*inside, identifier)))
        membership = row.dialect.one_of_people(row.column("person_id"), row.parameters.bind(cohort.people))
        return row.parameters.written(f"coalesce({membership}, FALSE)", key)

    def condition(leaf: PropertyFilter) -> str:
        if leaf.operator not in COHORT_OPERATORS:
            raise FilterError(f"cohorts are compared with in or not_in, not {leaf.operator}", leaf.key)
        parts = [belongs(identifier, leaf.key) for identifier in cohort_ids(leaf.value)]
        member = combined("OR", parts) if parts else FALSE
        return f"(NOT {member})" if leaf.negation is not leaf.excludes_cohort else member

    return replace(scope, cohort=condition)


def cohort_ids(value: object) -> list[int]:
    """Return the ids that the value of a cohort filter names."""
    values = value if isinstance(value, list) else [value]
    return [int(text) for text in map(str, values) if len(text) < 19 and text.isascii() and text.isdigit()]


def local_time(ts: str, offsets: Sequence[OffsetStep]) -> str:
    """Return microseconds of local time since the epoch, for a moment in UTC microseconds."""
    offset = str(offsets[-1].offset_us)
    if len(offsets) > 1:
        cases = " ".join(
            f"WHEN {ts} < {after.since_us} THEN {step.offset_us}" for step, after in pairwise(offsets)
        )
        offset = f"CASE {cases} ELSE {offset} END"
    return f"({ts} + ({offset}))"


def exclusive(moment: datetime) -> datetime:
    """Return the bound before which everything up to and including ``moment`` lies."""
    return (
        moment + timedelta(microseconds=1) if moment < datetime.max.replace(tzinfo=moment.tzinfo) else moment
    )
