"""Question of a ``TrendsQuery``, read from JSON: a subset of PostHog's, with the same meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.query.days import DAY_US, DayGrid, day_of, end_of_day, zone_of
from hoglab.analysis.query.scope import exclusive
from hoglab.filters import FilterError, PropertyGroup, parse_filters
from hoglab.filters.dates import parse_filter_date

if TYPE_CHECKING:
    from datetime import tzinfo

    from hoglab.analysis.query.model import CohortMembers
    from hoglab.http.identity import Project

MAX_SERIES = 5
MAX_POINTS = 750
"""Maximum number of points of a series."""
MAX_BREAKDOWN_VALUES = 25
"""Maximum number of values with a series of their own, the most frequent ones; all others share one."""
DEFAULT_FROM = "-7d"
MAX_KEY_LENGTH = 400

MINUTE_US, HOUR_US = 60_000_000, 3_600_000_000


ChoiceT = TypeVar("ChoiceT", bound=StrEnum)


class Interval(StrEnum):
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"


class TrendMath(StrEnum):
    """Kind of count: events, or the people who have one."""

    TOTAL = "total"
    DAU = "dau"


@dataclass(frozen=True, slots=True)
class TrendSeries:
    """Series of events. ``event`` is None for all; ``name`` is its label in answers."""

    event: str | None
    name: str
    math: TrendMath
    filters: PropertyGroup


@dataclass(frozen=True, slots=True)
class TrendBreakdown:
    """A property, of the event or of its person, whose values have a series each."""

    key: str
    column: str


@dataclass(frozen=True, slots=True)
class TrendsQuery:
    """Series over ``[start, end)``, which begins with a whole interval of the project's zone."""

    series: tuple[TrendSeries, ...]
    start: datetime
    end: datetime
    interval: Interval
    zone: tzinfo
    filters: PropertyGroup
    breakdown: TrendBreakdown | None
    cohorts: Mapping[int, CohortMembers]
    """Cohorts that the filters name."""

    @property
    def step_us(self) -> int:
        """Length of an interval in microseconds; a day may be an hour shorter or longer."""
        return {Interval.MINUTE: MINUTE_US, Interval.HOUR: HOUR_US, Interval.DAY: DAY_US}[self.interval]

    @property
    def days(self) -> DayGrid:
        """Days of the time range."""
        return DayGrid.between(self.start, self.end - timedelta(microseconds=1), self.zone)

    @property
    def count(self) -> int:
        """Number of points of a series."""
        if self.interval is Interval.DAY:
            return self.days.count
        return -((self.start - self.end) // timedelta(microseconds=self.step_us))

    @property
    def labels(self) -> list[str]:
        """Beginning of each interval, in the project's zone."""
        if self.interval is Interval.DAY:
            return [day.isoformat() for day in self.days.days]
        step = timedelta(microseconds=self.step_us)
        return [
            (self.start + number * step).astimezone(self.zone).strftime("%Y-%m-%d %H:%M:%S")
            for number in range(self.count)
        ]


def read_trends(
    project: Project, query: Mapping[str, Any], now: datetime, cohorts: Mapping[int, CohortMembers]
) -> TrendsQuery:
    """Read a question of a project; ``cohorts`` are those that its filters name. Raises `DefinitionError`."""
    zone = zone_of(project.timezone)
    interval = _choice(query.get("interval"), Interval, Interval.DAY, "interval")
    given = query.get("series")
    if not isinstance(given, list) or not 0 < len(given) <= MAX_SERIES:
        raise DefinitionError(f"series must be a list of 1 to {MAX_SERIES} series")
    start, end = _range(query.get("dateRange"), now, zone)
    asked = TrendsQuery(
        tuple(_series(series, f"series[{place}]") for place, series in enumerate(given)),
        _begin(start, interval, zone),
        end,
        interval,
        zone,
        _all_filters(project, query),
        _breakdown(query.get("breakdownFilter")),
        cohorts,
    )
    points = (end - asked.start) / timedelta(microseconds=asked.step_us)
    if points > MAX_POINTS:
        raise DefinitionError(
            f"An interval of a {interval} makes {points:,.0f} points, more than {MAX_POINTS}: take a longer interval "
            "or a shorter time."
        )
    return asked


def _series(given: object, path: str) -> TrendSeries:
    if not isinstance(given, Mapping):
        raise DefinitionError(f"{path} must be an object")
    if given.get("kind") != "EventsNode":
        raise DefinitionError(f"{path}.kind must be 'EventsNode'")
    event = given.get("event")
    if event is not None and not isinstance(event, str):
        raise DefinitionError(f"{path}.event must be the name of an event, or null for all events")
    name = given.get("custom_name") or given.get("name") or event
    return TrendSeries(
        event,
        name if isinstance(name, str) else "All events",
        _choice(given.get("math"), TrendMath, TrendMath.TOTAL, f"{path}.math"),
        _filters(given.get("properties"), f"{path}.properties"),
    )


def _all_filters(project: Project, query: Mapping[str, Any]) -> PropertyGroup:
    """Return the filters of all series: the query's, and on request the project's filters for test accounts."""
    groups = [_filters(query.get("properties"), "properties")]
    if query.get("filterTestAccounts"):
        groups.append(_filters(project.test_account_filters, "test_account_filters"))
    return PropertyGroup("AND", tuple(groups))


def _filters(given: object, path: str) -> PropertyGroup:
    try:
        return parse_filters(given, path)
    except FilterError as error:
        raise DefinitionError(str(error)) from error


def _breakdown(given: object) -> TrendBreakdown | None:
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise DefinitionError("breakdownFilter must be an object")
    key = given.get("breakdown")
    if key is None:
        return None
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_LENGTH:
        raise DefinitionError("breakdownFilter.breakdown must be the name of a property")
    columns = {None: "properties", "event": "properties", "person": "person_properties"}
    kind = given.get("breakdown_type")
    if not isinstance(kind, str | None) or kind not in columns:
        raise DefinitionError("breakdownFilter.breakdown_type must be 'event' or 'person'")
    return TrendBreakdown(key, columns[kind])


def _choice(given: object, choices: type[ChoiceT], default: ChoiceT, path: str) -> ChoiceT:
    if given is None:
        return default
    if not isinstance(given, str) or given not in list(choices):
        named = ", ".join(repr(str(choice)) for choice in choices)
        raise DefinitionError(f"{path} must be one of {named}")
    return choices(given)


def _range(given: object, now: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """Return the time range of a query, up to now by default."""
    if given is not None and not isinstance(given, Mapping):
        raise DefinitionError("dateRange must be an object")
    given = given or {}
    start = _moment(given.get("date_from") or DEFAULT_FROM, "date_from", now, zone)
    until = given.get("date_to")
    end = exclusive(now) if until is None else _moment(until, "date_to", now, zone)
    if isinstance(until, str) and len(until.strip()) == len("2026-01-02"):
        end = end_of_day(day_of(end, zone), zone)  # a day counts as a whole
    if start >= end:
        raise DefinitionError("dateRange.date_from must be before dateRange.date_to")
    return start, end


def _moment(given: object, name: str, now: datetime, zone: tzinfo) -> datetime:
    moment = parse_filter_date(given, now, zone) if isinstance(given, str) else None
    if moment is None:
        raise DefinitionError(
            f"dateRange.{name} must be a date, a date-time, or a time back from now as '-7d'"
        )
    return moment


def _begin(moment: datetime, interval: Interval, zone: tzinfo) -> datetime:
    """Return the beginning of the interval of a moment."""
    local = moment.astimezone(zone)
    match interval:
        case Interval.DAY:
            return end_of_day(local.date() - timedelta(days=1), zone)
        case Interval.HOUR:
            into = timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
        case Interval.MINUTE:
            into = timedelta(seconds=local.second, microseconds=local.microsecond)
    return moment - into
