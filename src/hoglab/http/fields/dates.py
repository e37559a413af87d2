"""Date-times on the wire (spec: experiments-api 1.6)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hoglab.patterns import ASCII, anchored

_MOMENT = anchored(
    r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
    r"(?:[Tt ](?P<hour>\d{1,2}):(?P<minute>\d{1,2})"
    r"(?::(?P<second>\d{1,2})(?:[.,](?P<fraction>\d{1,12}))?)?"
    r"\s*(?P<zone>[Zz]|[+-]\d{2}(?::?\d{2})?)?)?",
    ASCII,
)


def utc_now() -> datetime:
    """Return the present moment; the default clock of everything that takes a ``now`` callable."""
    return datetime.now(UTC)


def format_moment(moment: datetime) -> str:
    """Return a moment as ``2026-01-02T03:04:05.678901Z``, without microseconds when they are zero."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def format_offset(moment: datetime) -> str:
    """Return a moment as ``2026-01-02T03:04:05.678901+00:00``: the form of the timeseries endpoints."""
    return moment.astimezone(UTC).isoformat()


def parse_moment(text: str) -> datetime:
    """Read ``YYYY-MM-DDThh:mm[:ss[.uuuuuu]]`` with optional ``Z`` or ``±HH:MM``, or a bare date.

    A moment without a zone is UTC, digits beyond the microsecond are cut off. The result is in UTC.
    Raises `ValueError` when the text is anything else or names a moment that does not exist.
    """
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        raise ValueError("not a date-time")
    part = match.groupdict(default="0")
    zone = _zone(match["zone"])
    local = datetime(
        int(part["year"]),
        int(part["month"]),
        int(part["day"]),
        int(part["hour"]),
        int(part["minute"]),
        int(part["second"]),
        int(part["fraction"].ljust(6, "0")[:6]) if match["fraction"] else 0,
        tzinfo=zone,
    )
    try:
        return local.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("out of range in UTC") from error


def _zone(text: str | None) -> timezone:
    if text is None or text in "Zz":
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if minutes > 59:
        raise ValueError("not a zone offset")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)
