"""Dates in filters of feature flags (spec: sdk-wire 3.7)."""

from __future__ import annotations

import calendar
import math
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from hoglab.patterns import anchored

MAX_RELATIVE_NUMBER = 9_999
"""The largest number of units in a relative date; ``10000d`` is not a date."""

MAX_DATE_LENGTH = 100
"""Longest text that is read as a date, blanks around it included; the longest known form has 35 characters."""

_RELATIVE = anchored(r"-?([0-9]+)([hdwmy])")
_ABSOLUTE = anchored(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r"[ ]?([Zz]|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_NUMBER = anchored(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_FIXED_UNIT_HOURS = {"h": 1, "d": 24, "w": 168}
_SHORTEST_MONTH = 28


def parse_filter_date(text: str, now: datetime, zone: tzinfo) -> datetime | None:
    """Return the instant that a filter value means, or None when it is not a date.

    Relative values (``-7d``, ``3m``) lie before ``now``; values without a zone are in ``zone``.
    """
    if len(text) > MAX_DATE_LENGTH:
        return None
    text = text.strip()
    relative = _RELATIVE.fullmatch(text)
    if relative is not None:
        return _before(now, relative[1], relative[2])
    return _absolute(text, zone)


def parse_property_date(value: object, now: datetime, zone: tzinfo) -> datetime | None:
    """Return the instant that a property means: numbers and numeric text are epoch seconds, the rest is text.

    None for text of more than `MAX_DATE_LENGTH` characters, and for everything else that is not a date.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return _from_epoch(value)
    if not isinstance(value, str) or len(value) > MAX_DATE_LENGTH:
        return None
    text = value.strip()
    if _NUMBER.fullmatch(text):
        return _from_epoch(float(text))
    return parse_filter_date(text, now, zone)


def is_relative(text: str) -> bool:
    """Return whether the value is relative to now, so that it must be resolved again at each use."""
    return len(text) <= MAX_DATE_LENGTH and _RELATIVE.fullmatch(text.strip()) is not None


def months_before(moment: datetime, months: int) -> datetime | None:
    """Go back month by month; the day is clamped at every step, the time of day is kept.

    31 March minus two months is 28 January, because it passes 28 February. None before the year 1.
    """
    last = moment.year * 12 + moment.month - 1
    first = last - months
    if first < 12:
        return None
    day = moment.day
    for index in range(last - 1, first - 1, -1):
        if day <= _SHORTEST_MONTH:
            break
        day = min(day, calendar.monthrange(index // 12, index % 12 + 1)[1])
    return moment.replace(year=first // 12, month=first % 12 + 1, day=day)


def _before(now: datetime, digits: str, unit: str) -> datetime | None:
    number = int(digits) if len(digits.lstrip("0")) <= 4 else MAX_RELATIVE_NUMBER + 1
    if number > MAX_RELATIVE_NUMBER:
        return None
    if unit == "m":
        return months_before(now, number)
    if unit == "y":
        return _years_before(now, number)
    try:
        return now - timedelta(hours=number * _FIXED_UNIT_HOURS[unit])
    except OverflowError:
        return None


def _years_before(moment: datetime, years: int) -> datetime | None:
    """Return the moment some years before; 29 February becomes the 28th on the first step.

    It stays the 28th, because no two leap years follow each other.
    """
    if moment.year - years < 1:
        return None
    day = _SHORTEST_MONTH if years and (moment.month, moment.day) == (2, 29) else moment.day
    return moment.replace(year=moment.year - years, day=day)


def _absolute(text: str, zone: tzinfo) -> datetime | None:
    match = _ABSOLUTE.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    try:
        moment = datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "")[:6].ljust(6, "0")),
            tzinfo=_zone(offset, zone),
        )
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _zone(offset: str | None, zone: tzinfo) -> tzinfo:
    if offset is None:
        return zone
    if offset in {"Z", "z"}:
        return UTC
    digits = offset[1:].replace(":", "")
    delta = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-delta if offset[0] == "-" else delta)


def _from_epoch(seconds: float) -> datetime | None:
    if not math.isfinite(seconds):
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
