"""Reading logs and metrics of runs (spec: hog-functions-api 16, 17)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from hoglab.http.fields.dates import parse_moment
from hoglab.patterns import anchored
from hoglab.storage.invocations import HourQuery

if TYPE_CHECKING:
    from hoglab.storage.invocations import LogLine, RunStore

MAX_LABELS = 10_000
"""Maximum number of points of one series; a longer range is refused."""

_RELATIVE = anchored(r"-?(\d{1,6})(h|d|w|m|q|y|M|s)(Start|End)?")
_HOURS = {"h": 1, "d": 24, "w": 24 * 7}


def shown_line(line: LogLine) -> dict[str, Any]:
    """Return a line of the log as the API shows it."""
    return {
        "log_source_id": line.log_source_id,
        "instance_id": line.instance_id,
        "timestamp": line.timestamp,
        "level": line.level.upper(),
        "message": line.message,
    }


# --- metrics


@dataclass(frozen=True, slots=True)
class MetricQuery:
    """Query for metrics. ``breakdown``: ``name`` or ``kind``; ``interval``: ``hour``, ``day``, ``week``."""

    after: datetime
    before: datetime
    interval: str = "day"
    breakdown: str = "kind"
    names: Collection[str] | None = None
    kinds: Collection[str] | None = None
    instance_id: str | None = None

    def hours(self) -> HourQuery:
        """Return the hours that cover a range, including the one in which it begins."""
        by_name = self.breakdown == "name"
        since = floor(self.after, "hour")
        return HourQuery(since, self.before, by_name, self.names, self.kinds, self.instance_id)


def read_series(store: RunStore, project_id: int, function_id: str, query: MetricQuery) -> dict[str, Any]:
    """Return ``{"labels": […], "series": [{"name", "values"}]}``: one value for each label, by name of series."""
    moments = list(_buckets(query.after, query.before, query.interval))
    places = {moment: place for place, moment in enumerate(moments)}
    series: dict[str, list[int]] = {}
    for label, hour, count in store.hourly_counts(project_id, function_id, query.hours()):
        place = places.get(floor(hour, query.interval))
        if place is not None:
            series.setdefault(label, [0] * len(moments))[place] += count
    form = "%Y-%m-%dT%H:%M" if query.interval == "hour" else "%Y-%m-%d"
    return {
        "labels": [moment.strftime(form) for moment in moments],
        "series": [{"name": name, "values": series[name]} for name in sorted(series)],
    }


def read_totals(store: RunStore, project_id: int, function_id: str, query: MetricQuery) -> Mapping[str, int]:
    """Return the sum of each name or kind, by name."""
    totals: dict[str, int] = {}
    for label, _, count in store.hourly_counts(project_id, function_id, query.hours()):
        totals[label] = totals.get(label, 0) + count
    return dict(sorted(totals.items()))


def floor(moment: datetime, interval: str) -> datetime:
    """Return the beginning of the hour, day or week (from Monday) that a moment is in, in UTC."""
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
    """Return approximate number of labels of a range."""
    step_s = {"hour": 3600, "day": 86_400, "week": 7 * 86_400}[interval]
    return int(max(0.0, (before - after).total_seconds()) // step_s) + 1


def read_time(text: str, now: datetime) -> datetime:
    """Return a moment, or one relative to now: ``-7d``, ``-24h``, ``-1m`` (months). Raises `ValueError`."""
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
