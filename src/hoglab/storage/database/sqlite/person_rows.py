"""The statements on persons that every batch of events needs, straight through the driver.

Persons are loaded, made and changed by the thousand, so the work for each row counts: here it is what the
driver and the engine do, and nothing else. All statements are constant, so each is prepared once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

import orjson

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

# From the names to the persons, against the estimates of the planner: the tables are large, the list is short.
_LOAD = """
SELECT named.distinct_id, person.id, person.uuid, person.properties, person.is_identified, person.version,
    person.created_at, person.last_seen_at
FROM json_each(:names) AS asked
CROSS JOIN person_distinct_id AS named ON named.project_id = :project_id AND named.distinct_id = asked.value
CROSS JOIN person ON person.id = named.person_id
"""
_LAST_ID = "SELECT seq FROM sqlite_sequence WHERE name = 'person'"
_INSERT = """
INSERT INTO person
    (id, project_id, uuid, properties, is_identified, version, created_at, last_seen_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_UPDATE = """
UPDATE person SET properties = ?, is_identified = ?, version = ?, created_at = ?, last_seen_at = ?
WHERE id = ?
"""
_NAME = "INSERT INTO person_distinct_id (project_id, distinct_id, person_id) VALUES (?, ?, ?)"


def load(
    connection: Connection, project_id: int, distinct_ids: Iterable[str]
) -> list[tuple[str, int, str, str, int, int, int, int | None]]:
    names = orjson.dumps(list(distinct_ids)).decode()
    return _driver(connection).execute(_LOAD, {"names": names, "project_id": project_id}).fetchall()


def next_ids(connection: Connection, count: int) -> Iterable[int]:
    """Return the write lock reserves what follows the last one."""
    last = _driver(connection).execute(_LAST_ID).fetchone()
    first = 1 if last is None else int(last[0]) + 1
    return range(first, first + count)


def insert(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    _driver(connection).executemany(_INSERT, rows)


def update(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    _driver(connection).executemany(_UPDATE, rows)


def claim(connection: Connection, versions: Sequence[tuple[int, int]]) -> int:
    """Return all of them: nobody else writes meanwhile."""
    del connection
    return len(versions)


def moment(connection: Connection) -> int:  # noqa: ARG001 - it is that of this machine
    return time.time_ns() // 1000


def name(connection: Connection, rows: Sequence[tuple[int, str, int | None]]) -> None:
    _driver(connection).executemany(_NAME, rows)


def _driver(connection: Connection) -> sqlite3.Connection:
    """Return driver's connection, inside the transaction of a connection."""
    return cast("sqlite3.Connection", connection.connection.driver_connection)
