"""Integrity of database files: looked at in the background, or as a whole when somebody asks.

They have no checksums, so that damage is met late, or never.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from hoglab.background import BackgroundService
from hoglab.storage.database import tables
from hoglab.storage.database.copies import LAST_LOG_OFFSET
from hoglab.storage.database.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from hoglab.storage.database.engine import Database, DatabaseFile

CHECK_EVERY_S = 24 * 3600.0
"""Interval at which the structure and the rows of the files are checked; first when a server starts."""
RECHECK_EVERY_S = 10.0
"""Interval while something is damaged, so that a repair is noticed; not more than a tenth of the time."""

MAX_PROBLEMS = 20
"""Problems told of one file."""
RECORDS_AT_ONCE = 200
BUSY_S = 30.0

_PAYLOADS = {
    "records": 'SELECT "offset", payload FROM event_log_record WHERE "offset" > ? ORDER BY "offset" LIMIT ?',
    "deferred records": "SELECT id, payload FROM deferred_record WHERE id > ? ORDER BY id LIMIT ?",
}

_log = structlog.get_logger(__name__)


class IntegrityWatch(BackgroundService):
    """Background service that looks for damage. A check that runs when it stops ends with the process."""

    NAME = "integrity-watch"

    def __init__(self, databases: Mapping[str, Database]) -> None:
        """Watch ``databases``, which are named by their files."""
        super().__init__()
        self._databases = databases
        self._found: dict[str, str] = {}
        self.looked = threading.Event()
        """Set when all files were looked through once."""

    def damages(self) -> dict[str, str]:
        """Return damages, by file."""
        return dict(self._found)

    def round(self) -> float:
        began = time.monotonic()
        for name, database in self._databases.items():
            for file in database.files:
                if not self.is_stopping:
                    self._look(name, file)
        self.looked.set()
        return max(RECHECK_EVERY_S, 10 * (time.monotonic() - began)) if self._found else CHECK_EVERY_S

    def _look(self, name: str, file: DatabaseFile) -> None:
        try:
            problem = file.quick_check()
            if problem is None and (names := file.damaged_tables()):
                problem = f"rows of {', '.join(names)} are not what was written"
        except DatabaseError as error:
            problem = str(error)
        if problem is None:
            self._found.pop(name, None)
            return
        if name not in self._found:
            _log.error("database_damaged", file=name, problem=problem)
        self._found[name] = problem


def examined(path: Path, *, full: bool) -> tuple[list[str], int]:
    """Return problems of a file, of which every page is read, and its number of rows when it has none.

    ``full``: also whether indexes have all rows, and whether values are JSON where they should be.
    """
    problems: list[str] = []
    rows = 0
    try:
        with closing(_connected(path)) as connection:
            connection.execute("PRAGMA query_only=ON")
            how = "integrity_check" if full else "quick_check"
            texts = [text for (text,) in connection.execute(f"PRAGMA {how}({MAX_PROBLEMS})")]
            problems += [text for text in texts if text != "ok"]
            broken = connection.execute("PRAGMA foreign_key_check").fetchmany(MAX_PROBLEMS)
            problems += [
                f"a row of {table} refers to one of {parent} that is not there"
                for table, _, parent, _ in broken
            ]
            if not problems:
                problems += _unreadable_tables(connection)
            if full and not problems:
                problems += _unreadable_values(connection)
            if not problems:
                rows = _rows(connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter where a message quotes damage
        problems.append(str(error))
    return problems, rows


def schema_revision(path: Path) -> str | None:
    """Return the revision of a file's schema."""
    with closing(_connected(path)) as connection:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return None if row is None else str(row[0])


@dataclass(frozen=True, slots=True)
class ExaminedLog:
    """The event log of a file. ``last``: the last offset that was given out; 0 for none, as ``first``."""

    first: int
    last: int
    count: int
    damaged: dict[str, list[int]]
    """Offsets of records that cannot be read, and ids of deferred ones, by what they are called."""
    deferred: int
    quarantined: int


def examined_log(path: Path, is_readable: Callable[[bytes], bool], *, full: bool) -> ExaminedLog:
    """Return the event log of a file; ``full``: every record is asked about."""
    damaged: dict[str, list[int]] = {}
    with closing(_connected(path)) as connection:
        first, last, count = connection.execute(
            'SELECT min("offset"), max("offset"), count(*) FROM event_log_record'
        ).fetchone()
        given = connection.execute(LAST_LOG_OFFSET).fetchone()
        last = max(last or 0, 0 if given is None else given[0])
        if full:
            damaged = {
                name: list(_unreadable(connection, query, is_readable)) for name, query in _PAYLOADS.items()
            }
        deferred = connection.execute("SELECT count(*) FROM deferred_record").fetchone()[0]
        quarantined = connection.execute("SELECT count(*) FROM quarantined_record").fetchone()[0]
    return ExaminedLog(first or 0, last, count, damaged, deferred, quarantined)


def _unreadable(
    connection: sqlite3.Connection, query: str, is_readable: Callable[[bytes], bool]
) -> Iterator[int]:
    after = 0
    while records := connection.execute(query, (after, RECORDS_AT_ONCE)).fetchall():
        yield from (key for key, payload in records if not is_readable(payload))
        after = records[-1][0]


def _connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_S)


def _table_names(connection: sqlite3.Connection) -> list[str]:
    names = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
        "AND sql NOT LIKE 'CREATE VIRTUAL TABLE%'"  # an index for searches cannot be read as a whole
    )
    return [name for (name,) in names]


def _rows(connection: sqlite3.Connection) -> int:
    counts = (f'SELECT count(*) FROM "{name}"' for name in _table_names(connection))  # noqa: S608
    return sum(connection.execute(query).fetchone()[0] for query in counts)


def _unreadable_tables(connection: sqlite3.Connection) -> list[str]:
    """Return tables of which some row cannot be read: the check of the structure looks at no text."""
    problems = []
    for name in _table_names(connection):
        try:
            for _ in connection.execute(f'SELECT * FROM "{name}"'):  # noqa: S608
                pass
        except sqlite3.Error as error:
            problems.append(f"rows of {name} cannot be read: {error}")
    return problems


def _unreadable_values(connection: sqlite3.Connection) -> list[str]:
    """Return columns of JSON with values that are none: the engine itself takes any text."""
    problems = []
    existing = set(_table_names(connection))
    for metadata in (tables.metadata, tables.queue_metadata):
        for table in metadata.tables.values():
            if table.name not in existing:
                continue
            known = {row[1] for row in connection.execute(f'PRAGMA table_info("{table.name}")')}
            for column in table.columns:
                if type(column.type).__name__ != "Json" or column.name not in known:
                    continue
                bad = f'"{column.name}" IS NOT NULL AND NOT json_valid("{column.name}")'
                query = f'SELECT count(*) FROM "{table.name}" WHERE {bad}'  # noqa: S608
                count = connection.execute(query).fetchone()[0]
                if count:
                    problems.append(f"{count} values of {table.name}.{column.name} cannot be read")
    return problems
