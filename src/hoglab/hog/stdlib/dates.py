"""Library functions for dates, times and zones.

A function that needs a moment takes a datetime (broken up in its own zone), a date (its midnight in UTC) or
text in the date-like grammar (UTC).  null and text that is no date give null.  spec: hog-language 10.6, 9
(D12).
"""

import datetime as dt
import math
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


def _zone(name: str, zone: Value) -> str:
    """A zone argument:

    UTC when it is missing or empty.  Raises HogRuntimeError for one that does not exist.
    """
    if zone is None or zone == "":
        return "UTC"
    text = expect_string(name, zone)
    time_zone(text)
    return text


def _moment(value: Value, zone: str = "UTC") -> HogDateTime | None:
    """The datetime that a datetime, date or text stands for, None for everything else."""
    cls = value.__class__
    if cls is HogDateTime:
        return value  # type: ignore[no-any-return]
    if cls is HogDate:
        return HogDateTime(date_seconds(value))
    if cls is str:
        seconds = read_instant(value, zone)
        return None if seconds is None or not in_range(seconds) else HogDateTime(seconds)
    return None


def _wall_clock(value: Value) -> dt.datetime | None:
    moment = _moment(value)
    if moment is None:
        return None
    try:
        return local_time(moment.seconds, moment.zone)
    except OverflowError:  # in its zone the moment lies before the year 1 or after 9999
        return None


def _expect_moment(value: Value) -> HogDateTime | None:
    """As `_moment`, but refuses what can be no date at all."""
    moment = _moment(value)
    if moment is None and value is not None and value.__class__ is not str:
        raise HogRuntimeError("Expected a DateTime")
    return moment


def expect_datetime(value: Value, purpose: str = "") -> HogDateTime:
    """The value if it is a datetime.  Raises HogRuntimeError otherwise."""
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
    total=True,
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
    total=True,
    doc="The present day in UTC.",
    examples=(("typeof(today())", "'date'"),),
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
    name = _zone("toDateTime", zone)
    cls = value.__class__
    if cls is int or cls is float:
        return HogDateTime(value, name) if in_range(value) else None
    if cls is HogDateTime:
        return value if zone is None else HogDateTime(value.seconds, name)
    moment = _moment(value, name)
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
    wall_clock = _wall_clock(value)
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
    moment = _moment(value, _zone("toUnixTimestamp", zone))
    return None if moment is None else moment.seconds


@declare(
    "toUnixTimestampMilli",
    "value: any",
    "zone?: string",
    returns="number|null",
    doc="Like toUnixTimestamp, in milliseconds.",
    examples=(("toUnixTimestampMilli('1970-01-01T00:00:01.5Z')", "1500"),),
)
def _to_unix_milli(value: Value, zone: Value = None) -> int | float | None:
    moment = _moment(value, _zone("toUnixTimestampMilli", zone))
    return None if moment is None else tidy(round(moment.seconds * 1000, 3))


@declare(
    "fromUnixTimestamp",
    "seconds: number",
    returns="datetime|null",
    doc="The datetime in UTC of a Unix time in seconds; null when there is none.",
    examples=(("fromUnixTimestamp(1.5)", "DateTime(1.5, 'UTC')"),),
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
    doc="The datetime in UTC of a Unix time in milliseconds; null when there is none.",
    examples=(("fromUnixTimestampMilli(1500)", "DateTime(1.5, 'UTC')"),),
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
    return HogDateTime(seconds, _zone("toTimeZone", expect_string("toTimeZone", zone)))


# Parts


@declare(
    "toYear",
    "value: any",
    returns="integer|null",
    doc="The year of a datetime, date or text.",
    examples=(("toYear('2024-12-18')", "2024"), ("toYear('soon')", "null")),
)
def _to_year(value: Value) -> int | None:
    wall_clock = _wall_clock(value)
    return None if wall_clock is None else wall_clock.year


@declare(
    "toMonth",
    "value: any",
    returns="integer|null",
    doc="The month, 1 to 12, of a datetime, date or text.",
    examples=(("toMonth(toDate('2024-12-18'))", "12"),),
)
def _to_month(value: Value) -> int | None:
    wall_clock = _wall_clock(value)
    return None if wall_clock is None else wall_clock.month


@declare(
    "toYYYYMM",
    "value: any",
    returns="integer|null",
    doc="Year and month of a datetime, date or text as one number.",
    examples=(("toYYYYMM('2024-12-18')", "202412"),),
)
def _to_yyyymm(value: Value) -> int | None:
    wall_clock = _wall_clock(value)
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
    wall_clock = _wall_clock(value)
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
    ),
)
def _date_trunc(unit: Value, moment: Value, _ignored: Value = None) -> HogDateTime | None:
    found = expect_datetime(moment, " for dateTrunc")
    start = _STARTS.get(unit) if unit.__class__ is str else None
    if start is None:
        raise HogRuntimeError(f"Unsupported unit for dateTrunc: {js_string(unit)[:50]}")
    return _cut(found, start)


