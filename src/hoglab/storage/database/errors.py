"""What can go wrong with a database as a whole. Every message is one line, fit to be shown to an operator."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from collections.abc import Iterator


class DatabaseError(Exception):
    """Base of the errors below."""


class DatabaseBusyError(DatabaseError):
    """Another writer kept the database locked for longer than the waiting time; trying again is sensible."""


class DatabaseFullError(DatabaseError):
    """The disk below the database is full; what was being written has been rolled back."""


class DatabaseUnreadableError(DatabaseError):
    """The file cannot be opened, is damaged, or is no database."""


class DatabaseNotDurableError(DatabaseError):
    """The disk failed to keep what was committed, so that nothing can be promised until the server is restarted."""


class SchemaTooNewError(DatabaseError):
    """The database was written by a newer program whose schema this one does not know."""

    def __init__(self, name: str, revision: str) -> None:
        super().__init__(
            f"{name} has schema revision {revision}, which is newer than this program knows: "
            "start the version of hoglab that wrote it, or a newer one"
        )
        self.revision = revision


class UnsupportedDatabaseError(DatabaseError):
    """No engine is built in for this kind of database address."""


class NestedWriteError(RuntimeError):
    """A thread opened a second write transaction inside its first one: pass the transaction along instead."""


_CLASSES: dict[int, tuple[type[DatabaseError], str]] = {
    sqlite3.SQLITE_BUSY: (DatabaseBusyError, "is locked by another writer"),
    sqlite3.SQLITE_LOCKED: (DatabaseBusyError, "is locked by another writer"),
    sqlite3.SQLITE_FULL: (DatabaseFullError, "cannot grow: the disk is full"),
    sqlite3.SQLITE_CANTOPEN: (DatabaseUnreadableError, "cannot be opened"),
    sqlite3.SQLITE_PERM: (DatabaseUnreadableError, "may not be accessed"),
    sqlite3.SQLITE_READONLY: (DatabaseUnreadableError, "may not be written"),
    sqlite3.SQLITE_CORRUPT: (DatabaseUnreadableError, "is damaged"),
    sqlite3.SQLITE_NOTADB: (DatabaseUnreadableError, "is not a database"),
    sqlite3.SQLITE_IOERR: (DatabaseUnreadableError, "cannot be read or written"),
}


def explain(error: BaseException, name: str) -> DatabaseError | None:
    """The error above that an engine's error stands for; None when it is about the statement instead.

    ``name`` is how the database is called in the message.
    """
    origin = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(origin, "sqlite_errorcode", None)
    if isinstance(origin, sqlite3.OperationalError) and str(origin).startswith("Could not decode to UTF-8"):
        return DatabaseUnreadableError(f"{name} is damaged: a text in it cannot be read")
    if not isinstance(origin, sqlite3.Error) or not isinstance(code, int):
        return None
    known = _CLASSES.get(code & 0xFF)  # extended codes keep the primary one in the low byte
    if known is None:
        return None
    kind, text = known
    return kind(f"{name} {text}")


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn the engine errors of a block that concern the database as a whole into our own."""
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        known = explain(error, name)
        if known is None:
            raise
        raise known from error
