"""Questions to the event store, as data: exposures, values, metrics and the time they cover.

This module does not depend on JSON or on SQL. Moments are aware datetimes, durations are in microseconds because
that is the resolution of stored events. Source: spec experiment-results 2 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from hoglab.filters.model import GROUP_TYPES, PropertyFilter, PropertyGroup
from hoglab.hog import nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hoglab.analysis.query.days import DayGrid
    from hoglab.hog.nodes import Expr
    from hoglab.storage.table_files import FileTable

SECOND_US = 1_000_000
_GROUP_NAMES = tuple(f"group_{index}" for index in range(GROUP_TYPES))
NO_FILTERS = PropertyGroup("AND", ())
LAST_MOMENT = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class EventMatch:
    """Events of one name (None: any name) to which the filters apply."""

    event: str | None
    filters: PropertyGroup = NO_FILTERS


@dataclass(frozen=True, slots=True)
class EventSource:
    """Events that any of the alternatives matches; without alternatives none does."""

    alternatives: tuple[EventMatch, ...]
    filters: PropertyGroup = NO_FILTERS

    def may_overlap(self, other: EventSource) -> bool:
        """Return whether one event could match both, judged by names."""
        mine = {match.event for match in self.alternatives}
        theirs = {match.event for match in other.alternatives}
        if not mine or not theirs:
            return False
        return None in mine or None in theirs or bool(mine & theirs)


@dataclass(frozen=True, slots=True)
class JoinKey:
    """An expression by which rows are joined; keys of the same text are equal."""

    text: str
    expression: Expr = field(compare=False)


@dataclass(frozen=True, slots=True)
class TableSource:
    """Rows of a table beside the events (spec experiment-results 3.7).

    A row belongs to the entities whose first exposure gives the same text for ``events_join_key`` as the row for
    ``join_key``. ``timestamp`` is the name of a column.
    """

    table: FileTable
    timestamp: str
    join_key: JoinKey
    events_join_key: JoinKey
    filters: PropertyGroup = NO_FILTERS


Source = EventSource | TableSource


@dataclass(frozen=True, slots=True)
class BreakdownProperty:
    """A property of the first exposure row, by which results are split; ``type`` is a type of filters.

    For the type ``hogql`` the property is the text of the ``expression``; the type ``group`` needs an index.
    """

    property: str
    type: str = "event"
    expression: Expr | None = None
    group_type_index: int | None = None


@dataclass(frozen=True, slots=True)
class Exposures:
    """Exposures of an experiment (spec experiment-results 2.2, 2.3).

    ``variants`` are compared with the text of ``variant_property``; without one everybody is in the first.
    ``flag_key`` is the required value of ``$feature_flag``; None for custom exposures. ``first_seen`` keeps an
    entity that saw several variants with the earliest one; otherwise it leaves them all. ``group_type_index`` None:
    persons.
    """

    project_id: int
    source: EventSource
    flag_key: str | None
    variant_property: str | None
    variants: tuple[str, ...]
    test_account_filters: PropertyGroup = NO_FILTERS
    first_seen: bool = False
    group_type_index: int | None = None
    activation: EventSource | None = None
    """Event that an entity must reach after its flag was shown; it is then the exposure (spec 2.4)."""
    breakdowns: tuple[BreakdownProperty, ...] = ()
    substitute: EventSource | None = None
    """Source that counts instead while the project has no event of the given source at all."""

    @property
    def entity_column(self) -> str:
        """The column of all events that identifies an entity."""
        return "person_id" if self.group_type_index is None else f"group_{self.group_type_index}"

    @property
    def sources(self) -> tuple[EventSource, ...]:
        """All sources of exposures: an entity without an event of any of them is not exposed."""
        sources = (self.source, self.activation, self.substitute)
        return tuple(source for source in sources if source is not None)

    @property
    def event_names(self) -> frozenset[str | None]:
        """The names of the events of these sources; None stands for any event."""
        return event_names(self.sources)


@dataclass(frozen=True, slots=True)
class Span:
    """The time that a result covers: exposures in ``[start, end]``.

    ``now`` is the origin of relative dates in filters. Maturity is judged at the end. A ``capped``
    span does not read events after its end, not even within the windows of the metric: it is an earlier point of a
    series. With ``days`` a result is given for the end of every day of the grid; the last one is the whole span.
    """

    start: datetime
    end: datetime
    now: datetime
    days: DayGrid | None = None
    capped: bool = False


class Math(StrEnum):
    """Aggregation of the values of an entity's events into one number (spec experiment-results 1.6)."""

    TOTAL = "total"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    UNIQUE_SESSION = "unique_session"
    UNIQUE_PERSON = "dau"
    UNIQUE_GROUP = "unique_group"
    UNIQUE_VALUE = "unique_value"
    """Number of distinct values of an expression: ``count(distinct …)``."""
    QUANTILE = "quantile"
    """Quantile of an expression over the events of one entity: interpolated between the two nearest values."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Percentile bounds (fractions) over the values of all entities."""

    lower: float | None
    upper: float | None
    ignore_zeros: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """One number for each entity. ``property`` None counts each event, or row of a table, as 1."""

    source: Source
    math: Math = Math.TOTAL
    property: str | None = None
    group_type_index: int | None = None
    bounds: Bounds | None = None
    threshold: float | None = None
    session_property: str | None = None
    """Property of sessions, read once for each session instead of from its events (spec experiment-results 3.5)."""
    expression: Expr | None = None
    """Expression computed from each event instead of one property (``math_hogql``)."""
    level: float = 0.5
    """Level of the quantile, from 0 to 1, of that math."""
    skips_null: bool = False
    """Whether rows with an expression that is NULL are ignored; else they count as 0, like all without a number."""


