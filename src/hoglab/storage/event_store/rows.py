"""The layout of stored events: tables, and rows turned into columns."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hoglab.storage.database.types import to_micros
from hoglab.storage.event_store.arrow import (
    ArrowTable,
    Column,
    encoded_texts,
    integers,
    microseconds,
    small_integers,
    texts,
    uuids,
)
from hoglab.storage.event_store.mirrored import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from typing import Any

    from hoglab.storage.event_store import EventRow, Identity

SCHEMA_VERSION = 4
"""Raised when the statements below change in a way that older files lack; `UPGRADES` says how those get it."""

GROUP_TYPES = 5

_COLUMNS: Mapping[str, str] = {
    "seq": "BIGINT NOT NULL",
    "project_id": "INTEGER NOT NULL",
    "uuid": "UUID NOT NULL",
    "event": "VARCHAR NOT NULL",
    "distinct_id": "VARCHAR NOT NULL",
    "timestamp": "TIMESTAMP NOT NULL",
    "captured_at": "TIMESTAMP NOT NULL",
    "person_id": "UUID",
    "person_created_at": "TIMESTAMP",
    "person_mode": "VARCHAR NOT NULL",
    **{f"group_{index}": "VARCHAR" for index in range(GROUP_TYPES)},
    "feature_flag": "VARCHAR",
    "feature_flag_response": "VARCHAR",
    "session_id": "VARCHAR",
    "log_offset": "BIGINT NOT NULL",
    "elements_chain": "VARCHAR NOT NULL",
    "properties": "VARCHAR NOT NULL",
    "person_properties": "VARCHAR NOT NULL",
    "first_offset": "BIGINT",
}

COLUMNS = tuple(_COLUMNS)
"""The columns of stored events."""


def _table(name: str, columns: Mapping[str, str]) -> str:
    return f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(f'{column} {kind}' for column, kind in columns.items())});"


FILLER = 0
"""The place of rows of ``sealed_events`` that are no events (see `hoglab.storage.event_store.sealed.erasing`)."""

EVENTS_TABLE = _table("events", _COLUMNS)

# Text that is compressed like this takes a seventh of its room, and all of 2,048 rows are read to read one of them.
_DENSE = {name: f"{_COLUMNS[name]} USING COMPRESSION zstd" for name in ("properties", "person_properties")}
_SEALED = f"""
{_table("sealed_events", {"place": "BIGINT NOT NULL", **_COLUMNS, **_DENSE, "copied_at": "INTEGER NOT NULL"})}
CREATE TABLE IF NOT EXISTS sealed_segment (
    first_place BIGINT NOT NULL, last_place BIGINT NOT NULL, first_seq BIGINT NOT NULL, last_seq BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS sealed_distinct_id (digest UINTEGER NOT NULL, place BIGINT NOT NULL);
"""
_CORRECTIONS = """
CREATE TABLE IF NOT EXISTS event_correction (
    project_id INTEGER NOT NULL, timestamp TIMESTAMP NOT NULL, old_seq BIGINT NOT NULL, seq BIGINT NOT NULL,
    first_seq BIGINT NOT NULL, log_offset BIGINT NOT NULL
);
"""


def _stored(columns: Mapping[str, tuple[str, str]], sealed: str) -> str:
    """Return SQL of all events with more columns: by their names, SQL of recent events and SQL of sealed ones."""
    recent_columns = ", ".join([*COLUMNS, *(f"{sql} AS {name}" for name, (sql, _) in columns.items())])
    sealed_columns = ", ".join([*COLUMNS, *(f"{sql} AS {name}" for name, (_, sql) in columns.items())])
    return (
        f"SELECT {recent_columns} FROM events\n    UNION ALL\n"  # noqa: S608 - our own words
        f"    SELECT {sealed_columns} FROM sealed_events WHERE {sealed}"
    )


_WHOLE = {"whole_properties": ("properties", whole("properties", "copied_at"))}
_PLACE = {"place": ("-1::BIGINT", "place")}
_IS_EVENT = f"place <> {FILLER}"


def rows_of_events(*, needs_whole: bool, sealed: str = _IS_EVENT) -> str:
    """Return a relation like ``stored_events`` with ``row_id``, -1 for recent events.

    By their row ids the engine fetches sealed rows alone; they are valid within a transaction. ``needs_whole``: whether
    ``whole_properties`` is there, which takes the engine 2 ms to plan. ``sealed`` selects sealed events.
    """
    more = _WHOLE if needs_whole else {}
    return f"({_stored({**more, **_PLACE, 'row_id': ('-1::BIGINT', 'rowid')}, sealed)})"


_VIEWS = f"""
CREATE OR REPLACE VIEW stored_events AS
    {_stored({**_WHOLE, **_PLACE}, _IS_EVENT)};
CREATE OR REPLACE VIEW resolved_events AS
    SELECT events.* REPLACE (coalesce(person_override.person_id, events.person_id) AS person_id)
    FROM stored_events AS events LEFT JOIN person_override
        ON person_override.project_id = events.project_id AND person_override.old_person_id = events.person_id;
"""  # noqa: S608 - our own words

SCHEMA = f"""
{EVENTS_TABLE}
{_SEALED}
CREATE TABLE person_override (
    project_id INTEGER NOT NULL,
    old_person_id UUID NOT NULL,
    person_id UUID NOT NULL,
    log_offset BIGINT NOT NULL
);
{_CORRECTIONS}
{_VIEWS}
CREATE TABLE store_state (schema_version INTEGER NOT NULL, position BIGINT NOT NULL, next_seq BIGINT NOT NULL);
"""

UPGRADES: Mapping[int, str] = {
    1: """
ALTER TABLE person_override ADD COLUMN log_offset BIGINT DEFAULT 0;
ALTER TABLE person_override ALTER COLUMN log_offset SET NOT NULL;
ALTER TABLE person_override ALTER COLUMN log_offset DROP DEFAULT;
""",
    2: _SEALED,
    3: f"""
ALTER TABLE events ADD COLUMN IF NOT EXISTS first_offset BIGINT DEFAULT 0;
ALTER TABLE events ALTER COLUMN first_offset DROP DEFAULT;
ALTER TABLE sealed_events ADD COLUMN IF NOT EXISTS first_offset BIGINT DEFAULT 0;
ALTER TABLE sealed_events ALTER COLUMN first_offset DROP DEFAULT;
{_CORRECTIONS}
{_VIEWS}
""",
}
"""Statements that turn a file of a version into one of the next. The time of merges was not stored in version 1,
nothing was sealed in version 2, and no event was corrected in version 3."""

_PLAIN: dict[str, Callable[[Sequence[Any]], Column]] = {
    "project_id": small_integers,
    "uuid": uuids,
    "event": texts,
    "distinct_id": texts,
    "timestamp": lambda moments: microseconds(list(map(to_micros, moments))),
    "captured_at": lambda moments: microseconds(list(map(to_micros, moments))),
    "person_id": uuids,
    "person_created_at": lambda moments: microseconds(list(map(_maybe_micros, moments))),
    "person_mode": texts,
    "groups": lambda _: _unreachable(),
    "feature_flag": texts,
    "feature_flag_response": texts,
    "session_id": texts,
    "log_offset": integers,
    "elements_chain": texts,
    "properties": encoded_texts,
    "person_properties": encoded_texts,
    "first_offset": integers,
}
"""Fields of `EventRow` in the order of the table, and how each becomes a column."""


def table_of(rows: Sequence[EventRow], places: Sequence[int]) -> ArrowTable:
    """Return the rows, at least one, with their ``seq`` as columns in the order of the table ``events``."""
    columns = {"seq": integers(places)}
    for name, convert in _PLAIN.items():
        values = list(map(attrgetter(name), rows))
        if name == "groups":
            some = any(values)
            for index in range(GROUP_TYPES):
                keys = [groups.get(index) for groups in values] if some else [None] * len(rows)
                columns[f"group_{index}"] = texts(keys)
        else:
            columns[name] = convert(values)
    return ArrowTable(columns)


def identities_of(rows: Sequence[EventRow]) -> ArrowTable:
    """Return the different identities of some rows as a table."""
    uuid_by_identity = {row.identity: row.uuid for row in rows}
    return ArrowTable(
        {
            "project_id": small_integers([project_id for project_id, _, _, _, _ in uuid_by_identity]),
            "uuid": uuids(list(uuid_by_identity.values())),
            "day": small_integers([day for _, _, day, _, _ in uuid_by_identity]),
            "event": texts([event for _, _, _, event, _ in uuid_by_identity]),
            "distinct_id": texts([distinct_id for _, _, _, _, distinct_id in uuid_by_identity]),
        }
    )


def contents_of(rows: Sequence[EventRow], identities: Sequence[Identity]) -> ArrowTable:
    """Return rows, with their identities, as a table: the ``number`` of each, its identity and record, what it says."""
    columns = {name: _PLAIN[name](list(map(attrgetter(name), rows))) for name in _CONTENTS}
    return ArrowTable(
        {
            "number": integers(range(len(rows))),
            "day": small_integers([day for _, _, day, _, _ in identities]),
            **columns,
        }
    )


_CONTENTS = (
    "project_id", "uuid", "event", "distinct_id", "log_offset", "timestamp", "elements_chain", "properties",
)  # fmt: skip


def mended(row: EventRow, mend: Callable[[bytes], bytes]) -> EventRow:
    """Return the row with both JSON texts mended; the row itself when that changes nothing."""
    properties, person_properties = mend(row.properties), mend(row.person_properties)
    if properties is row.properties and person_properties is row.person_properties:
        return row
    return replace(row, properties=properties, person_properties=person_properties)


def as_utf8(text: bytes) -> bytes:
    """Return the text itself, or with U+FFFD in place of what is not UTF-8."""
    if text.isascii():
        return text
    try:
        text.decode()
    except UnicodeDecodeError:
        return text.decode(errors="replace").encode()
    return text


def as_json(text: bytes) -> bytes:
    """Return a JSON document that every parser takes, for one that an engine refused.

    Halves of surrogate pairs, which browsers send when they cut a string inside an emoji, become U+FFFD.
    What is no JSON at all becomes an empty object: one event must not make every later query fail. Text
    that is fine comes back with its spaces normalised at most.
    """
    try:
        plain = json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return b"{}"
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _maybe_micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


def _unreachable() -> Column:
    raise AssertionError("groups become five columns")
