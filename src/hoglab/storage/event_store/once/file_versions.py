"""Versions of events in a DuckDB file: found by their identities, and replaced, in the transaction of the writer."""

# ruff: noqa: S608 - names of our own, and numbers

from __future__ import annotations

from collections import Counter
from datetime import UTC
from typing import TYPE_CHECKING, Any

from hoglab.storage.event_store.once.versions import SERVERS_OWN, Said, StoredVersion
from hoglab.storage.event_store.rows import contents_of, identities_of, rows_of_events
from hoglab.storage.event_store.sealed.newest import rows_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import duckdb

    from hoglab.storage.event_log import SequenceNumber
    from hoglab.storage.event_store import EventRow, Identity
    from hoglab.storage.event_store.once.versions import Replacement

    Versions = dict[Identity, list[StoredVersion]]

_FIRST = "CASE WHEN first_offset = 0 THEN log_offset ELSE first_offset END"
_FOUND = f"""
SELECT project_id, uuid, day, event, distinct_id, seq, place, log_offset, {_FIRST}, timestamp, row_id
FROM (
    SELECT *, datediff('day', TIMESTAMP '1970-01-01', timestamp)::INTEGER AS day
    FROM {rows_of_events(needs_whole=False)} WHERE {{where}}
) SEMI JOIN asked USING (project_id, uuid, day, event, distinct_id)
"""
MANY = 500
"""Number of rows from which on the engine itself tells which of them say the same as before."""
_OWN = f'"\\{SERVERS_OWN}":"[^"\\\\]*",?'
"""Pattern of the member of JSON that capture adds, another one with each request."""


def _without_own(text: str) -> str:
    """Return SQL of properties without the member that capture adds, where no other one looks like it; else NULL."""
    is_alone = f"len(regexp_extract_all({text}, '{_OWN}')) = 1 AND json_exists({text}, '$.\"{SERVERS_OWN}\"')"
    return f"CASE WHEN {is_alone} THEN regexp_replace({text}, '{_OWN}', '') END"


_UNCHANGED = f"""
WITH found AS MATERIALIZED (
    SELECT number, seq, place, stored.log_offset AS log_offset, first, asked.log_offset AS asked_offset
    FROM (
        SELECT project_id, uuid, datediff('day', TIMESTAMP '1970-01-01', timestamp)::INTEGER AS day, event, distinct_id,
            seq, place, log_offset, {_FIRST} AS first
        FROM stored_events WHERE {{where}}
    ) AS stored JOIN asked USING (project_id, uuid, day, event, distinct_id)
), lone AS MATERIALIZED (
    SELECT number, any_value(seq) AS seq FROM found GROUP BY number
    HAVING count(*) = 1 AND max(place) < 0 AND max(log_offset) < max(asked_offset) AND max(first) < max(asked_offset)
)
SELECT number FROM lone JOIN events USING (seq) JOIN asked USING (number)
WHERE seq BETWEEN (SELECT min(seq) FROM lone) AND (SELECT max(seq) FROM lone)
    AND events.timestamp = asked.timestamp AND events.elements_chain = asked.elements_chain
    AND (events.properties = asked.properties
        OR coalesce({_without_own("events.properties")} = {_without_own("asked.properties")}, false))
"""
_SAID = ("timestamp", "captured_at", "elements_chain", "whole_properties")
_FIRST_SEQS = "SELECT seq, first_seq FROM event_correction WHERE seq IN ({seqs})"


def unchanged(
    connection: duckdb.DuckDBPyConnection, rows: Sequence[EventRow], extents: Iterable[tuple[int, int]]
) -> set[int]:
    """Return the numbers of rows, among some, that say word for word what is stored of their events.

    What capture adds with each request does not count.

    ``extents`` are the ranges of ``seq`` in which all versions of them are. The rule is that of `versions.settle`, for
    the plain case: one version of an earlier record that is not sealed, and one row.
    """
    identities = [row.identity for row in rows]
    times = Counter(identities)
    lone = [number for number, identity in enumerate(identities) if times[identity] == 1]
    if not lone:
        return set()
    where = " OR ".join(f"seq BETWEEN {first} AND {last}" for first, last in extents)
    connection.register("asked", contents_of([rows[n] for n in lone], [identities[n] for n in lone]))
    numbers = connection.execute(_UNCHANGED.format(where=where)).fetchnumpy()["number"]
    connection.unregister("asked")
    return {lone[number] for number in numbers.tolist()}


def versions_between(
    connection: duckdb.DuckDBPyConnection, rows: Sequence[EventRow], extents: Iterable[tuple[int, int]]
) -> Versions:
    """Return the stored versions of events in ranges of ``seq``, with what they say."""
    stored: Versions = {}
    connection.register("asked", identities_of(rows))
    row_ids: dict[int, int] = {}
    for first, last in extents:
        row_ids |= _collect(connection, f"seq BETWEEN {first} AND {last}", stored)
    connection.unregister("asked")
    return _with_what_they_say(connection, stored, row_ids)


def versions_new_between(
    connection: duckdb.DuckDBPyConnection, rows: Sequence[EventRow], first: int, last: int
) -> Versions:
    """Return the stored versions of events that were new with a range of log records, without what they say."""
    stored: Versions = {}
    connection.register("asked", identities_of(rows))
    _collect(connection, f"log_offset >= {first} AND {_FIRST} BETWEEN {first} AND {last}", stored)
    connection.unregister("asked")
    return stored


def _collect(connection: duckdb.DuckDBPyConnection, where: str, versions: Versions) -> dict[int, int]:
    """Add versions to those that are known, and return their row ids by their ``seq``."""
    row_ids: dict[int, int] = {}
    for row in connection.execute(_FOUND.format(where=where)).fetchall():
        project_id, uuid, day, event, distinct_id, seq, place, log_offset, first_offset, timestamp, row_id = (
            row
        )
        row_ids[seq] = row_id
        version = StoredVersion(place, seq, log_offset, first_offset, timestamp.replace(tzinfo=UTC))
        versions.setdefault((project_id, uuid.int, day, event, distinct_id), []).append(version)
    return row_ids


def _with_what_they_say(
    connection: duckdb.DuckDBPyConnection, versions: Versions, row_ids: Mapping[int, int]
) -> Versions:
    def run(sql: str) -> list[tuple[Any, ...]]:
        return connection.execute(sql).fetchall()

    all_versions = [version for group in versions.values() for version in group]
    read = rows_at(run, [(version.seq, row_ids[version.seq]) for version in all_versions], _SAID)
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
    log_offset: SequenceNumber,
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
