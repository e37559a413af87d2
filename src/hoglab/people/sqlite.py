"""The statements that every batch of events needs, straight through the driver of SQLite.

Persons are loaded, made and changed by the thousand, so the work for each row counts: here it is what the
driver and the engine do, and nothing else. All statements are constant, so each is prepared once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast
from uuid import UUID

import orjson
from msgspec import convert

from hoglab.people.batch import PersonState
from hoglab.storage.database.types import from_micros, to_micros

if TYPE_CHECKING:
    from sqlalchemy import Connection

# From the names to the persons, whatever the planner believes: the tables are large, the list is short.
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


def load_persons(
    connection: Connection, project_id: int, distinct_ids: Iterable[str]
) -> dict[str, PersonState]:
    """The persons behind distinct ids; one object for each person, ids without a person are left out."""
    names = orjson.dumps(list(distinct_ids)).decode()
    rows = _driver(connection).execute(_LOAD, {"names": names, "project_id": project_id}).fetchall()
    known: dict[str, PersonState] = {}
    by_row: dict[int, PersonState] = {}
    uuids = convert([row[2] for row in rows], list[UUID])  # a third of one by one
    for uuid, row in zip(uuids, rows, strict=True):
        name, row_id, _, properties, is_identified, version, created_at, seen = row
        state = by_row.get(row_id)
        if state is None:
            state = by_row[row_id] = PersonState(
                row_id=row_id,
                uuid=uuid,
                json=properties.encode(),
                is_identified=bool(is_identified),
                version=version,
                created_at=from_micros(created_at),
                last_seen_at=None if seen is None else from_micros(seen),
                is_stored=True,
            )
        known[name] = state
    return known


def insert_persons(connection: Connection, project_id: int, persons: Sequence[PersonState]) -> None:
    """Write new persons and give each its ``row_id``: the next ones, which the write lock reserves."""
    driver = _driver(connection)
    last = driver.execute(_LAST_ID).fetchone()
    first = 1 if last is None else last[0] + 1
    # Written and read as JSON, all uuids together become text in a fraction of the time of one by one.
    uuids = orjson.loads(orjson.dumps([each.uuid for each in persons]))
    rows = []
    for row_id, (each, uuid) in enumerate(zip(persons, uuids, strict=True), first):
        each.row_id = row_id
        rows.append((row_id, project_id, uuid, *_values(each)))
    driver.executemany(_INSERT, rows)


def update_persons(connection: Connection, persons: Sequence[PersonState]) -> None:
    """Write what changed of persons that are there already."""
    _driver(connection).executemany(_UPDATE, [(*_values(each), each.row_id) for each in persons])


def insert_distinct_ids(connection: Connection, project_id: int, named: dict[str, PersonState]) -> None:
    """Write distinct ids that had no person so far. The persons are written already."""
    rows = [(project_id, name, person.root().row_id) for name, person in named.items()]
    _driver(connection).executemany(_NAME, rows)


def _values(person: PersonState) -> tuple[str, bool, int, int, int | None]:
    seen = person.last_seen_at
    return (
        person.json.decode(),
        person.is_identified,
        person.version,
        to_micros(person.created_at),
        None if seen is None else to_micros(seen),
    )


def _driver(connection: Connection) -> sqlite3.Connection:
    """What is under a connection, inside its transaction."""
    return cast("sqlite3.Connection", connection.connection.driver_connection)