@dataclass(frozen=True, slots=True)
class MeanMeasure:
    """A value for each exposed entity; 0 without events."""

    value: Value
    window_us: int = 0
    covariate_us: int = 0
    """Reach of the CUPED covariate before the exposure, in microseconds; 0: none."""


@dataclass(frozen=True, slots=True)
class RatioMeasure:
    """Two values for each exposed entity."""

    numerator: Value
    denominator: Value
    window_us: int = 0


class FunnelOrder(StrEnum):
    """Order in which the steps of a funnel may follow each other."""

    ORDERED = "ordered"
    UNORDERED = "unordered"
    STRICT = "strict"


@dataclass(frozen=True, slots=True)
class FunnelMeasure:
    """Funnel that exposed entities pass; the exposure is step 0 and not among ``steps``.

    Steps that are rows of tables have the same ``events_join_key``; those that are events are then joined by it too.
    """

    steps: tuple[Source, ...]
    order: FunnelOrder = FunnelOrder.ORDERED
    window_us: int = 0
    covariate_us: int = 0


class RetentionUnit(StrEnum):
    """Unit of retention: a calendar unit of the project, or a span of time."""

    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class RetentionMeasure:
    """Return of entities with a start event between ``first`` and ``last`` units later."""

    start: Source
    completion: Source
    first: int
    last: int
    unit: RetentionUnit
    last_seen: bool = False
    window_us: int = 0


@dataclass(frozen=True, slots=True)
class QuantileMeasure:
    """A quantile of the values of entities, or of all their events (spec experiment-results 10).

    ``ignore_zeros`` leaves out values of 0: entities without any event, where an entity has one value.
    """

    value: Value
    level: float
    per_event: bool = False
    ignore_zeros: bool = False
    window_us: int = 0


Metric = MeanMeasure | RatioMeasure | FunnelMeasure | RetentionMeasure | QuantileMeasure


