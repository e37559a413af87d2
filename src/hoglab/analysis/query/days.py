"""Calendar days of a project: which day a moment belongs to, without asking an engine about time zones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cached_property
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

DAY_US = 86_400_000_000
MAX_DAYS = 2000
"""Maximum number of daily points of a series; a longer one keeps only the last ones."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def zone_of(name: str) -> tzinfo:
    """Return a time zone by name; UTC for an unknown name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def micros(moment: datetime) -> int:
    """Return microseconds since the Unix epoch."""
    return (moment - _EPOCH) // _MICROSECOND


def day_of(moment: datetime, zone: tzinfo) -> date:
    """Return the calendar day of a moment in a zone."""
    return moment.astimezone(zone).date()


def end_of_day(day: date, zone: tzinfo) -> datetime:
    """Return the first moment after a day, in UTC."""
    return datetime.combine(day + timedelta(days=1), time(), zone).astimezone(UTC)


@dataclass(frozen=True, slots=True)
class OffsetStep:
    """From ``since_us`` on, local time is UTC plus ``offset_us``."""

    since_us: int
    offset_us: int


@dataclass(frozen=True)
class DayGrid:
    """The days from ``first`` on, ``count`` of them, numbered from 0.

    Moments before the first day belong to day 0 and moments after the last day to the last.
    """

    zone: tzinfo
    first: date
    count: int

    @classmethod
    def between(cls, start: datetime, end: datetime, zone: tzinfo, *, limit: int = MAX_DAYS) -> DayGrid:
        """Return the days from that of ``start`` to that of ``end``, the last ``limit`` of them at most."""
        first, last = day_of(start, zone), day_of(end, zone)
        count = max(1, (last - first).days + 1)
        if count > limit:
            first, count = last - timedelta(days=limit - 1), limit
        return cls(zone, first, count)

    @property
    def days(self) -> list[date]:
        """All days, in order; for one of them there is `day`, which does not make a list."""
        return [self.day(number) for number in range(self.count)]

    def day(self, number: int) -> date:
        """Return the day of a number."""
        return self.first + timedelta(days=number)

    @property
    def first_number(self) -> int:
        """The first day, counted from the epoch."""
        return (self.first - date(1970, 1, 1)).days

    @cached_property
    def offsets(self) -> list[OffsetStep]:
        """The offsets of the zone over the days; the first one holds for everything before, too."""
        begin = end_of_day(self.first - timedelta(days=2), self.zone)
        return zone_offsets(begin, begin + timedelta(days=self.count + 2), self.zone)


def zone_offsets(begin: datetime, end: datetime, zone: tzinfo) -> list[OffsetStep]:
    """Return offsets of local time from UTC between two moments; the first offset holds for everything before."""
    steps = [OffsetStep(micros(begin), _offset_us(begin, zone))]
    moment = begin
    while moment < end:
        moment += timedelta(days=1)
        offset = _offset_us(moment, zone)
        if offset != steps[-1].offset_us:
            steps.append(OffsetStep(micros(_transition(moment, zone)), offset))
    return steps


def _transition(after: datetime, zone: tzinfo) -> datetime:
    """Return the second at which the offset of ``after`` began, within the day before."""
    low, high = after - timedelta(days=1), after
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
        if _offset_us(middle, zone) == _offset_us(after, zone):
            high = middle
        else:
            low = middle
    return high


def _offset_us(moment: datetime, zone: tzinfo) -> int:
    return (moment.astimezone(zone).utcoffset() or timedelta()) // _MICROSECOND
