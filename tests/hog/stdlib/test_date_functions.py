"""Date arithmetic.  spec: hog-language 10.6, 9 (D12)."""

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.context import Context
from hoglab.hog.rt.printing import repr_value, to_string
from hoglab.hog.rt.values import HogDate, HogDateTime
from hoglab.hog.stdlib import LIBRARY

CTX = Context(now=lambda: 1734517800.25)
SECONDS = st.integers(-62_000_000_000, 250_000_000_000)
ZONES = st.sampled_from(["UTC", "America/New_York", "Asia/Kolkata", "Europe/London"])
DAYS = st.dates(dt.date(1, 2, 1), dt.date(9998, 1, 1))


def call(name: str, *args: Any) -> Any:
    return LIBRARY[name].invoke(CTX, args)


def as_date(day: dt.date) -> HogDate:
    return HogDate(day.year, day.month, day.day)


def test_now_and_today_come_from_the_context() -> None:
    assert repr_value(call("now")) == "DateTime(1734517800.25, 'UTC')"
    assert repr_value(call("today")) == "Date(2024, 12, 18)"


@given(DAYS, st.integers(-10_000, 10_000))
def test_adding_days_to_dates(day: dt.date, amount: int) -> None:
    moved = call("dateAdd", "day", amount, as_date(day))
    try:
        expected = day + dt.timedelta(days=amount)
    except OverflowError:
        assert moved is None
        return
    assert repr_value(moved) == repr_value(as_date(expected))
    assert repr_value(call("addDays", as_date(day), amount)) == repr_value(moved)
    assert call("dateDiff", "day", as_date(day), moved) == amount
    assert call("dateDiff", "week", as_date(day), moved) == amount // 7


@given(DAYS, st.integers(-500, 500))
def test_adding_months_ends_at_the_last_day(day: dt.date, amount: int) -> None:
    moved = call("dateAdd", "month", amount, as_date(day))
    if moved is None:
        assert not 1 <= day.year + (day.month - 1 + amount) // 12 <= 9999
        return
    assert call("dateDiff", "month", as_date(day), moved) == amount
    assert moved.day <= day.day
    if moved.day < day.day:
        following = dt.date(moved.year, moved.month, moved.day) + dt.timedelta(days=1)
        assert following.day == 1


@given(SECONDS, ZONES, st.sampled_from(["hour", "minute", "second"]), st.integers(-1000, 1000))
def test_hours_and_less_are_exact(seconds: int, zone: str, unit: str, amount: int) -> None:
    moved = call("dateAdd", unit, amount, HogDateTime(seconds, zone))
    assert moved.seconds - seconds == amount * {"hour": 3600, "minute": 60, "second": 1}[unit]
    assert moved.zone == zone
    assert call("dateDiff", unit, HogDateTime(seconds, zone), moved) == amount


def test_days_follow_the_wall_clock_of_the_zone() -> None:
    before = HogDateTime(1710005400, "America/New_York")  # 2024-03-09 12:30, a day before summer time
    assert to_string(call("dateAdd", "day", 1, before)) == "2024-03-10T12:30:00.000-04:00"
    assert to_string(call("dateAdd", "hour", 24, before)) == "2024-03-10T13:30:00.000-04:00"


@given(SECONDS, ZONES, st.sampled_from(["year", "month", "day", "hour", "minute"]))
def test_truncation_is_idempotent_and_never_later(seconds: int, zone: str, unit: str) -> None:
    moment = HogDateTime(seconds, zone)
    start = call("dateTrunc", unit, moment)
    assert start.seconds <= seconds
    assert call("dateTrunc", unit, start).seconds == start.seconds
    assert call("extract", "second", start) == 0
    if zone == "UTC":
        assert call("extract", unit, start) == call("extract", unit, moment)


@given(SECONDS)
def test_weeks_start_on_monday(seconds: int) -> None:
    start = call("toStartOfWeek", HogDateTime(seconds))
    assert call("formatDateTime", start, "%u %T") == "1 00:00:00"
    assert 0 <= seconds - start.seconds < 7 * 86_400


@given(SECONDS, ZONES)
def test_timestamps_survive(seconds: int, zone: str) -> None:
    moment = call("toDateTime", seconds, zone)
    assert call("toUnixTimestamp", moment) == seconds
    assert call("toUnixTimestampMilli", moment) == seconds * 1000
    assert call("fromUnixTimestampMilli", seconds * 1000).seconds == seconds
    if seconds > 0:  # offsets of former times have seconds, which ISO text does not show
        assert call("toUnixTimestamp", to_string(moment)) == seconds
    assert call("toTimeZone", moment, "UTC").seconds == seconds


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("dateAdd", ("days", 1, "2024-01-01"), "Unsupported interval unit: days"),
        ("dateAdd", (None, 1, "2024-01-01"), "Unsupported interval unit: null"),
        ("dateAdd", ("day", "x", "2024-01-01"), "Invalid number of units: x"),
        ("dateAdd", ("day", 1, 5), "Expected a DateTime"),
        ("dateDiff", ("days", "2024-01-01", "2024-01-01"), "Unsupported unit for dateDiff: days"),
        ("dateTrunc", ("week", HogDateTime(0)), "Unsupported unit for dateTrunc: week"),
        ("dateTrunc", ("day", "2024-01-01"), "Expected a DateTime for dateTrunc"),
        ("extract", ("week", "2024-01-01"), "Unknown extract part: week"),
        ("extract", (["year"], "2024-01-01"), "Unknown extract part: year"),
        ("toTimeZone", ("2024-01-01", "UTC"), "Expected a DateTime"),
        ("toTimeZone", (HogDateTime(0), None), "Function toTimeZone expects a string, got null"),
        ("toStartOfDay", (5,), "Expected a DateTime"),
        ("formatDateTime", ("2024-01-01", "%F"), "Expected a DateTime"),
        ("formatDateTime", (HogDateTime(0), ""), "formatDateTime requires at least 2 arguments"),
        ("toDateTime", ("2024-01-01", "Nope"), "Unknown time zone: Nope"),
    ],
)
def test_refusals(name: str, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(HogRuntimeError) as failure:
        call(name, *args)
    assert str(failure.value) == message


def test_text_is_a_moment(evaluate: Callable[[str], Any]) -> None:
    assert repr_value(evaluate("toStartOfMonth('2024-12-18T10:00:00Z')")) == "DateTime(1733011200.0, 'UTC')"
    assert repr_value(evaluate("addDays('2024-12-18', 1)")) == "DateTime(1734566400.0, 'UTC')"
    assert evaluate("toStartOfHour('soon')") is None


@pytest.mark.parametrize("moment", [HogDateTime(-62_135_596_800), HogDateTime(253_402_300_799)])
def test_the_ends_of_the_calendar(moment: HogDateTime) -> None:
    for unit in ("day", "week", "month", "year", "hour"):
        for amount in (-1, 1, 1e300, -1e300):
            call("dateAdd", unit, amount, moment)
    for unit in ("year", "month", "day", "hour", "minute"):
        call("dateTrunc", unit, moment)
    call("toStartOfWeek", moment)
    call("formatDateTime", moment, "%F %V %G")


def test_a_zone_can_push_a_moment_off_the_calendar() -> None:
    edge = HogDateTime(-62_135_596_800, "America/New_York")
    assert to_string(edge) == ""
    assert call("toYear", edge) is None
    assert call("toDate", edge) is None
    with pytest.raises(HogRuntimeError, match="outside the calendar"):
        call("formatDateTime", edge, "%F")
