"""Library functions for dates, times and zones.

A function that needs a moment takes a datetime (broken up in its own zone), a date (its midnight in UTC) or
text in the date-like grammar (UTC).  null and text that is no date give null.  spec: hog-language 10.6, 9
(D12).
"""

import datetime as dt
from collections.abc import Callable
from functools import partial
from typing import Final

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.coerce import to_number
from hoglab.hog.rt.context import Context
from hoglab.hog.rt.dates import date_of, date_seconds, in_range, instant, local_time, read_instant, time_zone
from hoglab.hog.rt.numbers import number_from_text, tidy, to_double
from hoglab.hog.rt.printing import js_string
from hoglab.hog.rt.values import HogDate, HogDateTime, Value
from hoglab.hog.stdlib.registry import expect_string, function

declare = partial(function, category="dates")

DAY_S: Final = 86_400


def zone_named(name: str, zone: Value) -> str:
    """Return a zone argument: UTC when it is missing or empty.  Raises HogRuntimeError for one that does not exist."""
    if zone is None or zone == "":
        return "UTC"
    text = expect_string(name, zone)
    time_zone(text)
    return text


def moment_of(value: Value, zone: str = "UTC") -> HogDateTime | None:
    """Return the datetime that a datetime, date or text stands for, None for everything else."""
    cls = value.__class__
    if cls is HogDateTime:
        return value  # type: ignore[no-any-return]
    if cls is HogDate:
        return HogDateTime(date_seconds(value))
    if cls is str:
        seconds = read_instant(value, zone)
        return None if seconds is None or not in_range(seconds) else HogDateTime(seconds)
    return None


def wall_clock_of(value: Value) -> dt.datetime | None:
    moment = moment_of(value)
    if moment is None:
        return None
    try:
        return local_time(moment.seconds, moment.zone)
    except OverflowError:  # in its zone the moment lies before the year 1 or after 9999
        return None


def expect_moment(value: Value) -> HogDateTime | None:
    """Return the moment of a value, like `moment_of`, but refuse values that cannot be a date."""
    moment = moment_of(value)
    if moment is None and value is not None and value.__class__ is not str:
        raise HogRuntimeError("Expected a DateTime")
    return moment


def expect_datetime(value: Value, purpose: str = "") -> HogDateTime:
    """Return the value if it is a datetime.  Raises HogRuntimeError otherwise."""
    if value.__class__ is not HogDateTime:
        raise HogRuntimeError(f"Expected a DateTime{purpose}")
    return value


# Now, and conversion


@declare(
    "now",
    "ignored?: any",
    returns="datetime",
    context=True,
    pure=False,
    infallible=True,
    doc="The present moment in UTC.",
    examples=(("typeof(now())", "'datetime'"), ("now() > toDateTime('2020-01-01')", "true")),
)
def _now(ctx: Context, _ignored: Value = None) -> HogDateTime:
    return HogDateTime(ctx.now())


@declare(
    "today",
    returns="date",
    context=True,
    pure=False,
    infallible=True,
    doc="The present day in UTC.",
    examples=(
        ("typeof(today())", "'date'"),
        ("today() = toStartOfDay(now())", "true"),
    ),
)
def _today(ctx: Context) -> HogDate:
    return date_of(ctx.now())


@declare(
    "toDateTime",
    "value: any",
    "zone?: string",
    returns="datetime|null",
    doc="The moment that a text or a Unix time in seconds stands for; null when there is none. The zone "
    "is the one it is shown in, and that of texts without an offset.",
    examples=(
        ("toDateTime('2024-12-18T10:30:00Z')", "DateTime(1734517800.0, 'UTC')"),
        (
            "toDateTime('2024-12-18T00:00:00', 'America/New_York')",
            "DateTime(1734498000.0, 'America/New_York')",
        ),
        ("toDateTime(1.5)", "DateTime(1.5, 'UTC')"),
        ("toDateTime('soon')", "null"),
    ),
)
def _to_datetime(value: Value, zone: Value = None) -> HogDateTime | None:
    name = zone_named("toDateTime", zone)
    cls = value.__class__
    if cls is int or cls is float:
        return HogDateTime(value, name) if in_range(value) else None
    if cls is HogDateTime:
        return value if zone is None else HogDateTime(value.seconds, name)
    moment = moment_of(value, name)
    return None if moment is None else HogDateTime(moment.seconds, name)


