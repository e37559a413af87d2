"""Date-times on the wire (spec: experiments-api 1.6)."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.http.fields.dates import format_moment, format_offset, parse_moment, utc_now

DAY = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "text", "offset"),
    [
        (DAY, "2026-01-02T03:04:05Z", "2026-01-02T03:04:05+00:00"),
        (
            DAY.replace(microsecond=678901),
            "2026-01-02T03:04:05.678901Z",
            "2026-01-02T03:04:05.678901+00:00",
        ),
        (DAY.replace(microsecond=100), "2026-01-02T03:04:05.000100Z", "2026-01-02T03:04:05.000100+00:00"),
        (
            DAY.astimezone(timezone(timedelta(hours=5, minutes=30))),
            "2026-01-02T03:04:05Z",
            "2026-01-02T03:04:05+00:00",
        ),
        (DAY.replace(year=7), "0007-01-02T03:04:05Z", "0007-01-02T03:04:05+00:00"),
    ],
)
def test_output(moment: datetime, text: str, offset: str) -> None:
    assert format_moment(moment) == text
    assert format_offset(moment) == offset


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-02T03:04:05Z", DAY),
        ("2026-01-02T03:04:05", DAY),
        ("2026-01-02 03:04:05", DAY),
        ("2026-01-02T03:04", DAY.replace(second=0)),
        ("2026-01-02", DAY.replace(hour=0, minute=0, second=0)),
        ("2026-1-2T3:4:5z", DAY),
        (" 2026-01-02T03:04:05Z ", DAY),
        ("2026-01-02T05:04:05+02:00", DAY),
        ("2026-01-02T05:04:05+0200", DAY),
        ("2026-01-02T05:04:05+02", DAY),
        ("2026-01-01T21:34:05-05:30", DAY),
        ("2026-01-02T03:04:05.6Z", DAY.replace(microsecond=600000)),
        ("2026-01-02T03:04:05.678901Z", DAY.replace(microsecond=678901)),
        ("2026-01-02T03:04:05.6789019999Z", DAY.replace(microsecond=678901)),
        ("2026-01-02T03:04:05,678Z", DAY.replace(microsecond=678000)),
    ],
)
def test_input(text: str, moment: datetime) -> None:
    assert parse_moment(text) == moment
    assert parse_moment(text).tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Z",
        "now",
        "2026",
        "2026-01",
        "20260102T030405Z",
        "2026-W01-1",
        "2026-13-01",
        "2026-02-29",
        "2026-01-02T24:00",
        "2026-01-02T03",
        "2026-01-02T03:60",
        "2026-01-02T03:04:61",
        "2026-01-02T03:04:05.Z",
        "2026-01-02T03:04:05+25:00",
        "2026-01-02T03:04:05+02:60",
        "2026-01-02Z",
        "0000-01-01",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "٢٠٢٦-01-02",
        "2026-01-02T03:04:05Z\0",
        "1767322245",
    ],
)
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_moment(text)


@given(st.datetimes(timezones=st.just(UTC)))
def test_round_trip(moment: datetime) -> None:
    assert parse_moment(format_moment(moment)) == moment
    assert parse_moment(format_offset(moment)) == moment


@given(st.text(max_size=40))
def test_any_text_is_a_moment_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert parse_moment(text).tzinfo is UTC


def test_the_default_clock_is_aware() -> None:
    assert utc_now().tzinfo is UTC
