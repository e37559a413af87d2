"""Rows of events as columns that the client writes."""

from __future__ import annotations

import contextlib
import json
import math
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import orjson

from hoglab.patterns import searched
from hoglab.storage.event_store.clickhouse.reader import bounded
from hoglab.storage.event_store.clickhouse.schema import TYPES
from hoglab.storage.event_store.rows import GROUP_TYPES, as_json, as_utf8, mended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from hoglab.storage.event_store import EventRow

LONG_AGO, FROM_THE_FUTURE = 0, 999_999
"""The parts of the table for events of clocks that are wrong: there are no more parts than months that are meant."""
OLDEST: Final = timedelta(days=731)
NEWEST: Final = timedelta(days=1)
"""Maximum distance from the time it was taken at which an event is in the part of its month."""


_LARGE_EXPONENT: Final = searched(rb"[0-9.][eE][+]?[0-9]{3}")


def month_of(row: EventRow) -> int:
    """Return the part of the table that an event goes into."""
    if row.timestamp < row.captured_at - OLDEST:
        return LONG_AGO
    if row.timestamp > row.captured_at + NEWEST:
        return FROM_THE_FUTURE
    return row.timestamp.year * 100 + row.timestamp.month


def indexes_of(rows: Sequence[EventRow]) -> list[int]:
    """Return the index of each row among the events of its log record; those of a record stand together."""
    indexes, last, index = [], -1, 0
    for row in rows:
        index = index + 1 if row.log_offset == last else 0
        last = row.log_offset
        indexes.append(index)
    return indexes


def readable(row: EventRow) -> EventRow:
    """Return the row with JSON that the engine can read."""
    return mended(mended(row, as_utf8), _as_read)


def _as_read(text: bytes) -> bytes:
    """Return the text itself where the engine can read it. Numbers that no float64 holds become texts."""
    if _LARGE_EXPONENT.search(text):
        with contextlib.suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(text, parse_float=_number), ensure_ascii=False).encode(
                errors="surrogatepass"
            )
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return as_json(text)
    return text


def _number(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def columns_of(
    rows: Sequence[EventRow], indexes: Sequence[int], places: Sequence[int], *, month: int, partition: int
) -> Mapping[str, Sequence[Any]]:
    """Return rows of one month as columns of the table of events, with their indexes and places (see `TYPES`)."""
    columns = {name: _MADE[name](list(map(attrgetter(name), rows))) for name in _MADE}
    groups = [row.groups for row in rows]
    columns |= {
        f"group_{group_type}": _texts([keys.get(group_type) for keys in groups])
        for group_type in range(GROUP_TYPES)
    }
    columns["log_partition"] = [partition] * len(rows)
    columns["log_index"] = indexes
    columns["month"] = [month] * len(rows)
    columns["seq"] = places
    return {name: columns[name] for name in TYPES}


def _texts(values: Sequence[str | None]) -> list[bytes | None]:
    return [None if value is None else value.encode(errors="replace") for value in values]


def _moments(values: Sequence[datetime | None]) -> list[datetime | None]:
    return [None if value is None else bounded(value) for value in values]


def _as_they_are(values: Sequence[Any]) -> Sequence[Any]:
    return values


_MADE: Final[Mapping[str, Callable[[Sequence[Any]], Sequence[Any]]]] = {
    "project_id": _as_they_are,
    "uuid": _as_they_are,
    "event": _texts,
    "distinct_id": _texts,
    "timestamp": _moments,
    "captured_at": _moments,
    "person_id": _as_they_are,
    "person_created_at": _moments,
    "person_mode": _texts,
    "feature_flag": _texts,
    "feature_flag_response": _texts,
    "session_id": _texts,
    "elements_chain": _texts,
    "properties": _as_they_are,
    "person_properties": _as_they_are,
    "log_offset": _as_they_are,
    "first_offset": _as_they_are,
}
"""Fields of `EventRow`, and how each becomes a column."""


def chunks(
    months: Sequence[int], positions: Sequence[int], most: int
) -> Iterator[tuple[int, int, list[int]]]:
    """Yield places of rows that go into one part of the table: its month, the number of the chunk, the places.

    An insert of one chunk is there as a whole or not at all. The number follows from the positions of rows in their
    batch, so that it is the same whichever other chunks are there already.
    """
    places: dict[tuple[int, int], list[int]] = {}
    for place, (month, position) in enumerate(zip(months, positions, strict=True)):
        places.setdefault((month, position // most), []).append(place)
    for (month, number), members in sorted(places.items()):
        yield month, number, members
