"""The parts that all statements share: events of a source, entities, days, and named subqueries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise

from hoglab.analysis.days import DAY_US, DayGrid, OffsetStep, zone_of
from hoglab.analysis.query.dialect import Dialect
from hoglab.analysis.query.expressions import read, truth_of
from hoglab.analysis.query.model import (
    LAST_MOMENT,
    EventMatch,
    EventSource,
    Question,
    TableSource,
    group_column,
    later,
    tables_of,
)
from hoglab.analysis.query.session_facts import (
    SESSION_REACH,
    facts_of_sessions,
    field_of_session,
    reads_properties,
)
from hoglab.filters.model import FilterError, PropertyFilter, PropertyGroup
from hoglab.filters.sql import FALSE, FilterField, FilterScope, Parameters, combined, group_condition


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL and the values of its parameters."""

    sql: str
    parameters: dict[str, object]


@dataclass(frozen=True)
class Scope:
    """A statement under construction: one question, one engine."""

    question: Question
    dialect: Dialect
    entities: int | None = None
    """Of so many entities, chosen without regard to what they did, it is told what they add; None: of all the sums."""
    resumable: bool = False
    """Partials tell all that an entity's later events go on from (see `hoglab.analysis.query.resuming`)."""
    subqueries: list[tuple[str, str]] = field(default_factory=list)
    values: Parameters | None = None
    """The parameters of the statement, where it is of several scopes."""

    @cached_property
    def parameters(self) -> Parameters:
        return self.dialect.parameters() if self.values is None else self.values

    def beside(self, question: Question) -> Scope:
        """The scope of another question in the same statement."""
        return replace(self, question=question, values=self.parameters)

    def define(self, name: str, sql: str) -> str:
        """Name a subquery (``WITH name AS …``); returns the name."""
        self.subqueries.append((name, sql))
        return name

    def statement(self, sql: str) -> Statement:
        """The statement: every subquery so far, then ``sql``."""
        subqueries = self.dialect.ready(self.subqueries, self.parameters)
        named = ",\n".join(self.dialect.named(name, text) for name, text in subqueries)
        whole = self.dialect.finished(f"WITH {named}\n{sql}" if named else sql)
        return Statement(whole, self.parameters.used_in(whole))

    # -- events ----------------------------------------------------------------------------------------

    @cached_property
    def events(self) -> str:
        """The relation of all events; with what the question asks for of their groups and their sessions."""
        relation = self.dialect.events
        if not self.question.groups and not self.question.session_properties:
            return relation
        columns, joins = "", ""
        for index, known in self.question.groups.items():
            name = f"known_{index}"
            columns += f", {name}.properties AS {group_column(index)}"
            pairs = self.dialect.pairs(
                "group_key", known.keys, "properties", known.properties, self.parameters
            )
            joins += f" LEFT JOIN {pairs} AS {name} ON {name}.group_key = all_events.group_{index}"
        if self.question.session_properties:
            facts = self._define_sessions()
            columns += "".join(f", {facts}.{name}" for name in self._session_columns.values())
            joins += f" LEFT JOIN {facts} ON {facts}.session = all_events.session_id"
        return f"(SELECT all_events.*{columns} FROM {relation} AS all_events{joins}) AS joined_events"  # noqa: S608 - all of it is ours

    @cached_property
    def _session_columns(self) -> dict[str, str]:
        """Columns of `events` that hold properties of an event's session, by property."""
        return {name: f"session_{place}" for place, name in enumerate(self.question.session_properties)}

    def _define_sessions(self) -> str:
        """``session_fact(session, …)``: sessions of the events that ask for them, as far as the span knows them."""
        span, question = self.question.span, self.question
        since = span.start - timedelta(microseconds=question.lookback_us) - SESSION_REACH
        until = exclusive(span.end) if span.capped else LAST_MOMENT
        condition = f"{self.within(since, until)} AND session_id <> ''"
        if reads_properties(self._session_columns):
            condition += self._asking(self.within(since, until))
        return self.define(
            "session_fact",
            facts_of_sessions(
                self._session_columns, self.dialect.events, condition, self.dialect, self.parameters
            ),
        )

    def _asking(self, within: str) -> str:
        """A further condition on events: of sessions that are asked for, as far as names of events tell.

        To read the properties of all events of these sessions costs more than to find out which they are.
        """
        question, events = self.question, self.dialect.events
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
        return f" AND session_id IN (SELECT session_id FROM {events} WHERE {some})"  # noqa: S608 - all of it is ours

    def _named(self, names: Iterable[str | None]) -> str:
        """Whether a row of events has one of these names."""
        known = sorted(name for name in names if name is not None)
        return combined("OR", [FALSE, *(f"event = {self.bind(name)}" for name in known)])

    def of_session(self, name: str) -> FilterField:
        """A property of an event's session; NULL where it has none. Raises `FilterError`."""
        return field_of_session(name, self._session_columns[name], self.dialect)

    def entity(self) -> str:
        """The column that identifies an entity; NULL or empty for events that belong to none."""
        if self.dialect.entity is not None:
            return self.dialect.entity
        index = self.question.exposures.group_type_index
        return "person_id" if index is None else f"group_{index}"

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
        """These columns of a relation as further items of a list."""
        return "".join(f", {relation}.{name} AS {name}" for name in self.carried)

    def key_of(self, source: TableSource) -> str:
        """The column of ``unit`` that a table's rows are joined by; empty for entities that have no key."""
        return f"k{self.question.join_keys.index(source.events_join_key)}"

    def cell_of(self, relation: str) -> str:
        """The breakdown columns of a relation as further items of a list."""
        return "".join(f", {relation}.{name} AS {name}" for name in self.cell)

    def bind(self, value: str | float | datetime) -> str:
        return self.parameters.bind(value)

    def filters(
        self, group: PropertyGroup, field_of: Callable[[PropertyFilter], FilterField] | None = None
    ) -> str:
        """Filters on a row of events; with ``field_of`` on a row of something else, where cohorts mean nothing."""
        if field_of is None:
            return group_condition(group, self._filter_scope(()))
        return group_condition(
            group,
            replace(self._filter_scope(()), cohort=None, session=None, expression=None, field_of=field_of),
        )

    def _filter_scope(self, inside: tuple[int, ...]) -> FilterScope:
        question = self.question
        return FilterScope(
            self.dialect,
            self.parameters,
            question.span.now,
            zone_of(question.zone),
            group_columns={index: group_column(index) for index in question.groups},
            cohort=lambda leaf: self._cohort(leaf, inside),
            session=self.of_session,
            expression=lambda leaf: truth_of(read(leaf.key, leaf.type), self, leaf.type),
        )

    def _cohort(self, leaf: PropertyFilter, inside: tuple[int, ...]) -> str:
        """Whether the person of a row belongs to a cohort, or does not."""
        parts = []
        for identifier in cohort_ids(leaf.value):
            cohort = self.question.cohorts.get(identifier)
            if cohort is None:
                raise FilterError(f"cohort {identifier} does not exist", leaf.key)
            if identifier in inside:
                raise FilterError(f"cohort {identifier} contains itself", leaf.key)
            if cohort.people is not None:
                found = self.dialect.one_of_people("person_id", self.parameters.bind(cohort.people))
                parts.append(self.parameters.written(f"coalesce({found}, FALSE)", leaf.key))
            else:
                parts.append(group_condition(cohort.filters, self._filter_scope((*inside, identifier))))
        belongs = combined("OR", parts) if parts else FALSE
        return f"(NOT {belongs})" if leaf.negation or leaf.operator == "not_in" else belongs

    def matches(self, source: EventSource) -> str:
        """Whether a row of events comes from a source."""
        if not source.alternatives:
            return FALSE
        either = combined("OR", [self._match(match) for match in source.alternatives])
        return combined("AND", [either, self.filters(source.filters)])

    def _match(self, match: EventMatch) -> str:
        parts = []
        if match.event is not None:
            parts.append(self.parameters.written(f"event = {self.bind(match.event)}", match.event))
        return combined("AND", [*parts, self.filters(match.filters)])

    def within(self, since: datetime, before: datetime) -> str:
        """Rows of the project's events in ``[since, before)``."""
        return (
            f"project_id = {self.bind(self.question.exposures.project_id)} "
            f"AND timestamp >= {self.bind(since)} AND timestamp < {self.bind(before)}"
        )

    def before_exposures(self, lookback_us: int) -> str:
        """Rows of the project's events that may lie that long before somebody's exposure, or less."""
        span = self.question.span
        return self.within(span.start - timedelta(microseconds=lookback_us), exclusive(span.end))

    def read_until(self, window_us: int = 0, *, inclusive: bool = False) -> datetime:
        """The bound before which events are read: the end of the span and what may follow it.

        ``inclusive``: an event at the very end is read. A capped span reads what happened in it, and no more.
        """
        span = self.question.span
        if span.capped:
            return exclusive(span.end)
        end = later(span.end, window_us)
        return exclusive(end) if inclusive else end

    def ts(self) -> str:
        return self.dialect.micros("timestamp")

    # -- days ------------------------------------------------------------------------------------------

    @property
    def days(self) -> DayGrid | None:
        return self.question.span.days

    def day(self, ts: str) -> str:
        """The number of the grid's day on which a moment (microseconds) lies, cut off at both ends."""
        grid = self.days
        if grid is None or grid.count == 1:
            return "CAST(0 AS INTEGER)"  # a bare number in GROUP BY would be the number of a column
        # Shifted so that the dividend is not negative, because engines round negative quotients differently.
        since_first = f"greatest({local_time(ts, grid.offsets)} - {grid.first_number * DAY_US}, 0)"
        return f"least({self.dialect.integer_division(since_first, DAY_US)}, {grid.count - 1})"


def cohort_ids(value: object) -> list[int]:
    """The ids that the value of a cohort filter names."""
    values = value if isinstance(value, list) else [value]
    return [int(text) for text in map(str, values) if len(text) < 19 and text.isascii() and text.isdigit()]


def local_time(ts: str, offsets: Sequence[OffsetStep]) -> str:
    """Microseconds of local time since the epoch, for a moment in UTC microseconds."""
    offset = str(offsets[-1].offset_us)
    if len(offsets) > 1:
        cases = " ".join(
            f"WHEN {ts} < {after.since_us} THEN {step.offset_us}" for step, after in pairwise(offsets)
        )
        offset = f"CASE {cases} ELSE {offset} END"
    return f"({ts} + ({offset}))"


def exclusive(moment: datetime) -> datetime:
    """The bound before which everything up to and including ``moment`` lies."""
    return (
        moment + timedelta(microseconds=1) if moment < datetime.max.replace(tzinfo=moment.tzinfo) else moment
    )
