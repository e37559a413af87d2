"""Reading what runs left behind: logs and metrics (spec: hog-functions-api 16, 17)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from hoglab.http.fields.dates import parse_moment
from hoglab.storage.database.tables import app_metric, log_entry

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Row

APP_SOURCE = "hog_function"
MAX_LABELS = 10_000
"""Most points of one series; a longer range is refused."""

_RELATIVE = re.compile(r"-?(\d{1,6})(h|d|w|m|q|y|M|s)(Start|End)?")
_HOURS = {"h": 1, "d": 24, "w": 24 * 7}


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which log lines are wanted; None leaves a column alone."""

    limit: int = 50
    offset: int = 0
    after: datetime | None = None
    before: datetime | None = None
    levels: Collection[str] | None = None
    search: str | None = None
    instance_id: str | None = None

    def takes(self, level: str, message: str, instance_id: str) -> bool:
        """Whether a stored line has what is wanted of its columns other than the time."""
        return (
            (self.levels is None or level.upper() in self.levels)
            and (not self.search or self.search.lower() in message.lower())
            and (self.instance_id is None or instance_id == self.instance_id)
        )


def read_logs(
    connection: Connection, project_id: int, function_id: str, query: LogQuery
) -> list[dict[str, Any]]:
    """The newest matching lines of one function."""
    column = log_entry.c
    wanted: list[ColumnElement[bool]] = [column.project_id == project_id, column.log_source_id == function_id]
    if query.after is not None:
        wanted.append(column.timestamp > query.after)
    if query.before is not None:
        wanted.append(column.timestamp < query.before)
    if query.levels is not None:
        wanted.append(column.level.in_([level.lower() for level in query.levels]))
    if query.search:
        wanted.append(column.message.icontains(query.search, autoescape=True))
    if query.instance_id is not None:
        wanted.append(column.instance_id == query.instance_id)
    rows = connection.execute(
        select(log_entry)
        .where(*wanted)
        .order_by(column.timestamp.desc(), column.id.desc())
        .limit(query.limit)
    )
    return [line_of(row) for row in rows][query.offset :]


def line_of(row: Row[Any]) -> dict[str, Any]:
    """A row of the log as the API shows it."""
    return {
        "log_source_id": row.log_source_id,
        "instance_id": row.instance_id,
        "timestamp": row.timestamp,
        "level": row.level.upper(),
        "message": row.message,
    }


# --- metrics


@dataclass(frozen=True, slots=True)
class MetricQuery:
    """Which metrics are wanted. ``breakdown``: ``name`` or ``kind``; ``interval``: ``hour``, ``day``, ``week``."""

    after: datetime
    before: datetime
    interval: str = "day"
    breakdown: str = "kind"
    names: Collection[str] | None = None
    kinds: Collection[str] | None = None
    instance_id: str | None = None


def read_series(
    connection: Connection, project_id: int, function_id: str, query: MetricQuery
) -> dict[str, Any]:
    """``{"labels": […], "series": [{"name", "values"}]}``: one value for each label, by name of series."""
    moments = list(_buckets(query.after, query.before, query.interval))
    places = {moment: place for place, moment in enumerate(moments)}
    series: dict[str, list[int]] = {}
    for breakdown, hour, count in _hours(connection, project_id, function_id, query):
        place = places.get(floor(hour, query.interval))
        if place is not None:
            series.setdefault(breakdown, [0] * len(moments))[place] += count
    form = "%Y-%m-%dT%H:%M" if query.interval == "hour" else "%Y-%m-%d"
    return {
        "labels": [moment.strftime(form) for moment in moments],
        "series": [{"name": name, "values": series[name]} for name in sorted(series)],
    }


def read_totals(
    connection: Connection, project_id: int, function_id: str, query: MetricQuery
) -> Mapping[str, int]:
    """The sum of each name or kind, by name."""
    totals: dict[str, int] = {}
    for breakdown, _, count in _hours(connection, project_id, function_id, query):
        totals[breakdown] = totals.get(breakdown, 0) + count
    return dict(sorted(totals.items()))


def _hours(
    connection: Connection, project_id: int, function_id: str, query: MetricQuery
) -> Iterator[tuple[str, datetime, int]]:
    column = app_metric.c
    breakdown = column.metric_name if query.breakdown == "name" else column.metric_kind
    wanted: list[ColumnElement[bool]] = [
        column.project_id == project_id,
        column.app_source == APP_SOURCE,
        column.app_source_id == function_id,
        # Counts are kept by the hour, so the hour in which the range begins is in it.
        column.hour >= floor(query.after, "hour"),
        column.hour <= query.before,
    ]
    if query.names is not None:
        wanted.append(column.metric_name.in_(query.names))
    if query.kinds is not None:
        wanted.append(column.metric_kind.in_(query.kinds))
    if query.instance_id is not None:
        wanted.append(column.instance_id == query.instance_id)
    total = func.sum(column.count)
    rows = connection.execute(
        select(breakdown, column.hour, total).where(*wanted).group_by(breakdown, column.hour)
    )
    for name, hour, count in rows:
        yield name, hour, int(count)


def floor(moment: datetime, interval: str) -> datetime:
    """The beginning of the hour, day or week (from Monday) that a moment is in, in UTC."""
    hour = moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if interval == "hour":
        return hour
    day = hour.replace(hour=0)
    return day - timedelta(days=day.weekday()) if interval == "week" else day


def _buckets(after: datetime, before: datetime, interval: str) -> Iterator[datetime]:
    moment = floor(after, interval)
    step = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}[interval]
    while moment <= before:
        yield moment
        moment += step


def label_count(after: datetime, before: datetime, interval: str) -> int:
    """How many labels a range has, about."""
    step_s = {"hour": 3600, "day": 86_400, "week": 7 * 86_400}[interval]
    return int(max(0.0, (before - after).total_seconds()) // step_s) + 1


def read_time(text: str, now: datetime) -> datetime:
    """A moment, or one relative to now: ``-7d``, ``-24h``, ``-1m`` (months). Raises `ValueError`."""
    relative = _RELATIVE.fullmatch(text.strip())
    if relative is None:
        return parse_moment(text)
    number, unit = int(relative[1]), relative[2]
    try:
        moment = _before(now, number, unit)
    except OverflowError as error:
        raise ValueError("out of range") from error
    if relative[3] == "Start":
        return floor(moment, "hour" if unit == "h" else "day")
    return moment


def _before(now: datetime, number: int, unit: str) -> datetime:
    match unit:
        case "h" | "d" | "w":
            return now - timedelta(hours=number * _HOURS[unit])
        case "M":
            return now - timedelta(minutes=number)
        case "s":
            return now - timedelta(seconds=number)
    months = number * {"m": 1, "q": 3, "y": 12}[unit]
    month = now.year * 12 + now.month - 1 - months
    year, place = divmod(month, 12)
    if year < 1:
        raise ValueError("out of range")
    day = min(now.day, _days(year, place + 1))
    return now.replace(year=year, month=place + 1, day=day)


def _days(year: int, month: int) -> int:
    following = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    return (following - timedelta(days=1)).day