@declare(
    "toDate",
    "value: any",
    returns="date|null",
    doc="The day of a text or a Unix time in seconds, in UTC, or of a datetime, in its zone; null when "
    "there is none.",
    examples=(
        ("toDate('2024-12-18')", "Date(2024, 12, 18)"),
        ("toDate('2024-01-01T23:00:00-05:00')", "Date(2024, 1, 2)"),
        ("toDate(86400)", "Date(1970, 1, 2)"),
        ("toDate('soon')", "null"),
    ),
)
def _to_date(value: Value) -> HogDate | None:
    cls = value.__class__
    if cls is HogDate:
        return value  # type: ignore[no-any-return]
    if cls is int or cls is float:
        return date_of(value) if in_range(value) else None
    wall_clock = wall_clock_of(value)
    return None if wall_clock is None else HogDate(wall_clock.year, wall_clock.month, wall_clock.day)


@declare(
    "toUnixTimestamp",
    "value: any",
    "zone?: string",
    returns="number|null",
    doc="The Unix time in seconds, with fractions, of a datetime, date or text; null when there is none. "
    "The zone is that of texts without an offset.",
    examples=(
        ("toUnixTimestamp('2024-12-18T00:00:00Z')", "1734480000"),
        ("toUnixTimestamp('1970-01-01T00:00:01.5Z')", "1.5"),
        ("toUnixTimestamp('soon')", "null"),
    ),
)
def _to_unix(value: Value, zone: Value = None) -> int | float | None:
    moment = moment_of(value, zone_named("toUnixTimestamp", zone))
    return None if moment is None else moment.seconds


@declare(
    "toUnixTimestampMilli",
    "value: any",
    "zone?: string",
    returns="number|null",
    doc="Like toUnixTimestamp, in milliseconds.",
    examples=(
        ("toUnixTimestampMilli('1970-01-01T00:00:01.5Z')", "1500"),
        ("toUnixTimestampMilli(toDate('1970-01-02'))", "86400000"),
    ),
)
def _to_unix_milli(value: Value, zone: Value = None) -> int | float | None:
    moment = moment_of(value, zone_named("toUnixTimestampMilli", zone))
    return None if moment is None else tidy(round(moment.seconds * 1000, 3))


@declare(
    "fromUnixTimestamp",
    "seconds: number",
    returns="datetime|null",
    cost="linear",
    doc="The datetime in UTC of a Unix time in seconds; null when there is none.",
    examples=(
        ("fromUnixTimestamp(1.5)", "DateTime(1.5, 'UTC')"),
        ("fromUnixTimestamp('86400')", "DateTime(86400.0, 'UTC')"),
        ("fromUnixTimestamp(null)", "null"),
    ),
)
def _from_unix(seconds: Value) -> HogDateTime | None:
    cls = seconds.__class__
    if cls is str:
        seconds = number_from_text(seconds)
    elif cls is HogDate:
        seconds = date_seconds(seconds)
    elif cls is not int and cls is not float:
        return None
    return HogDateTime(seconds) if in_range(seconds) else None


@declare(
    "fromUnixTimestampMilli",
    "milliseconds: number",
    returns="datetime|null",
    cost="linear",
    doc="The datetime in UTC of a Unix time in milliseconds; null when there is none.",
    examples=(
        ("fromUnixTimestampMilli(1500)", "DateTime(1.5, 'UTC')"),
        ("fromUnixTimestampMilli('soon')", "null"),
    ),
)
def _from_unix_milli(milliseconds: Value) -> HogDateTime | None:
    seconds = tidy(to_double(to_number(milliseconds)) / 1000)
    return HogDateTime(seconds) if in_range(seconds) else None


