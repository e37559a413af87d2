"""Library functions that calculate with dates: moving them, the time between them, intervals.

spec: hog-language 10.6.
"""

import datetime as dt
import math
from functools import partial
from typing import Final

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.coerce import to_number
from hoglab.hog.rt.dates import date_of, in_range, instant, local_time
from hoglab.hog.rt.numbers import tidy
from hoglab.hog.rt.printing import js_string
from hoglab.hog.rt.values import HogDate, HogDateTime, Value
from hoglab.hog.stdlib.dates.moments import DAY_S, expect_moment, moment_of, wall_clock_of
from hoglab.hog.stdlib.registry import function

declare = partial(function, category="dates")

_EXACT_S: Final = {"hour": 3600, "minute": 60, "second": 1}
_UNIT_DAYS: Final = {"day": 1, "week": 7}
_UNIT_MONTHS: Final = {"month": 1, "year": 12}


def shift(unit: str, amount: int | float, moment: HogDateTime) -> HogDateTime | None:
    """Return the moment moved by an amount of a unit; None when that leaves the calendar.

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
    moment = expect_moment(value)
    if moment is None:
        return None
    number = to_number(amount)
    if number != number or amount.__class__ is bool or amount == "":
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
    examples=(
        ("addDays(toDate('2024-02-28'), 2)", "Date(2024, 3, 1)"),
        ("toString(addDays(toDateTime('2024-03-01T10:00:00Z'), -1))", "'2024-02-29T10:00:00.000Z'"),
        ("addDays('soon', 1)", "null"),
    ),
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
        a = wall_clock_of(start)
        b = wall_clock_of(end)
        if a is None or b is None:
            return None
        return b.year - a.year if unit == "year" else (b.year - a.year) * 12 + b.month - a.month
    first = moment_of(start)
    last = moment_of(end)
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
    infallible=True,
    doc="A number of days as an interval object.",
    examples=(
        ("toIntervalDay(2)", "{'__hogInterval__': true, 'value': 2, 'unit': 'day'}"),
        ("toIntervalDay(2).unit", "'day'"),
    ),
)
def _to_interval_day(amount: Value) -> dict[str, Value]:
    return _interval(amount, "day")


@declare(
    "toIntervalHour",
    "amount: number",
    returns="object",
    infallible=True,
    doc="A number of hours as an interval object.",
    examples=(
        ("toIntervalHour(2).unit", "'hour'"),
        ("toIntervalHour(0.5).value", "0.5"),
    ),
)
def _to_interval_hour(amount: Value) -> dict[str, Value]:
    return _interval(amount, "hour")


@declare(
    "toIntervalMinute",
    "amount: number",
    returns="object",
    infallible=True,
    doc="A number of minutes as an interval object.",
    examples=(
        ("toIntervalMinute(2).value", "2"),
        ("toIntervalMinute(2).unit", "'minute'"),
    ),
)
def _to_interval_minute(amount: Value) -> dict[str, Value]:
    return _interval(amount, "minute")


@declare(
    "toIntervalMonth",
    "amount: number",
    returns="object",
    infallible=True,
    doc="A number of months as an interval object.",
    examples=(
        ("toIntervalMonth(2).unit", "'month'"),
        ("typeof(toIntervalMonth(2))", "'object'"),
    ),
)
def _to_interval_month(amount: Value) -> dict[str, Value]:
    return _interval(amount, "month")
