"""The tables of the event store in ClickHouse, in numbered steps; all names of tables are here.

Each step may be run again: a start that was cut off in the middle of one begins with it once more.
"""

# ruff: noqa: S608 - names of our own

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hoglab.storage.event_store import EventStoreUnavailableError
from hoglab.storage.event_store.rows import COLUMNS, GROUP_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hoglab.storage.event_store.clickhouse.connection import Connection

EVENTS: Final = "event"
OVERRIDES: Final = "person_override_row"
POSITIONS: Final = "ingest_position"
CORRECTIONS: Final = "event_correction"
INSTALLATION: Final = "installation"
REHEARSAL: Final = "event_rehearsal"
"""A table of the columns of events that keeps nothing."""
USES: Final = "property_use"
"""Times at which statements asked for a property."""
_VERSIONS: Final = "schema_version"

TYPES: Final = {
    "project_id": "Int32",
    "uuid": "UUID",
    "event": "LowCardinality(String)",
    "distinct_id": "String",
    "timestamp": "DateTime64(6, 'UTC')",
    "captured_at": "DateTime64(6, 'UTC')",
    "person_id": "Nullable(UUID)",
    "person_created_at": "Nullable(DateTime64(6, 'UTC'))",
    "person_mode": "LowCardinality(String)",
    **{f"group_{index}": "Nullable(String)" for index in range(GROUP_TYPES)},
    "feature_flag": "LowCardinality(Nullable(String))",
    "feature_flag_response": "LowCardinality(Nullable(String))",
    "session_id": "Nullable(String)",
    "elements_chain": "String",
    "properties": "String",
    "person_properties": "String",
    "log_partition": "UInt16",
    "log_offset": "Int64",
    "log_index": "Int32",
    "month": "UInt32",
    "seq": "Int64",
    "first_offset": "Int64",
}
"""Columns of an event. ``month`` is the part of the table that it is in, ``log_index`` says which event of its
log record it is, and ``seq`` is its place in the order of ingestion."""

CORRECTION_TYPES: Final = {
    "project_id": "Int32",
    "timestamp": "DateTime64(6, 'UTC')",
    "old_seq": "Int64",
    "seq": "Int64",
    "first_seq": "Int64",
    "log_offset": "Int64",
}
"""Columns of an event that another one took the place of. It may be there twice, until the engine has merged parts."""

_CODECS: Final = {
    "distinct_id": "ZSTD(1)",
    "timestamp": "DoubleDelta, ZSTD(1)",
    "captured_at": "DoubleDelta, ZSTD(1)",
    "session_id": "ZSTD(1)",
    "elements_chain": "ZSTD(3)",
    "properties": "ZSTD(3)",
    "person_properties": "ZSTD(3)",
    "log_offset": "Delta, ZSTD(1)",
    "seq": "Delta, ZSTD(1)",
    "first_offset": "ZSTD(1)",
}


def _column(name: str) -> str:
    return f"{name} {TYPES[name]}" + (f" CODEC({_CODECS[name]})" if name in _CODECS else "")


# toDate32, for toDate takes days before 1970 for later ones, and then the index leaves out events that are meant.
_EVENT_TABLE = f"""
CREATE TABLE IF NOT EXISTS {EVENTS} (
    {", ".join(map(_column, TYPES))},
    INDEX by_uuid uuid TYPE bloom_filter(0.01) GRANULARITY 4,
    INDEX by_person person_id TYPE bloom_filter(0.01) GRANULARITY 4,
    INDEX by_distinct_id distinct_id TYPE bloom_filter(0.01) GRANULARITY 4,
    INDEX by_offset log_offset TYPE minmax GRANULARITY 1,
    INDEX by_place seq TYPE minmax GRANULARITY 1
) ENGINE = MergeTree PARTITION BY month
ORDER BY (project_id, toDate32(timestamp), event, cityHash64(distinct_id), timestamp)
SETTINGS non_replicated_deduplication_window = 10000
"""