@declare(
    "toTimeZone",
    "moment: datetime",
    "zone: string",
    returns="datetime",
    doc="The same moment, shown in another zone.",
    examples=(
        ("toTimeZone(toDateTime(0), 'Europe/Brussels')", "DateTime(0.0, 'Europe/Brussels')"),
        ("toString(toTimeZone(toDateTime(0), 'Asia/Tokyo'))", "'1970-01-01T09:00:00.000+09:00'"),
    ),
)
def _to_time_zone(moment: Value, zone: Value) -> HogDateTime:
    seconds = expect_datetime(moment).seconds
    return HogDateTime(seconds, zone_named("toTimeZone", expect_string("toTimeZone", zone)))


# Parts


@declare(
    "toYear",
    "value: any",
    returns="integer|null",
    doc="The year of a datetime, date or text.",
    examples=(("toYear('2024-12-18')", "2024"), ("toYear('soon')", "null")),
)
def _to_year(value: Value) -> int | None:
    wall_clock = wall_clock_of(value)
    return None if wall_clock is None else wall_clock.year


@declare(
    "toMonth",
    "value: any",
    returns="integer|null",
    doc="The month, 1 to 12, of a datetime, date or text.",
    examples=(
        ("toMonth(toDate('2024-12-18'))", "12"),
        ("toMonth(toTimeZone(toDateTime('2024-12-31T23:30:00Z'), 'Asia/Tokyo'))", "1"),
    ),
)
def _to_month(value: Value) -> int | None:
    wall_clock = wall_clock_of(value)
    return None if wall_clock is None else wall_clock.month


@declare(
    "toYYYYMM",
    "value: any",
    returns="integer|null",
    doc="Year and month of a datetime, date or text as one number.",
    examples=(
        ("toYYYYMM('2024-12-18')", "202412"),
        ("toYYYYMM(toDate('0099-01-31'))", "9901"),
    ),
)
def _to_yyyymm(value: Value) -> int | None:
    wall_clock = wall_clock_of(value)
    return None if wall_clock is None else wall_clock.year * 100 + wall_clock.month


_EXTRACTS: Final = ("year", "month", "day", "hour", "minute", "second")


@declare(
    "extract",
    "part: string",
    "value: any",
    returns="integer|null",
    doc="One part of a datetime, date or text: year, month, day, hour, minute or second.",
    examples=(
        ("extract('hour', toDateTime('2024-12-18T10:30:00Z'))", "10"),
        ("extract('day', '2024-12-18')", "18"),
    ),
)
def _extract(part: Value, value: Value) -> int | None:
    if part not in _EXTRACTS:
        raise HogRuntimeError(f"Unknown extract part: {js_string(part)[:50]}")
    wall_clock = wall_clock_of(value)
    return None if wall_clock is None else int(getattr(wall_clock, part))


# Cutting off


def _start_of_year(wall_clock: dt.datetime) -> dt.datetime:
    return _start_of_day(wall_clock).replace(month=1, day=1)


def _start_of_month(wall_clock: dt.datetime) -> dt.datetime:
    return _start_of_day(wall_clock).replace(day=1)


def _start_of_week(wall_clock: dt.datetime) -> dt.datetime:
    return _start_of_day(wall_clock) - dt.timedelta(days=wall_clock.weekday())


def _start_of_day(wall_clock: dt.datetime) -> dt.datetime:
    return wall_clock.replace(hour=0, minute=0, second=0, microsecond=0)


def _start_of_hour(wall_clock: dt.datetime) -> dt.datetime:
    return wall_clock.replace(minute=0, second=0, microsecond=0)


def _start_of_minute(wall_clock: dt.datetime) -> dt.datetime:
    return wall_clock.replace(second=0, microsecond=0)


