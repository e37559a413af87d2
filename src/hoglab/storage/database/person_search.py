"""An index of the parts of emails, names and distinct ids of persons, three letters each, beside the tables.

It belongs to the file, not to the schema: it is made when a file is opened that lacks it. New persons are put in by and
by (`fill`), in the order of their ids, for that takes less than one by one; triggers add what changes of those who are
in it. It tells who may be meant, never surely who is: what somebody was called once stays in it until it is begun anew.
"""

# ruff: noqa: S608 - our own words

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection

LEAST_CHARACTERS = 3
"""Shorter texts cannot be looked up."""
FILL_AT_ONCE = 1_000

_TEXT = (
    "coalesce(json_extract({row}.properties, '$.email'), '') || char(10) "
    "|| coalesce(json_extract({row}.properties, '$.name'), '')"
)
_OLD, _NEW = _TEXT.format(row="old"), _TEXT.format(row="new")

_ADD = "INSERT INTO person_search (rowid, text) VALUES"
_IS_IN = "new.{column} <= (SELECT done FROM person_search_progress)"
_MADE = f"""
CREATE VIRTUAL TABLE person_search
    USING fts5(text, content='', columnsize=0, detail='none', tokenize='trigram');
-- Persons with ids up to `done` are in it.
CREATE TABLE person_search_progress (done INTEGER NOT NULL);
INSERT INTO person_search_progress VALUES (0);
CREATE TRIGGER person_search_update AFTER UPDATE OF properties ON person
    WHEN {_IS_IN.format(column="id")} AND {_OLD} <> {_NEW}
    BEGIN {_ADD} (new.id, {_NEW}); END;
CREATE TRIGGER person_search_insert_id AFTER INSERT ON person_distinct_id
    WHEN {_IS_IN.format(column="person_id")}
    BEGIN {_ADD} (new.person_id, new.distinct_id); END;
CREATE TRIGGER person_search_update_id AFTER UPDATE OF person_id ON person_distinct_id
    WHEN {_IS_IN.format(column="person_id")}
    BEGIN {_ADD} (new.person_id, new.distinct_id); END;
"""
_RESET = (
    "INSERT INTO person_search (person_search) VALUES ('delete-all')",
    "UPDATE person_search_progress SET done = 0",
)
_DONE = "SELECT done FROM person_search_progress"
_PROGRESS = "SELECT done, (SELECT coalesce(max(id), 0) FROM person) FROM person_search_progress"
_FILL_PERSONS = (
    f"INSERT INTO person_search (rowid, text) SELECT new.id, {_NEW} "
    "FROM person AS new WHERE new.id > ? AND new.id <= ?"
)
_FILL_IDS = (
    "INSERT INTO person_search (rowid, text) SELECT person_id, distinct_id FROM person_distinct_id "
    "WHERE person_id > ? AND person_id <= ?"
)
_FOUND = "SELECT rowid FROM person_search WHERE person_search MATCH ? LIMIT ?"


def make(connection: Connection) -> None:
    """Make the index in a transaction, unless there is one."""
    if connection.exec_driver_sql("SELECT 1 FROM sqlite_master WHERE name = 'person'").first() is None:
        return
    known = "SELECT 1 FROM sqlite_master WHERE name = 'person_search_progress'"
    if connection.exec_driver_sql(known).first() is None:
        for statement in _MADE.split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)


def reset(connection: Connection) -> None:
    """Begin anew, without what persons were called who are gone, in a transaction. `fill` does the rest."""
    for statement in _RESET:
        connection.exec_driver_sql(statement)


def is_full(connection: Connection) -> bool:
    """Whether all persons are in it."""
    return all(done >= newest for done, newest in connection.exec_driver_sql(_PROGRESS))


def fill(connection: Connection) -> bool:
    """Put in the next persons, in a transaction; whether there are more."""
    progress = connection.exec_driver_sql(_PROGRESS).first()
    if progress is None or progress[0] >= progress[1]:
        return False
    done = min(progress[0] + FILL_AT_ONCE, progress[1])
    for statement in (_FILL_PERSONS, _FILL_IDS):
        connection.exec_driver_sql(statement, (progress[0], done))
    connection.exec_driver_sql("UPDATE person_search_progress SET done = ?", (done,))
    return bool(done < progress[1])


def find(connection: Connection, text: str, most: int) -> tuple[list[int], int] | None:
    """Row ids of all persons who may have a text in their email, name or a distinct id, and up to which row.

    The case does not count, and the persons are of any project. None: nobody can tell, or there are more than ``most``.
    """
    if len(text) < LEAST_CHARACTERS or "\0" in text:
        return None
    done = connection.exec_driver_sql(_DONE).scalar()
    if done is None:
        return None
    parts = dict.fromkeys(text[start : start + 3] for start in range(len(text) - 2))
    query = " AND ".join('"' + part.replace('"', '""') + '"' for part in parts)
    found = [row_id for (row_id,) in connection.exec_driver_sql(_FOUND, (query, most + 1))]
    return (found, done) if len(found) <= most else None