def _start(value: Value, start: Callable[[dt.datetime], dt.datetime]) -> HogDateTime | None:
    moment = _expect_moment(value)
    return None if moment is None else _cut(moment, start)


@declare(
    "toStartOfDay",
    "value: any",
    "ignored?: any",
    returns="datetime|null",
    doc="Midnight of the day.",
    examples=(("toString(toStartOfDay('2024-12-18T10:30:00Z'))", "'2024-12-18T00:00:00.000Z'"),),
)
def _to_start_of_day(value: Value, _ignored: Value = None) -> HogDateTime | None:
    return _start(value, _start_of_day)


@declare(
    "toStartOfHour",
    "value: any",
    returns="datetime|null",
    doc="The start of the hour.",
    examples=(("toString(toStartOfHour('2024-12-18T10:30:00Z'))", "'2024-12-18T10:00:00.000Z'"),),
)
def _to_start_of_hour(value: Value) -> HogDateTime | None:
    return _start(value, _start_of_hour)


@declare(
    "toStartOfMonth",
    "value: any",
    returns="datetime|null",
    doc="Midnight of the first day of the month.",
    examples=(("toString(toStartOfMonth(toDate('2024-12-18')))", "'2024-12-01T00:00:00.000Z'"),),
)
def _to_start_of_month(value: Value) -> HogDateTime | None:
    return _start(value, _start_of_month)


@declare(
    "toStartOfWeek",
    "value: any",
    "ignored?: any",
    returns="datetime|null",
    doc="Midnight of the Monday of the week.",
    examples=(("toString(toStartOfWeek(toDate('2024-12-18')))", "'2024-12-16T00:00:00.000Z'"),),
)
def _to_start_of_week(value: Value, _ignored: Value = None) -> HogDateTime | None:
    return _start(value, _start_of_week)


# Arithmetic

_EXACT_S: Final = {"hour": 3600, "minute": 60, "second": 1}
_UNIT_DAYS: Final = {"day": 1, "week": 7}
_UNIT_MONTHS: Final = {"month": 1, "year": 12}


def shift(unit: str, amount: int | float, moment: HogDateTime) -> HogDateTime | None:
    """The moment moved by an amount of a unit; None when that leaves the calendar.

    Days and longer units move the wall clock of the moment's zone, and months end at the last day of a
    shorter month.  A fraction of a month counts as that part of 30 days.
    """
    if not -1e12 < amount < 1e12:
        return None
    seconds = moment.seconds
    try:
        if unit in _EXACT_S:
            seconds += amount * _EXACT_S[unit]
        else:
            months, days = 0, amount * _UNIT_DAYS.get(unit, 0)
            if unit in _UNIT_MONTHS:
                months = math.trunc(amount * _UNIT_MONTHS[unit])
                days = (amount * _UNIT_MONTHS[unit] - months) * 30
            whole = math.trunc(days)
            if months or whole:
                wall_clock = _add_months(local_time(seconds, moment.zone), months)
                seconds = instant(wall_clock + dt.timedelta(days=whole))
            seconds += (days - whole) * DAY_S
    except (OverflowError, ValueError):
        return None
    if not in_range(seconds):
        return None
    return HogDateTime(tidy(round(float(seconds), 3)), moment.zone)