def sources_of(metric: Metric) -> tuple[Source, ...]:
    """Return every source that a metric is computed from."""
    match metric:
        case MeanMeasure() | QuantileMeasure():
            return (metric.value.source,)
        case RatioMeasure():
            return (metric.numerator.source, metric.denominator.source)
        case FunnelMeasure():
            return metric.steps
        case RetentionMeasure():
            return (metric.start, metric.completion)


def metric_sources(metric: Metric) -> Iterator[EventSource]:
    """Yield the sources of the events that a metric counts."""
    yield from (source for source in sources_of(metric) if isinstance(source, EventSource))


def event_names(sources: Iterable[EventSource]) -> frozenset[str | None]:
    """Return the names of the events of some sources; None stands for any event."""
    return frozenset(match.event for source in sources for match in source.alternatives)


def values_of(metric: Metric) -> tuple[Value, ...]:
    """Return the values that a metric takes from its sources; none where it is about whether something happened."""
    match metric:
        case MeanMeasure() | QuantileMeasure():
            return (metric.value,)
        case RatioMeasure():
            return (metric.numerator, metric.denominator)
    return ()


def of_sessions(metric: Metric) -> bool:
    """Return whether a metric takes a value of sessions."""
    return any(value.session_property is not None for value in values_of(metric))


def tables_of(metric: Metric) -> tuple[TableSource, ...]:
    """Return the tables that a metric is computed from. Such a metric is never computed in steps, nor shared."""
    return tuple(source for source in sources_of(metric) if isinstance(source, TableSource))


@dataclass(frozen=True, slots=True)
class CohortMembers:
    """Members of a cohort: persons by id, or, when ``people`` is None, persons who match the filters."""

    filters: PropertyGroup = NO_FILTERS
    people: tuple[str, ...] | None = None
    version: int = field(default=0, repr=False)
    """Version of the list of people, which changes when it is edited, or the rules are from which it was calculated.

    Merges of persons and further calculations change the list alone.
    """
    is_calculated: bool = True
    """Whether the people are known: those of rules about behaviour are not before the first calculation."""

    @property
    def definition(self) -> object:
        """Definition of the cohort, which changes when somebody edits it."""
        return self.filters if self.people is None else self.version


@dataclass(frozen=True, slots=True)
class KnownGroups:
    """Groups of one type in their present state: their keys, and the requested properties of each as JSON."""

    keys: tuple[str, ...]
    properties: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A metric over the exposed entities of a span. ``matured_only``: spec experiment-results 2.5.

    ``cohorts`` are the cohorts that filters of the question name, by id. ``files`` are the files of its tables, by
    name, and ``groups`` the groups whose properties it asks for, by the index of their type: known when it is
    computed.
    """

    exposures: Exposures
    span: Span
    metric: Metric
    matured_only: bool = False
    zone: str = "UTC"
    cohorts: Mapping[int, CohortMembers] = field(default_factory=dict)
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    groups: Mapping[int, KnownGroups] = field(default_factory=dict)

    @property
    def group_properties(self) -> Mapping[int, frozenset[str]]:
        """The properties of groups that filters and breakdowns ask for, by the index of the groups' type.

        They are the properties that groups have when the question is answered, not at the time of the events.
        """
        properties: dict[int, set[str]] = {}
        for leaf in _filters_of(self):
            if leaf.type == "group" and leaf.group_type_index is not None:
                properties.setdefault(leaf.group_type_index, set()).add(leaf.key)
        for expression in _expressions_of(self):
            for chain in _chains_of(expression):
                if (asked := group_property(chain)) is not None:
                    properties.setdefault(asked[0], set()).add(asked[1])
        for breakdown in self.exposures.breakdowns:
            if breakdown.type == "group" and breakdown.group_type_index is not None:
                properties.setdefault(breakdown.group_type_index, set()).add(breakdown.property)
        return {index: frozenset(names) for index, names in properties.items() if 0 <= index < GROUP_TYPES}

    @property
    def shows_person_ids(self) -> bool:
        """Whether an expression asks for the id of an event's person."""
        return any(
            chain == ("person_id",)
            for expression in _expressions_of(self)
            for chain in _chains_of(expression)
        )

    @property
    def session_properties(self) -> tuple[str, ...]:
        """The properties of sessions that filters and breakdowns ask for."""
        names = {leaf.key for leaf in _filters_of(self) if leaf.type == "session"}
        names |= {
            breakdown.property for breakdown in self.exposures.breakdowns if breakdown.type == "session"
        }
        return tuple(sorted(names))

    @property
    def session_events(self) -> frozenset[str | None]:
        """The names of the events whose sessions filters and breakdowns ask for; None stands for any event."""
        exposures = self.exposures
        by_exposure = any(breakdown.type == "session" for breakdown in exposures.breakdowns)
        by_exposure = by_exposure or _ask_for_sessions(exposures.test_account_filters)
        asked = [(source, by_exposure) for source in exposures.sources]
        asked += [(source, False) for source in metric_sources(self.metric)]
        return frozenset(
            match.event
            for source, always in asked
            for match in source.alternatives
            if always or _ask_for_sessions(source.filters) or _ask_for_sessions(match.filters)
        )

    @property
    def lookback_us(self) -> int:
        """Time before the start of the span from which events may be read, in microseconds."""
        metric = self.metric
        return metric.covariate_us if isinstance(metric, MeanMeasure | FunnelMeasure) else 0

    @property
    def join_keys(self) -> tuple[JoinKey, ...]:
        """Keys by which rows of tables are joined, over the first exposure."""
        return tuple(dict.fromkeys(table.events_join_key for table in tables_of(self.metric)))


