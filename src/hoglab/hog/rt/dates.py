"""Instants, calendar days and time zones: reading, breaking up, putting together, printing.

Instants are Unix seconds as a number with at most millisecond meaning.  Everything works for the years 1 to
9999; instants outside have no calendar and raise `OverflowError` here.  spec: hog-language 8.9, 10.6.
"""

import datetime as dt
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.patterns import IGNORECASE, anchored
from hoglab.hog.rt.values import FIRST_INSTANT, LAST_INSTANT, HogDate, HogDateTime

UTC: Final = dt.UTC
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_ORDINAL: Final = dt.date(1970, 1, 1).toordinal()
_DAY_S: Final = 86_400

_DATE_LIKE = anchored(
    r"\s*([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?"
    r"([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?\s*"
)
_FIXED_ZONE = anchored(r"UTC([+-])([0-9]{1,2})(?::?([0-9]{2}))?", IGNORECASE)
_MAX_DATE_TEXT: Final = 1_000  # white space around a date is allowed, but there must be an end to it
_MAX_ZONE_NAME: Final = 64
_UNIVERSAL: Final = frozenset({"UTC", "GMT"})


def in_range(seconds: float) -> bool:
    """Return whether an instant has a calendar date here (years 1 to 9999; false for NaN)."""
    return FIRST_INSTANT <= seconds <= LAST_INSTANT


@lru_cache(maxsize=256)
def time_zone(name: str) -> dt.tzinfo:
    """Return the zone of an IANA name (any letter case), `UTC`, or a fixed offset such as `UTC+5:30`.

    Raises:
        HogRuntimeError: no such zone.
    """
    if len(name) > _MAX_ZONE_NAME:
        raise HogRuntimeError(f"Unknown time zone: {name[:_MAX_ZONE_NAME]}")
    if name.upper() in _UNIVERSAL:
        return UTC
    fixed = _FIXED_ZONE.fullmatch(name)
    if fixed:
        sign, hours, minutes = fixed.groups()
        offset = int(hours) * 60 + int(minutes or 0)
        if offset < 24 * 60:
            return dt.timezone(dt.timedelta(minutes=-offset if sign == "-" else offset))
    known = _zone_names().get(name.lower())
    if known is None:
        raise HogRuntimeError(f"Unknown time zone: {name}")
    return ZoneInfo(known)


@lru_cache(maxsize=1)
def _zone_names() -> dict[str, str]:
    return {name.lower(): name for name in available_timezones()}


def local_time(seconds: float, zone: str = "UTC") -> dt.datetime:
    """Return the wall clock at an instant in a zone, with whole milliseconds (further digits are cut off).

    Raises:
        OverflowError: outside the years 1 to 9999.
        HogRuntimeError: unknown zone.
    """
    if not in_range(seconds):
        raise OverflowError("instant outside the years 1 to 9999")
    if isinstance(seconds, int):
        moment = _EPOCH + dt.timedelta(seconds=seconds)
    else:
        moment = _EPOCH + dt.timedelta(milliseconds=_milliseconds(seconds))
    return moment if zone == "UTC" else moment.astimezone(time_zone(zone))


def _milliseconds(seconds: float) -> int:
    """Return whole milliseconds; rounding noise of a double below a whole number counts as that number."""
    exact = seconds * 1000
    nearest = round(exact)
    return nearest if abs(exact - nearest) < 0.05 else int(exact)


def instant(wall_clock: dt.datetime) -> int | float:
    """Return the Unix time of an aware wall clock; an int when it has no milliseconds."""
    offset = wall_clock.utcoffset()
    whole = (wall_clock.toordinal() - _EPOCH_ORDINAL) * _DAY_S
    whole += wall_clock.hour * 3600 + wall_clock.minute * 60 + wall_clock.second
    if offset is not None:
        whole -= offset.days * _DAY_S + offset.seconds
    millis = wall_clock.microsecond // 1000
    return (whole * 1000 + millis) / 1000 if millis else whole


def read_instant(text: str, zone: str = "UTC") -> int | float | None:
    """Return the Unix time of a text in the date-like grammar, None when it is none.

    Text without an offset is read in `zone`.  spec: hog-language 10.6.
    """
    if len(text) > _MAX_DATE_TEXT:
        return None
    matched = _DATE_LIKE.fullmatch(text)
    if matched is None:
        return None
    year, month, day, hour, minute, second, fraction, offset = matched.groups()
    try:
        wall_clock = dt.datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "0")[:3].ljust(3, "0")) * 1000,
            tzinfo=_offset_zone(offset) if offset else time_zone(zone),
        )
        return instant(wall_clock)
    except (ValueError, OverflowError):
        return None


def _offset_zone(offset: str) -> dt.tzinfo:
    if offset in ("Z", "z"):
        return UTC
    minutes = int(offset[-2:]) if len(offset) > 3 else 0
    if minutes > 59:
        raise ValueError("minutes of an offset")
    delta = dt.timedelta(hours=int(offset[1:3]), minutes=minutes)
    return dt.timezone(-delta if offset[0] == "-" else delta)


def date_seconds(date: HogDate) -> int:
    """Return the Unix time of a day's midnight in UTC."""
    return (dt.date(date.year, date.month, date.day).toordinal() - _EPOCH_ORDINAL) * _DAY_S


def date_of(seconds: float) -> HogDate:
    """Return the UTC day of an instant.  Raises OverflowError outside the years 1 to 9999."""
    moment = local_time(seconds)
    return HogDate(moment.year, moment.month, moment.day)


def date_text(date: HogDate) -> str:
    """Write a day as `2024-12-18`."""
    return f"{date.year:04}-{date.month:02}-{date.day:02}"


def datetime_text(moment: HogDateTime) -> str:
    """Write a datetime in ISO 8601 with milliseconds: `Z` for UTC, else the offset; empty without a calendar date."""
    try:
        wall_clock = local_time(moment.seconds, moment.zone)
    except OverflowError:
        return ""
    text = wall_clock.replace(tzinfo=None).isoformat(timespec="milliseconds")
    if moment.zone.upper() in _UNIVERSAL:
        return text + "Z"
    return text + offset_text(wall_clock)


def offset_text(wall_clock: dt.datetime, separator: str = ":") -> str:
    """Write the offset of an aware wall clock: `-05:00`."""
    offset = wall_clock.utcoffset() or dt.timedelta()
    minutes = (offset.days * _DAY_S + offset.seconds) // 60
    hours, minutes_left = divmod(abs(minutes), 60)
    return f"{'-' if minutes < 0 else '+'}{hours:02}{separator}{minutes_left:02}"
