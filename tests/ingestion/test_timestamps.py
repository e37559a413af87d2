"""When an event happened (spec: sdk-wire 1.6)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.ingestion.timestamps import EPOCH, OutOfRangeError, event_time, parse_time, sent_time

NOW = datetime(2023, 1, 1, 12, 0, 0, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("timestamp", "sent_at", "offset", "expected"),
    [
        ("2023-01-01T11:00:00Z", "2023-01-01T12:10:00Z", None, "10:50:00"),
        ("2023-01-01T11:00:00Z", "2023-01-01T11:50:00Z", None, "11:10:00"),
        ("2023-01-01T11:00:00Z", "2023-01-01T12:02:00Z", None, "11:00:00"),
        ("2023-01-01T11:00:00Z", "2023-01-01T11:58:00Z", None, "11:00:00"),
        ("2023-01-01T11:00:00Z", "2023-01-01T12:02:01Z", None, "10:57:59"),
        ("2023-01-01T11:00:00Z", "2023-01-01T11:57:59Z", None, "11:02:01"),
        ("2023-01-01T11:00:00Z", None, None, "11:00:00"),
        ("2023-01-01T11:00:00Z", "2023-01-01T12:00:10Z", 5000, "11:59:55"),
        (None, None, 5000, "11:59:55"),
        (None, "2023-01-01T12:00:10Z", None, "12:00:00"),
        (None, "2023-01-01T11:59:20Z", None, "11:59:20"),  # 40 s on the way
        (None, "2023-01-01T11:59:20Z", 5000, "11:59:15"),
        (None, "2023-01-01T11:00:00Z", 5000, "11:59:55"),  # a clock that is an hour behind
        (None, None, None, "12:00:00"),
        ("yesterday", "2023-01-01T12:00:10Z", None, "12:00:00"),
        ("2023-01-01T11:00:00Z", None, "5000", "11:00:00"),  # not an integer
        ("2023-01-01T11:00:00Z", None, True, "11:00:00"),
        ("2023-01-01T11:00:00Z", None, 5.5, "11:00:00"),
    ],
)
def test_clock_skew(timestamp: Any, sent_at: str | None, offset: Any, expected: str) -> None:
    moment, _ = event_time(timestamp, offset, now=NOW, sent_at=sent_time(sent_at, None))
    assert moment == at(f"2023-01-01T{expected}")


@given(
    st.lists(st.tuples(st.integers(0, 3600), st.integers(0, 70)), min_size=2, max_size=6),
    st.integers(-50, 50),
    st.sampled_from(["timestamp", "offset", "neither"]),
)
def test_events_of_a_client_keep_their_order_however_long_their_requests_take(
    requests: list[tuple[int, int]], clock_s: int, form: str
) -> None:
    # Events without a timestamp are dated by their arrival at the latest, so a fast clock does not date them.
    clock_s = min(clock_s, 0) if form != "timestamp" else clock_s
    moments = []
    for happened_s, transit_s in sorted(requests):
        sent = NOW + timedelta(seconds=happened_s)
        by_client = sent + timedelta(seconds=clock_s)
        timestamp = by_client.isoformat() if form == "timestamp" else None
        offset = 0 if form == "offset" else None
        received = sent + timedelta(seconds=transit_s)
        moments.append(event_time(timestamp, offset, now=received, sent_at=by_client).moment)
    assert moments == sorted(moments)


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        (timedelta(hours=23), NOW + timedelta(hours=23)),
        (timedelta(hours=23, seconds=1), NOW),
        (timedelta(days=400), NOW),
    ],
)
def test_the_future_ends_after_23_hours(ahead: timedelta, expected: datetime) -> None:
    assert event_time((NOW + ahead).isoformat(), None, now=NOW, sent_at=None).moment == expected


@pytest.mark.parametrize(
    ("timestamp", "offset", "sent_at"),
    [
        ("-0044-03-15T00:00:00Z", None, None),
        ("0000-01-01T00:00:00Z", None, None),
        ("12023-01-01T00:00:00Z", None, None),
        ("0001-01-01T00:00:00+05:00", None, None),
        ("0001-01-01T00:00:00Z", None, NOW + timedelta(days=1)),
        (None, 10**20, None),
        (None, 10**14, None),
    ],
)
def test_years_that_cannot_be_stored(timestamp: Any, offset: Any, sent_at: datetime | None) -> None:
    assert event_time(timestamp, offset, now=NOW, sent_at=sent_at).moment == EPOCH


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2023-01-01T11:00:00Z", "2023-01-01T11:00:00"),
        ("2023-01-01T11:00:00.123456+00:00", "2023-01-01T11:00:00.123456"),
        ("2023-01-01T11:00:00.123456789Z", "2023-01-01T11:00:00.123456"),
        ("2023-01-01T11:00:00.5Z", "2023-01-01T11:00:00.5"),
        ("2023-01-01T11:00:00+03:00", "2023-01-01T08:00:00"),
        ("2023-01-01T11:00:00+03", "2023-01-01T08:00:00"),
        ("2023-01-01T11:00:00-0330", "2023-01-01T14:30:00"),
        ("2023-01-01T11:00:00", "2023-01-01T11:00:00"),
        ("2023-01-01 11:00:00", "2023-01-01T11:00:00"),
        (" 2023-01-01T11:00:00Z ", "2023-01-01T11:00:00"),
        ("2023-01-01", "2023-01-01T00:00:00"),
        ("2023/01/01", "2023-01-01T00:00:00"),
        ("2023/1/31 11:00:00", "2023-01-31T11:00:00"),
        ("01/31/2023", "2023-01-31T00:00:00"),
        ("01/31/2023 11:00", "2023-01-31T11:00:00"),
        ("Sun, 01 Jan 2023 11:00:00 GMT", "2023-01-01T11:00:00"),
        ("Sun, 01 Jan 2023 11:00:00 +0200", "2023-01-01T09:00:00"),
        ("1672570800", "2023-01-01T11:00:00"),
        ("1672570800000", "2023-01-01T11:00:00"),
        ("1672570800.25", "2023-01-01T11:00:00.25"),
        (1672570800, "2023-01-01T11:00:00"),
        (1672570800123, "2023-01-01T11:00:00.123"),
    ],
)
def test_spellings(value: Any, expected: str) -> None:
    assert parse_time(value) == at(expected)


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "soon",
        "2023-13-01",
        "13/13/2023",
        "32/01/2023",
        None,
        True,
        {},
        [],
        -5,
        1e300,
        float("nan"),
        "9" * 40,
    ],
)
def test_what_means_no_time(value: Any) -> None:
    assert parse_time(value) is None


@given(
    st.text(max_size=40) | st.integers() | st.floats() | st.none() | st.booleans(), st.integers() | st.none()
)
def test_every_value_gives_some_time(value: Any, offset: int | None) -> None:
    moment, _ = event_time(value, offset, now=NOW, sent_at=NOW)
    assert moment.tzinfo is UTC
    assert moment <= NOW + timedelta(hours=23)


@given(st.datetimes(timezones=st.timezones()))
def test_iso_times_with_any_zone_are_read_exactly(moment: datetime) -> None:
    try:
        expected = moment.astimezone(UTC)
    except OverflowError:
        with pytest.raises(OutOfRangeError):
            parse_time(moment.isoformat())
    else:
        assert parse_time(moment.isoformat()) == expected


@pytest.mark.parametrize(
    ("in_body", "in_query_ms", "expected"),
    [
        ("2023-01-01T11:00:00Z", 1672574410000, "2023-01-01T11:00:00"),
        (None, 1672574410000, "2023-01-01T12:00:10"),
        ("nonsense", 1672574410000, "2023-01-01T12:00:10"),
        (None, None, None),
        ("-0044-01-01T00:00:00Z", None, None),
    ],
)
def test_when_a_request_was_sent(in_body: Any, in_query_ms: int | None, expected: str | None) -> None:
    assert sent_time(in_body, in_query_ms) == (at(expected) if expected else None)