_STARTS: Final[dict[str, Callable[[dt.datetime], dt.datetime]]] = {
    "year": _start_of_year,
    "month": _start_of_month,
    "day": _start_of_day,
    "hour": _start_of_hour,
    "minute": _start_of_minute,
}


def _cut(moment: HogDateTime, start: Callable[[dt.datetime], dt.datetime]) -> HogDateTime | None:
    try:
        seconds = instant(start(local_time(moment.seconds, moment.zone)))
    except OverflowError:
        return None
    return HogDateTime(seconds, moment.zone) if in_range(seconds) else None


@declare(
    "dateTrunc",
    "unit: string",
    "moment: datetime",
    "ignored?: any",
    returns="datetime|null",
    doc="The start of the year, month, day, hour or minute of a datetime, in its zone.",
    examples=(
        (
            "toString(dateTrunc('month', toDateTime('2024-12-18T10:30:00Z')))",
            "'2024-12-01T00:00:00.000Z'",
        ),
        (
            "toString(dateTrunc('day', toDateTime('2024-12-18T02:00:00Z', 'America/New_York')))",
            "'2024-12-17T00:00:00.000-05:00'",
        ),
    ),
)
def _date_trunc(unit: Value, moment: Value, _ignored: Value = None) -> HogDateTime | None:
    instant = expect_datetime(moment, " for dateTrunc")
    start = _STARTS.get(unit) if unit.__class__ is str else None
    if start is None:
        raise HogRuntimeError(f"Unsupported unit for dateTrunc: {js_string(unit)[:50]}")
    return _cut(instant, start)


def _start(value: Value, start: Callable[[dt.datetime], dt.datetime]) -> HogDateTime | None:
    moment = expect_moment(value)
    return None if moment is None else _cut(moment, start)


@declare(
    "toStartOfDay",
    "value: any",
    "ignored?: any",
    returns="datetime|null",
    doc="Midnight of the day.",
    examples=(
        ("toString(toStartOfDay('2024-12-18T10:30:00Z'))", "'2024-12-18T00:00:00.000Z'"),
        (
            "toString(toStartOfDay(toDateTime('2024-12-18T02:00:00Z', 'America/New_York')))",
            "'2024-12-17T00:00:00.000-05:00'",
        ),
        ("toStartOfDay('soon')", "null"),
    ),
)
def _to_start_of_day(value: Value, _ignored: Value = None) -> HogDateTime | None:
    return _start(value, _start_of_day)


@declare(
    "toStartOfHour",
    "value: any",
    returns="datetime|null",
    doc="The start of the hour.",
    examples=(
        ("toString(toStartOfHour('2024-12-18T10:30:00Z'))", "'2024-12-18T10:00:00.000Z'"),
        ("toStartOfHour(toDate('1970-01-02'))", "DateTime(86400.0, 'UTC')"),
    ),
)
def _to_start_of_hour(value: Value) -> HogDateTime | None:
    return _start(value, _start_of_hour)


@declare(
    "toStartOfMonth",
    "value: any",
    returns="datetime|null",
    doc="Midnight of the first day of the month.",
    examples=(
        ("toString(toStartOfMonth(toDate('2024-12-18')))", "'2024-12-01T00:00:00.000Z'"),
        ("toStartOfMonth(null)", "null"),
    ),
)
def _to_start_of_month(value: Value) -> HogDateTime | None:
    return _start(value, _start_of_month)


@declare(
    "toStartOfWeek",
    "value: any",
    "ignored?: any",
    returns="datetime|null",
    doc="Midnight of the Monday of the week.",
    examples=(
        ("toString(toStartOfWeek(toDate('2024-12-18')))", "'2024-12-16T00:00:00.000Z'"),
        ("toString(toStartOfWeek('2024-12-16T00:00:00Z'))", "'2024-12-16T00:00:00.000Z'"),
    ),
)
def _to_start_of_week(value: Value, _ignored: Value = None) -> HogDateTime | None:
    return _start(value, _start_of_week)