def views(typed: Iterable[str]) -> tuple[str, ...]:
    """Return the statements that make the views of events, with these typed columns.

    Neither reads the other, so that each is whole while its columns become others.
    """
    names = (*COLUMNS, "log_partition", "log_index", *typed)
    shown = {name: f"events.{name} AS {name}" for name in names}
    shown |= {"uuid": "toString(events.uuid) AS uuid", "": "events.properties AS whole_properties"}
    resolved = {**shown, "person_id": "coalesce(became.person_id, events.person_id) AS person_id"}
    return (
        f"CREATE OR REPLACE VIEW stored_events AS SELECT {', '.join(shown.values())} FROM {EVENTS} AS events",
        f"""
CREATE OR REPLACE VIEW resolved_events AS SELECT {", ".join(resolved.values())}
FROM {EVENTS} AS events LEFT ANY JOIN person_override AS became
    ON became.project_id = events.project_id AND became.old_person_id = events.person_id
SETTINGS join_use_nulls = 1
""",
    )


_FIRST_OFFSETS: Final = tuple(
    f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {_column('first_offset')}" for table in (EVENTS, REHEARSAL)
)

STEPS: Final = (
    (
        _EVENT_TABLE,
        f"CREATE TABLE IF NOT EXISTS {REHEARSAL} ({', '.join(map(_column, TYPES))}) ENGINE = Null",
        f"""
CREATE TABLE IF NOT EXISTS {OVERRIDES} (
    project_id Int32, old_person_id UUID, person_id UUID, version Int64, log_partition UInt16, log_offset Int64
) ENGINE = ReplacingMergeTree(version) ORDER BY (project_id, old_person_id)
""",
        f"""
CREATE TABLE IF NOT EXISTS {POSITIONS} (log_partition UInt16, log_offset Int64, next_seq Int64)
ENGINE = ReplacingMergeTree(log_offset) ORDER BY log_partition
""",
        f"""
CREATE TABLE IF NOT EXISTS {INSTALLATION} (id String, generation Int64, starts Int64, version Int64)
ENGINE = ReplacingMergeTree(version) ORDER BY tuple()
""",
        f"""
CREATE OR REPLACE VIEW person_override AS SELECT project_id, old_person_id, became AS person_id, since AS log_offset
FROM (
    SELECT project_id, old_person_id, argMax(person_id, version) AS became, argMax(log_offset, version) AS since
    FROM {OVERRIDES} GROUP BY project_id, old_person_id
) WHERE became <> old_person_id
""",
        f"CREATE OR REPLACE VIEW store_state AS SELECT greatest(1, max(next_seq)) AS next_seq FROM {POSITIONS}",
    ),
    (
        f"""
CREATE TABLE IF NOT EXISTS {USES} (
    name String, form String, json_column String, key String,
    first_at SimpleAggregateFunction(min, DateTime('UTC')), used_at SimpleAggregateFunction(max, DateTime('UTC'))
) ENGINE = AggregatingMergeTree ORDER BY (name, form, json_column, key) TTL used_at + INTERVAL 60 DAY
""",
        *_FIRST_OFFSETS,  # which views show, also those of a database of the first step
        *views(()),
    ),
    (
        *_FIRST_OFFSETS,
        f"""
CREATE TABLE IF NOT EXISTS {CORRECTIONS} ({", ".join(f"{name} {kind}" for name, kind in CORRECTION_TYPES.items())})
ENGINE = ReplacingMergeTree ORDER BY (project_id, old_seq)
""",
        *views(()),
    ),
)
"""Statements that make the tables: the first step is for an empty database, each later one for what is there."""


def upgrade(connection: Connection) -> None:
    """Take the steps that were not taken. Raises `EventStoreUnavailableError`, also for tables of a newer program."""
    connection.command(
        f"CREATE TABLE IF NOT EXISTS {_VERSIONS} (version UInt32) ENGINE = MergeTree ORDER BY version"
    )
    [(version,)] = connection.rows(f"SELECT max(version) FROM {_VERSIONS}")
    if version > len(STEPS):
        raise EventStoreUnavailableError(
            f"{connection.name} has schema version {version}, which is newer than this program knows: "
            "start the version of hoglab that wrote it, or a newer one"
        )
    for number in range(version, len(STEPS)):
        for statement in STEPS[number]:
            connection.command(statement)
        connection.insert(_VERSIONS, {"version": "UInt32"}, {"version": [number + 1]})
