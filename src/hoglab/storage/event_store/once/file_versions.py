"""Versions of events in a DuckDB file: found by their identities, and replaced, in the transaction of the writer."""

# ruff: noqa: S608 - names of our own, and numbers

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

from hoglab.storage.event_store.once.versions import Said, StoredVersion
from hoglab.storage.event_store.rows import identities_of
from hoglab.storage.event_store.sealed.newest import rows_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import duckdb

    from hoglab.storage.event_store import EventRow, Identity
    from hoglab.storage.event_store.once.versions import Replacement

    Versions = dict[Identity, list[StoredVersion]]

_FIRST = "CASE WHEN first_offset = 0 THEN log_offset ELSE first_offset END"
_FOUND = f"""
SELECT project_id, uuid, day, event, distinct_id, seq, place, log_offset, {_FIRST}, timestamp
FROM (
    SELECT *, datediff('day', TIMESTAMP '1970-01-01', timestamp)::INTEGER AS day FROM stored_events WHERE {{where}}
) SEMI JOIN asked USING (project_id, uuid, day, event, distinct_id)
"""
_SAID = ("timestamp", "captured_at", "elements_chain", "whole_properties")
_FIRST_SEQS = "SELECT seq, first_seq FROM event_correction WHERE seq IN ({seqs})"


def versions_between(
    connection: duckdb.DuckDBPyConnection, rows: Sequence[EventRow], extents: Iterable[tuple[int, int]]
) -> Versions:
    """Return the stored versions of events in ranges of ``seq``, with what they say."""
    stored: Versions = {}
    connection.register("asked", identities_of(rows))
    for first, last in extents:
        _collect(connection, f"seq BETWEEN {first} AND {last}", stored)
    connection.unregister("asked")
    return _with_what_they_say(connection, stored)


def versions_new_between(
    connection: duckdb.DuckDBPyConnection, rows: Sequence[EventRow], first: int, last: int
) -> Versions:
    """Return the stored versions of events that were new with a range of log records, without what they say."""
    stored: Versions = {}
    connection.register("asked", identities_of(rows))
    _collect(connection, f"log_offset >= {first} AND {_FIRST} BETWEEN {first} AND {last}", stored)
    connection.unregister("asked")
    return stored


def _collect(connection: duckdb.DuckDBPyConnection, where: str, versions: Versions) -> None:
    for row in connection.execute(_FOUND.format(where=where)).fetchall():
        project_id, uuid, day, event, distinct_id, seq, place, log_offset, first_offset, timestamp = row
        version = StoredVersion(place, seq, log_offset, first_offset, timestamp.replace(tzinfo=UTC))
        versions.setdefault((project_id, uuid.int, day, event, distinct_id), []).append(version)


def _with_what_they_say(connection: duckdb.DuckDBPyConnection, versions: Versions) -> Versions:
    def run(sql: str) -> list[tuple[Any, ...]]:
        return connection.execute(sql).fetchall()

    all_versions = [version for group in versions.values() for version in group]
    read = rows_at(run, [(version.seq, version.place) for version in all_versions], _SAID)
    said = {
        version.seq: Said(
            timestamp.replace(tzinfo=UTC), captured_at.replace(tzinfo=UTC), chain, properties.encode()
        )
        for version, (timestamp, captured_at, chain, properties) in zip(all_versions, read, strict=True)
    }
    return {
        identity: [
            StoredVersion(
                version.place,
                version.seq,
                version.log_offset,
                version.first_offset,
                version.timestamp,
                said[version.seq],
            )
            for version in group
        ]
        for identity, group in versions.items()
    }


def replace_versions(
    connection: duckdb.DuckDBPyConnection,
    rows: Sequence[EventRow],
    replaced: Sequence[Replacement],
    seqs: Mapping[int, int],
    log_offset: int,
) -> None:
    """Delete versions that rows took the place of, and note it; ``seqs`` are the new rows', by their positions.

    A sealed row leaves a hole in its segment until the segment is rewritten. Nobody may be sealing or erasing.
    """
    olds = [old for old, _ in replaced]
    for table, column, numbers in (
        ("events", "seq", [old.seq for old in olds if old.place < 0]),
        ("sealed_events", "place", [old.place for old in olds if old.place >= 0]),
    ):
        if numbers:
            connection.execute(f"DELETE FROM {table} WHERE {column} IN ({', '.join(map(str, numbers))})")
    listed = ", ".join(str(old.seq) for old in olds)
    first_seqs = dict(connection.execute(_FIRST_SEQS.format(seqs=listed)).fetchall())
    connection.executemany(
        "INSERT INTO event_correction VALUES ($1, $2, $3, $4, $5, $6)",
        [
            (
                rows[position].project_id,
                old.timestamp.replace(tzinfo=None),
                old.seq,
                seqs[position],
                first_seqs.get(old.seq, old.seq),
                log_offset,
            )
            for old, position in replaced
        ],
    )