def _add_months(wall_clock: dt.datetime, months: int) -> dt.datetime:
    if not months:
        return wall_clock
    year, month = divmod(wall_clock.year * 12 + wall_clock.month - 1 + months, 12)
    month += 1
    following = dt.date(year + month // 12, month % 12 + 1, 1) if year < 9999 or month < 12 else None
    last = 31 if following is None else (following - dt.timedelta(days=1)).day
    return wall_clock.replace(year=year, month=month, day=min(wall_clock.day, last))


def _shifted(unit: str, amount: Value, value: Value) -> HogDateTime | HogDate | None:
    moment = _expect_moment(value)
    if moment is None:
        return None
    number = to_number(amount)
    if number != number:
        raise HogRuntimeError(f"Invalid number of units: {js_string(amount)[:50]}")
    moved = shift(unit, number, moment)
    return date_of(moved.seconds) if moved is not None and value.__class__ is HogDate else moved


@declare(
    "dateAdd",
    "unit: string",
    "amount: number",
    "value: any",
    returns="datetime|date|null",
    doc="A datetime or date moved by a number of days, weeks, hours, minutes, seconds, months or years "
    "(named in the singular). A date stays a date.",
    examples=(
        ("dateAdd('month', 1, toDate('2024-01-31'))", "Date(2024, 2, 29)"),
        ("dateAdd('hour', 25, toDate('2024-01-31'))", "Date(2024, 2, 1)"),
        ("toString(dateAdd('day', -1, toDateTime('2024-03-01T10:00:00Z')))", "'2024-02-29T10:00:00.000Z'"),
    ),
)
def _date_add(unit: Value, amount: Value, value: Value) -> HogDateTime | HogDate | None:
    if unit.__class__ is not str or not (unit in _EXACT_S or unit in _UNIT_DAYS or unit in _UNIT_MONTHS):
        raise HogRuntimeError(f"Unsupported interval unit: {js_string(unit)[:50]}")
    return _shifted(unit, amount, value)


@declare(
    "addDays",
    "value: any",
    "days: number",
    returns="datetime|date|null",
    doc="A datetime or date moved by a number of days.",
    examples=(("addDays(toDate('2024-02-28'), 2)", "Date(2024, 3, 1)"),),
)
def _add_days(value: Value, days: Value) -> HogDateTime | HogDate | None:
    return _shifted("day", days, value)


_DIFF_S: Final = {"second": 1, "minute": 60, "hour": 3600, "day": DAY_S}


@declare(
    "dateDiff",
    "unit: string",
    "start: any",
    "end: any",
    returns="integer|null",
    doc="How many whole seconds, minutes, hours, days or weeks lie between two moments, or how many "
    "starts of months or years; negative when the end comes first.",
    examples=(
        ("dateDiff('day', '2024-01-01', '2024-03-01')", "60"),
        ("dateDiff('month', '2024-01-31', '2024-02-01')", "1"),
        ("dateDiff('hour', '2024-01-01T00:30:00Z', '2024-01-01T00:00:00Z')", "-1"),
    ),
)
def _date_diff(unit: Value, start: Value, end: Value) -> int | None:
    if unit.__class__ is not str or not (unit in _DIFF_S or unit == "week" or unit in _UNIT_MONTHS):
        raise HogRuntimeError(f"Unsupported unit for dateDiff: {js_string(unit)[:50]}")
    if unit in _UNIT_MONTHS:
        a = _wall_clock(start)
        b = _wall_clock(end)
        if a is None or b is None:
            return None
        return b.year - a.year if unit == "year" else (b.year - a.year) * 12 + b.month - a.month
    first = _moment(start)
    last = _moment(end)
    if first is None or last is None:
        return None
    milliseconds = round((last.seconds - first.seconds) * 1000)
    if unit == "week":
        return milliseconds // (1000 * DAY_S) // 7
    return milliseconds // (1000 * _DIFF_S[unit])


# Intervals


def _interval(amount: Value, unit: str) -> dict[str, Value]:
    return {"__hogInterval__": True, "value": amount, "unit": unit}


@declare(
    "toIntervalDay",
    "amount: number",
    returns="object",
    total=True,
    doc="A number of days as an interval object.",
    examples=(("toIntervalDay(2)", "{'__hogInterval__': true, 'value': 2, 'unit': 'day'}"),),
)
def _to_interval_day(amount: Value) -> dict[str, Value]:
    return _interval(amount, "day")


@declare(
    "toIntervalHour",
    "amount: number",
    returns="object",
    total=True,
    doc="A number of hours as an interval object.",
    examples=(("toIntervalHour(2).unit", "'hour'"),),
)
def _to_interval_hour(amount: Value) -> dict[str, Value]:
    return _interval(amount, "hour")


@declare(
    "toIntervalMinute",
    "amount: number",
    returns="object",
    total=True,
    doc="A number of minutes as an interval object.",
    examples=(("toIntervalMinute(2).value", "2"),),
)
def _to_interval_minute(amount: Value) -> dict[str, Value]:
    return _interval(amount, "minute")


@declare(
    "toIntervalMonth",
    "amount: number",
    returns="object",
    total=True,
    doc="A number of months as an interval object.",
    examples=(("toIntervalMonth(2).unit", "'month'"),),
)
def _to_interval_month(amount: Value) -> dict[str, Value]:
    return _interval(amount, "month")
