"""An index of the parts of emails, names and distinct ids of persons, three letters each, beside the tables.

It belongs to the file, not to the schema: it is made when a file is opened that lacks it. New persons are put in by and
by (`fill`), in the order of their ids, for that takes less than one by one; triggers add what changes of those who are
in it. It tells who may be meant, never surely who is: former names of a person stay in it until it is rebuilt.
"""

# ruff: noqa: S608 - our own words

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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
_INDEX = """CREATE VIRTUAL TABLE person_search
    USING fts5(text, content='', columnsize=0, detail='none', tokenize='trigram')"""
_MADE = f"""
{_INDEX};
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
_KNOWN = "SELECT 1 FROM sqlite_master WHERE name = 'person_search_progress'"
_DONE = "SELECT done FROM person_search_progress"
_PROGRESS = "SELECT done, (SELECT coalesce(max(id), 0) FROM person) FROM person_search_progress"
_PERSON_TEXTS = f"SELECT new.id, {_NEW} FROM person AS new WHERE new.id > ? AND new.id <= ?"
_ID_TEXTS = "SELECT person_id, distinct_id FROM person_distinct_id WHERE person_id > ? AND person_id <= ?"
_FILL_PERSONS = f"INSERT INTO person_search (rowid, text) {_PERSON_TEXTS}"
_FILL_IDS = f"INSERT INTO person_search (rowid, text) {_ID_TEXTS}"
_ADD_ASIDE = "INSERT INTO person_search (rowid, text) VALUES (?, ?)"
_TERMS = "CREATE VIRTUAL TABLE terms USING fts5vocab(person_search, instance)"
_WITHIN = "SELECT rowid FROM person_search WHERE person_search MATCH ? AND rowid BETWEEN ? AND ?"
_FOUND = "SELECT rowid FROM person_search WHERE person_search MATCH ? LIMIT ?"


def make(connection: Connection) -> None:
    """Make the index in a transaction, unless there is one."""
    if connection.exec_driver_sql("SELECT 1 FROM sqlite_master WHERE name = 'person'").first() is None:
        return
    if connection.exec_driver_sql(_KNOWN).first() is None:
        for statement in _MADE.split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)


def reset(connection: Connection) -> None:
    """Empty the index, so that former names leave it, in a transaction. `fill` puts the persons in again."""
    for statement in _RESET:
        connection.exec_driver_sql(statement)


def is_full(connection: Connection) -> bool:
    """Return whether all persons are in it."""
    return all(done >= newest for done, newest in connection.exec_driver_sql(_PROGRESS))


def fill(connection: Connection) -> bool:
    """Put in the next persons, in a transaction, and return whether there are more."""
    progress = connection.exec_driver_sql(_PROGRESS).first()
    if progress is None or progress[0] >= progress[1]:
        return False
    done = min(progress[0] + FILL_AT_ONCE, progress[1])
    for statement in (_FILL_PERSONS, _FILL_IDS):
        connection.exec_driver_sql(statement, (progress[0], done))
    connection.exec_driver_sql("UPDATE person_search_progress SET done = ?", (done,))
    return bool(done < progress[1])


def is_damaged(connection: sqlite3.Connection) -> bool:
    """Return whether there are persons whom it does not tell, or it cannot be read. Reads all of it."""
    if connection.execute(_KNOWN).fetchone() is None:
        return False
    try:
        return any(True for _ in missing(connection))
    except sqlite3.DatabaseError:
        return True


def missing(connection: sqlite3.Connection) -> Iterator[int]:
    """Yield row ids of persons whom it does not tell by all that they are called.

    What persons are called is indexed once more, aside, some of them at a time, and compared. Raises `sqlite3.Error`.
    """
    done = connection.execute(_DONE).fetchone()[0]
    for first in range(0, done, FILL_AT_ONCE):
        last = min(first + FILL_AT_ONCE, done)
        with closing(sqlite3.connect(":memory:")) as aside:
            aside.execute(_INDEX)
            aside.execute(_TERMS)
            for texts in (_PERSON_TEXTS, _ID_TEXTS):
                rows = connection.execute(texts, (first, last)).fetchall()
                aside.executemany(_ADD_ASIDE, rows)
            wanted = aside.execute("SELECT term, doc FROM terms ORDER BY term").fetchall()
        lacking: set[int] = set()
        for term, group in groupby(wanted, itemgetter(0)):
            query = '"' + term.replace('"', '""') + '"'
            indexed = {row for (row,) in connection.execute(_WITHIN, (query, first + 1, last))}
            lacking.update(row for _, row in group if row not in indexed)
        yield from sorted(lacking)


def find(connection: Connection, text: str, most: int) -> tuple[list[int], int | None] | None:
    """Return row ids of all persons who may have a text in their email, name or a distinct id, and up to which row.

    The case does not count, and the persons are of any project. None: nobody can tell, or there are more than ``most``.
    """
    if len(text) < LEAST_CHARACTERS or "\0" in text:
        return None
    done = connection.exec_driver_sql(_DONE).scalar()
    if done is None:
        return None
    parts = dict.fromkeys(text[start : start + 3] for start in range(len(text) - 2))
    query = " AND ".join('"' + part.replace('"', '""') + '"' for part in parts)
    row_ids = [row_id for (row_id,) in connection.exec_driver_sql(_FOUND, (query, most + 1))]
    return (row_ids, done) if len(row_ids) <= most else None
