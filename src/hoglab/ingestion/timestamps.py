"""Times of events, by a server's clock (spec: sdk-wire 1.6)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from hoglab.patterns import ASCII, anchored

MAX_FUTURE = timedelta(hours=23)
"""An event later than this counts as having happened when it was received."""
MAX_TRANSIT = timedelta(minutes=2)
"""Largest difference of a client's clock and ours that says nothing about its clock: requests take that long.

A request that was on its way for a minute and a clock that is a minute behind look alike. SDKs give up on an
attempt after 10 to 60 s, and some repeat a request with the time of its first attempt, for a minute in all.
Clocks that are synchronised differ by less than a second, others mostly by more than two minutes.
"""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECONDS_BELOW = 100_000_000_000
"""Numbers below this are seconds since the epoch, others milliseconds."""

_NUMBER = anchored(r"\d{9,15}(?:\.\d{1,9})?", ASCII)
_BEFORE_OR_AFTER_ALL_YEARS = anchored(r"(?:-\d{1,6}|0000|\+?\d{5,6})-\d\d-\d\d", ASCII)
_SLASHES = (
    anchored(r"(?P<y>\d{4})/(?P<m>\d{1,2})/(?P<d>\d{1,2})(?P<rest>[T ].+)?", ASCII),
    anchored(r"(?P<m>\d{1,2})/(?P<d>\d{1,2})/(?P<y>\d{4})(?P<rest>[T ].+)?", ASCII),
)


class OutOfRangeError(ValueError):
    """A moment in a year that cannot be stored."""


def parse_time(value: Any) -> datetime | None:
    """Return the moment that a client's value means, in UTC; None when it means none.

    Understands RFC 3339 and ISO 8601, dates alone, slashed dates, RFC 2822, and seconds or milliseconds
    since the epoch; without a zone it is UTC. Raises `OutOfRangeError` for years below 1 or above 9999.
    """
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return _parse_other(value.strip())
        # All digits can be an ISO date without dashes, or seconds: nobody sends the former.
        if value.isdigit() and len(value) != 8:
            return _from_number(float(value))
        return moment if moment.tzinfo is UTC else _in_utc(moment)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _from_number(float(value))
    return None


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise OutOfRangeError("outside of the years 1 to 9999") from None


def _from_number(number: float) -> datetime | None:
    if not 0 <= number < 1e15:
        return None
    micros = round(number * 1_000_000) if number < SECONDS_BELOW else round(number * 1000)
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise OutOfRangeError("outside of the years 1 to 9999") from None


def _parse_other(text: str) -> datetime | None:
    if _NUMBER.fullmatch(text):
        return _from_number(float(text))
    if _BEFORE_OR_AFTER_ALL_YEARS.match(text):
        raise OutOfRangeError("outside of the years 1 to 9999")
    for form in _SLASHES:
        match = form.fullmatch(text)
        if match is not None:
            rest = (match["rest"] or "").strip(" T")
            iso = f"{match['y']}-{int(match['m']):02}-{int(match['d']):02}"
            return _iso(f"{iso}T{rest}" if rest else iso)
    try:
        return _in_utc(parsedate_to_datetime(text))
    except (ValueError, TypeError, IndexError, OverflowError):
        return _iso(text)


def _iso(text: str) -> datetime | None:
    try:
        return _in_utc(datetime.fromisoformat(text))
    except OutOfRangeError:
        raise
    except ValueError:
        return None


class EventTime(NamedTuple):
    """Moment of an event, and the field of the client that was ignored for it, with the reason."""

    moment: datetime
    ignored: tuple[str, str] | None = None


IN_FUTURE = f"is more than {MAX_FUTURE // timedelta(hours=1)} hours in the future"
_UNREADABLE = ("timestamp", "cannot be read as a time")
_NO_OFFSET = ("offset", "is not a whole number of milliseconds")


def event_time(
    timestamp: Any,
    offset: Any,
    *,
    now: datetime,
    sent_at: datetime | None,
) -> EventTime:
    """Return the moment of an event: the time that the client says, less how much its clock is ahead of ours.

    ``now`` is when the server received the event, ``sent_at`` when the client sent it, by its own clock. Where they
    differ by up to `MAX_TRANSIT`, in either direction, the client's clock counts as right, so that all events of a
    client keep their order however long their requests took. ``offset``, milliseconds before the sending, overrides
    the timestamp.
    """
    skew = timedelta() if sent_at is None else sent_at - now
    is_transit = abs(skew) <= MAX_TRANSIT
    # An event that says no time happened when it was sent.
    sent = now + min(skew, timedelta()) if is_transit else now
    ignored = None if offset is None else _NO_OFFSET
    field = "timestamp"
    try:
        moment = parse_time(timestamp) if timestamp is not None else None
        if moment is None:
            moment = sent
            if timestamp is not None:
                ignored = _UNREADABLE
        elif not is_transit:
            moment -= skew
        if type(offset) is int:
            field = "offset"
            moment = sent - timedelta(milliseconds=offset)
            ignored = None
    except (OverflowError, OutOfRangeError):
        return EventTime(EPOCH, (field, "is outside of the years 1 to 9999"))
    if moment - now > MAX_FUTURE:
        return EventTime(now, (field, IN_FUTURE))
    return EventTime(moment, ignored)


def sent_time(in_body: Any, in_query_ms: int | None) -> datetime | None:
    """Return the time when the client sent the request, by its own clock; a time in the body wins."""
    try:
        moment = parse_time(in_body)
        if moment is None and in_query_ms is not None:
            moment = EPOCH + timedelta(milliseconds=in_query_ms)
    except (OverflowError, OutOfRangeError):
        return None
    return moment
