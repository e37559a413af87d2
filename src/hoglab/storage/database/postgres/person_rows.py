"""The statements on persons that every batch of events needs, straight through the driver.

Their number does not depend on that of the persons: what is written goes as arrays, one for each column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import psycopg
from sqlalchemy.exc import IntegrityError

from hoglab.storage.database.postgres.session import NOW_US

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

_LOAD = """
SELECT named.distinct_id, person.id, person.uuid, person.properties, person.is_identified, person.version,
    person.created_at, person.last_seen_at
FROM unnest(%b::text[]) AS asked (name)
JOIN person_distinct_id AS named ON named.project_id = %s AND named.distinct_id = asked.name
JOIN person ON person.id = named.person_id
"""
_NEXT_IDS = "SELECT nextval(pg_get_serial_sequence('person', 'id')) FROM generate_series(1, %s)"
_INSERT = """
INSERT INTO person (id, project_id, uuid, properties, is_identified, version, created_at, last_seen_at)
SELECT * FROM unnest(
    %b::integer[], %b::integer[], %b::text[], %b::text[], %b::boolean[], %b::bigint[], %b::bigint[], %b::bigint[]
)
"""
_UPDATE = """
UPDATE person SET properties = new.properties, is_identified = new.is_identified, version = new.version,
    created_at = new.created_at, last_seen_at = new.last_seen_at
FROM unnest(%b::text[], %b::boolean[], %b::bigint[], %b::bigint[], %b::bigint[], %b::integer[])
    AS new (properties, is_identified, version, created_at, last_seen_at, id)
WHERE person.id = new.id
"""
_CLAIM = """
SELECT person.version = known.version FROM person
JOIN unnest(%b::integer[], %b::bigint[]) AS known (id, version) ON person.id = known.id
ORDER BY person.id FOR NO KEY UPDATE OF person
"""
_NAME = """
INSERT INTO person_distinct_id (project_id, distinct_id, person_id)
SELECT * FROM unnest(%b::integer[], %b::text[], %b::integer[])
"""


def load(connection: Connection, project_id: int, distinct_ids: Iterable[str]) -> list[tuple[Any, ...]]:
    return _run(connection, _LOAD, (list(distinct_ids), project_id))


def next_ids(connection: Connection, count: int) -> Iterable[int]:
    return [number for (number,) in _run(connection, _NEXT_IDS, (count,))]


def insert(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    _write(connection, _INSERT, rows)


def update(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    _write(connection, _UPDATE, rows)


def claim(connection: Connection, versions: Sequence[tuple[int, int]]) -> int:
    ids, known = ([list(column) for column in zip(*versions, strict=True)]) if versions else ([], [])
    return sum(is_same for (is_same,) in _run(connection, _CLAIM, (ids, known)))


def moment(connection: Connection) -> int:
    return int(_run(connection, f"SELECT {NOW_US}", ())[0][0])


def name(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    _write(connection, _NAME, rows)


def _write(connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        _run(connection, statement, tuple([list(column) for column in zip(*rows, strict=True)]))


def _run(connection: Connection, statement: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    driver = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
    try:
        with driver.execute(statement.encode(), parameters, binary=True) as cursor:
            return cursor.fetchall() if cursor.description else []
    except psycopg.IntegrityError as error:
        raise IntegrityError(statement, None, error) from error  # as of every other statement
