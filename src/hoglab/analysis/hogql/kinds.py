"""Kinds of values of a query, and how an answer shows them."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

from hoglab.analysis.query.expressions import ExpressionKind
from hoglab.http.fields.dates import format_moment

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST_WHOLE = 2**53

TYPES = {
    ExpressionKind.TEXT: "String",
    ExpressionKind.NUMBER: "Float64",
    ExpressionKind.TRUTH: "Bool",
    ExpressionKind.MOMENT: "DateTime64(6)",
    ExpressionKind.LOCAL: "DateTime",
    ExpressionKind.DAY: "Date",
}
"""Names of the types of columns in an answer."""


def shown(value: Any, kind: ExpressionKind, zone: tzinfo) -> Any:
    """Return a value of the engine as JSON has it; moments in the zone of the project."""
    if value is None:
        return None
    match kind:
        case ExpressionKind.TRUTH:
            return bool(value)
        case ExpressionKind.NUMBER:
            return _number(value)
        case ExpressionKind.MOMENT:
            return _moment(_EPOCH + timedelta(microseconds=int(value)), zone)
        case ExpressionKind.LOCAL:
            local = _EPOCH.replace(tzinfo=None) + timedelta(microseconds=int(value))
            return _moment(local.replace(tzinfo=zone), zone)
        case ExpressionKind.DAY:
            return (date(1970, 1, 1) + timedelta(days=int(value))).isoformat()
    return str(value)


def _number(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) <= _LARGEST_WHOLE else float(value)


def _moment(moment: datetime, zone: tzinfo) -> str:
    local = moment.astimezone(zone)
    return format_moment(moment) if not local.utcoffset() else local.isoformat()
