"""Copies of a SQLite file that others are using: as it is at one moment, with everything that is in its log."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from hoglab.storage.database.errors import DatabaseFullError, DatabaseUnreadableError, explained

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COPY_MODE = 0o600
LAST_LOG_OFFSET = "SELECT seq FROM sqlite_sequence WHERE name = 'event_log_record'"
"""The query for the last offset that the event log gave out, whether its record is still there or not."""


class Snapshot:
    """State of a file when the snapshot was taken; later writes to the file do not show."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection

    def copy(self, target: Path) -> None:
        """Write it to a new file, which has no log, and look through that one. Raises `DatabaseError`."""
        target.touch(COPY_MODE)
        with explained(str(self._path)), closing(sqlite3.connect(target)) as copied:
            self._connection.backup(copied)
            copied.execute("PRAGMA journal_mode=DELETE")
            (problem,) = copied.execute("PRAGMA quick_check(1)").fetchone()
            if problem != "ok":
                raise DatabaseUnreadableError(f"{self._path} is damaged: {problem}")

    def value(self, query: str) -> object:
        """Return the first column of the first row; None when there is none."""
        row = self._connection.execute(query).fetchone()
        return None if row is None else row[0]


@contextmanager
def snapshot(path: Path) -> Iterator[Snapshot]:
    """Hold on to the present state of a file. Its log grows until the end of the block."""
    with explained(str(path)), closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
        connection.execute("PRAGMA query_only=ON")
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # from now on
        yield Snapshot(path, connection)
        connection.execute("ROLLBACK")


def copy_before_migration(path: Path, revision: str) -> Path:
    """Keep a file as it is, beside it, until the next migration. Raises `DatabaseError`, when there is no room say."""
    target = path.with_name(f"{path.name}.before-{revision}")
    size = path.stat().st_size
    free = shutil.disk_usage(path.parent).free
    if free < size:
        raise DatabaseFullError(
            f"{path} is to be upgraded, and there is no room for a copy of it first: {size} bytes are needed, {free} "
            "are free"
        )
    draft = path.with_name(f".{target.name}")
    draft.unlink(missing_ok=True)
    with snapshot(path) as file:
        file.copy(draft)
    _sync(draft)
    draft.replace(target)
    _sync(path.parent)
    for older in path.parent.glob(f"{path.name}.before-*"):
        if older != target:
            older.unlink()
    return target


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
