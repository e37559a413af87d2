"""One row of a file as the event that an SDK would send.

Rows may have the columns of PostHog's batch exports and of its API: ``uuid`` (or ``id``), ``event``,
``distinct_id``, ``timestamp``, ``properties`` as an object or as JSON text, and beside them ``set``,
``set_once``, ``ip`` and ``elements_chain``. Columns that describe what a server made of the event (team, person,
times of ingestion) are ignored: persons are rebuilt from the events.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

import orjson

from hoglab.ingestion.timestamps import OutOfRangeError, parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMESPACE = UUID("6f0d4c86-52a5-4a0e-9f55-6a7b6b0c2f11")
"""Namespace of the uuids that rows without one get."""

_INTO_PROPERTIES = {
    "set": "$set",
    "set_once": "$set_once",
    "$set": "$set",
    "$set_once": "$set_once",
    "unset": "$unset",
    "$unset": "$unset",
    "ip": "$ip",
    "elements_chain": "$elements_chain",
}
_OBJECTS = {"$set", "$set_once"}


class RowError(ValueError):
    """The row is no event; the text says why."""


def row_uuid(file_hash: str, position: int) -> UUID:
    """Return the uuid of a row without one: the same however often the same file is read."""
    return uuid5(NAMESPACE, f"{file_hash}/{position}")


def event_of(row: Mapping[str, Any], uuid_if_missing: UUID) -> dict[str, Any]:
    """Return the event in the form of the capture endpoint. Raises `RowError`."""
    name = row.get("event")
    if not name or not isinstance(name, str):
        raise RowError("the row has no event name")
    properties = _object(row.get("properties"), "properties")
    for column, property_name in _INTO_PROPERTIES.items():
        value = row.get(column)
        if property_name in _OBJECTS:
            value = _object(value, column)
        if value and property_name not in properties:
            properties[property_name] = value
    distinct_id = row.get("distinct_id")
    if distinct_id in (None, ""):
        distinct_id = properties.get("distinct_id")
    if distinct_id in (None, ""):
        raise RowError("the row has no distinct_id")
    return {
        "uuid": str(_uuid(row) or uuid_if_missing),
        "event": name,
        "distinct_id": distinct_id,
        "timestamp": _timestamp(row.get("timestamp")).isoformat(),
        "properties": properties,
    }


def _object(value: Any, column: str) -> dict[str, Any]:
    if value in (None, ""):
        return {}
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise RowError(f"{column} is not valid JSON: {error}") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RowError(f"{column} is not an object")
    return value


def _uuid(row: Mapping[str, Any]) -> UUID | None:
    given = row.get("uuid")
    if given not in (None, ""):
        try:
            return UUID(str(given))
        except ValueError:
            raise RowError("uuid is not a UUID") from None
    try:
        return UUID(str(row.get("id")))  # what the API calls it; other files number their rows so
    except ValueError:
        return None


def _timestamp(value: Any) -> datetime:
    # An event without a time would count as having happened now.
    if value in (None, ""):
        raise RowError("the row has no timestamp")
    try:
        moment = parse_time(value)
    except OutOfRangeError as error:
        raise RowError(f"timestamp is {error}") from None
    if moment is None:
        raise RowError("timestamp is no date and time")
    return moment