def _filters_of(question: Question) -> Iterator[PropertyFilter]:
    exposures = question.exposures
    yield from exposures.test_account_filters.leaves()
    for source in (*exposures.sources, *sources_of(question.metric)):
        yield from source.filters.leaves()
        if isinstance(source, EventSource):
            for match in source.alternatives:
                yield from match.filters.leaves()


def _ask_for_sessions(filters: PropertyGroup) -> bool:
    return any(leaf.type == "session" for leaf in filters.leaves())


def _expressions_of(question: Question) -> Iterator[Expr]:
    """Yield the expressions over events."""
    yield from (
        breakdown.expression
        for breakdown in question.exposures.breakdowns
        if breakdown.expression is not None
    )
    yield from (key.expression for key in question.join_keys)
    for value in values_of(question.metric):
        if value.expression is not None and isinstance(value.source, EventSource):
            yield value.expression


def _chains_of(expression: Expr) -> Iterator[tuple[str, ...]]:
    yield from (chain for node in nodes.walk(expression) if (chain := chain_of(node)) is not None)


def chain_of(node: nodes.Node) -> tuple[str, ...] | None:
    """Return the names by which an expression reads a value of an event: ``properties.a`` or ``properties['a']``.

    The result is None for others.
    """
    match node:
        case nodes.Field(chain=chain):
            return chain
        case nodes.ArrayAccess(array=nodes.Field(chain=chain), property=nodes.Constant(value=str(key))):
            return (*chain, key)
    return None


def group_property(chain: Sequence[str]) -> tuple[int, str] | None:
    """Return the index of the type and the property that ``group_0.properties.plan`` names; None for other names."""
    if len(chain) != 3 or chain[1] != "properties" or chain[0] not in _GROUP_NAMES:
        return None
    return _GROUP_NAMES.index(chain[0]), chain[2]


def group_column(index: int) -> str:
    """Return the column of all events of a question that holds the properties of an event's group, as JSON."""
    return f"group_{index}_properties"


def later(moment: datetime, duration_us: int) -> datetime:
    """Return the moment a duration later, or the latest possible one."""
    try:
        return moment + timedelta(microseconds=duration_us)
    except OverflowError:
        return LAST_MOMENT
