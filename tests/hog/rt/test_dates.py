"""Reading, printing and zones of instants.  spec: hog-language 8.9, 10.6."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.dates import (
    date_of,
    date_seconds,
    date_text,
    datetime_text,
    in_range,
    instant,
    local_time,
    read_instant,
    time_zone,
)
from hoglab.hog.rt.values import HogDate, HogDateTime

MOMENTS = st.builds(
    dt.datetime.combine,
    st.dates(dt.date(1, 1, 2), dt.date(9999, 12, 30)),
    st.times(),
    st.just(dt.UTC),
)
ZONES = st.sampled_from(
    ["UTC", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC-3:30", "Africa/Monrovia"]
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01", 0),
        ("1970-01-02T00:00Z", 86_400),
        ("1970-01-01 00:00:01.5", 1.5),
        ("1970-01-01t00:00:01,123456789z", 1.123),
        ("1970-01-01T00:00+01", -3_600),
        ("1970-01-01T00:00-0130", 5_400),
        ("1970-01-01T00:00-01:30", 5_400),
        (" 1970-01-01\n", 0),
        ("0001-01-01", -62_135_596_800),
        ("1970-01-01T00:00:00.Z", None),
        ("1970-01-01Z", None),
        ("1970-01-01T00", None),
        ("1970-01-01T24:00", None),
        ("1970-01-01T00:00:60", None),
        ("1970-01-01T00:00+01:60", None),
        ("1970-01-01T00:00 Z", None),
        ("1970-02-29", None),
        ("0000-01-01", None),
        ("19700101", None),
        ("1970", None),
        ("00:00", None),
        ("1970-W01", None),
        ("1970-1-1", None),
        ("١٩٧٠-01-01", None),
        ("", None),
        (" " * 100 + "1970-01-01", 0),
        ("1970-01-01" + "x" * 100, None),
    ],
)
def test_date_like_grammar(text: str, seconds: float | None) -> None:
    assert read_instant(text) == seconds


def test_text_without_offset_is_read_in_the_zone() -> None:
    assert read_instant("2024-12-18T00:00:00", "America/New_York") == 1734498000
    assert read_instant("2024-12-18", "America/New_York") == 1734498000
    assert read_instant("2024-12-18T00:00:00Z", "America/New_York") == 1734480000


def test_hours_that_a_zone_skips_or_repeats() -> None:
    assert read_instant("2024-03-10T02:30:00", "America/New_York") == 1710055800  # skipped: an hour later
    assert read_instant("2024-11-03T01:30:00", "America/New_York") == 1730611800  # repeated: the first time


@pytest.mark.parametrize(
    "name", ["UTC", "utc", "GMT", "Etc/UTC", "america/new_york", "EST", "UTC+3", "UTC-05:30", "utc+14"]
)
def test_known_zones(name: str) -> None:
    local_time(0, name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Nope",
        "Mars/Base",
        "+05:30",
        "UTC+24",
        "UTC+1:5",
        "../../etc/passwd",
        "/etc/localtime",
        "x" * 1000,
        "local",
    ],
)
def test_unknown_zones_are_a_failure(name: str) -> None:
    with pytest.raises(HogRuntimeError, match="Unknown time zone"):
        time_zone(name)


@pytest.mark.parametrize(
    ("seconds", "zone", "text"),
    [
        (0, "UTC", "1970-01-01T00:00:00.000Z"),
        (0, "GMT", "1970-01-01T00:00:00.000Z"),
        (0, "Etc/UTC", "1970-01-01T00:00:00.000+00:00"),
        (0.0019, "UTC", "1970-01-01T00:00:00.001Z"),
        (-0.5, "UTC", "1969-12-31T23:59:59.500Z"),
        (1734480000, "America/New_York", "2024-12-17T19:00:00.000-05:00"),
        (1734480000, "Asia/Kolkata", "2024-12-18T05:30:00.000+05:30"),
        (-62135596800, "UTC", "0001-01-01T00:00:00.000Z"),
        (-62135596800, "America/New_York", ""),
        (1e18, "UTC", ""),
        (float("nan"), "UTC", ""),
    ],
)
def test_iso_text(seconds: float, zone: str, text: str) -> None:
    assert datetime_text(HogDateTime(seconds, zone)) == text


@given(MOMENTS)
def test_iso_text_reads_back(moment: dt.datetime) -> None:
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    seconds = instant(moment)
    text = datetime_text(HogDateTime(seconds))
    assert read_instant(text) == seconds
    assert text == moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@given(MOMENTS, ZONES)
def test_wall_clocks_lead_back_to_their_instant(moment: dt.datetime, zone: str) -> None:
    seconds = instant(moment)
    assert abs(instant(local_time(seconds, zone)) - seconds) < 0.001


@given(st.dates())
def test_days(day: dt.date) -> None:
    date = HogDate(day.year, day.month, day.day)
    assert date_text(date) == day.isoformat()
    again = date_of(date_seconds(date))
    assert (again.year, again.month, again.day) == (day.year, day.month, day.day)


def test_range() -> None:
    assert in_range(0)
    assert not in_range(float("nan"))
    assert not in_range(float("inf"))
    assert not in_range(-62_135_596_801)
    with pytest.raises(OverflowError):
        local_time(1e12)
