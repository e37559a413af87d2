"""Errors of a database as a whole. Every message is one line, fit to be shown to an operator."""

from __future__ import annotations

import errno
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterator


class DatabaseError(Exception):
    """Base of the errors below."""


class DatabaseBusyError(DatabaseError):
    """Another writer kept the database locked for longer than the waiting time; trying again is sensible."""


class DatabaseConflictError(DatabaseBusyError):
    """Transactions waited for each other, and this one was undone for the sake of the others; it may be tried again."""


class DatabaseFullError(DatabaseError):
    """The disk below the database is full; what was being written has been rolled back."""


class DatabaseUnreadableError(DatabaseError):
    """The file cannot be opened, is damaged, or is no database."""


class DatabaseDamagedError(DatabaseUnreadableError):
    """The engine met damage in the file: pages that cannot be what was written."""


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


class SchemaTooOldError(DatabaseError):
    """The database of a server was not prepared for this program."""

    def __init__(self, name: str, revision: str | None) -> None:
        state = "has no tables" if revision is None else f"has schema revision {revision}"
        super().__init__(f"{name} {state}, which is older than this program needs: run `hoglab migrate`")
        self.revision = revision


class DatabaseMovedError(DatabaseError):
    """Error for a database whose contents are being moved to another one, or were: see `hoglab.storage.moving`."""


class DatabaseUnreachableError(DatabaseError):
    """The server of the database does not answer, or is not ready; trying again is sensible."""


class UnsupportedDatabaseError(DatabaseError):
    """No engine is built in for this kind of database address."""


class NestedWriteError(RuntimeError):
    """A thread opened a second write transaction inside its first one: pass the transaction along instead."""


DISK_ADVICE = (
    "make room, move the data directory to a larger disk (HOGLAB_DATA), or keep events for fewer days "
    "(HOGLAB_EVENT_RETENTION_DAYS)"
)
"""Advice for the operator of a server whose own disk is full."""

_BUSY = "is kept busy by others"
_UNREACHABLE = "cannot be reached"
_BY_STATE: dict[str, tuple[type[DatabaseError], str]] = {
    "08": (DatabaseUnreachableError, _UNREACHABLE),
    "28": (DatabaseUnreadableError, "refuses the user or the password"),
    "3D": (DatabaseUnreadableError, "does not exist"),
    "53": (DatabaseBusyError, "has no room for more connections or memory"),
    "53100": (DatabaseFullError, "cannot grow: the disk is full"),
    "57P": (DatabaseUnreachableError, "is being shut down or restarted"),
    "57014": (DatabaseBusyError, "took too long to answer"),
    "25006": (DatabaseUnreadableError, "may not be written: by a reader, or by nobody where it is a standby"),
    "25P03": (DatabaseBusyError, "ended a transaction that did nothing for long"),
    "40": (DatabaseConflictError, _BUSY),
    "42501": (DatabaseUnreadableError, "may not be accessed"),
    "55P03": (DatabaseBusyError, _BUSY),
    "58": (DatabaseUnreadableError, "cannot be read or written"),
    "XX001": (DatabaseDamagedError, "is damaged"),
    "XX002": (DatabaseDamagedError, "is damaged"),
}
"""Errors by the beginning of the SQLSTATE that PostgreSQL reports; the longest match counts."""

_MALFORMED = b"malformed database schema"
"""Beginning of a message of SQLite that quotes the schema; its driver fails on it where that is no text any more."""

_CLASSES: dict[int, tuple[type[DatabaseError], str]] = {
    sqlite3.SQLITE_BUSY: (DatabaseBusyError, "is locked by another writer"),
    sqlite3.SQLITE_LOCKED: (DatabaseBusyError, "is locked by another writer"),
    sqlite3.SQLITE_FULL: (DatabaseFullError, f"cannot grow: the disk is full; {DISK_ADVICE}"),
    sqlite3.SQLITE_CANTOPEN: (DatabaseUnreadableError, "cannot be opened"),
    sqlite3.SQLITE_PERM: (DatabaseUnreadableError, "may not be accessed"),
    sqlite3.SQLITE_READONLY: (DatabaseUnreadableError, "may not be written"),
    sqlite3.SQLITE_CORRUPT: (DatabaseDamagedError, "is damaged"),
    sqlite3.SQLITE_NOTADB: (DatabaseDamagedError, "is not a database"),
    sqlite3.SQLITE_IOERR: (DatabaseUnreadableError, "cannot be read or written"),
}


def explain(error: BaseException, name: str) -> DatabaseError | None:
    """Return the error above that an engine's error stands for; None when it is about the statement instead.

    ``name`` is how the database is called in the message.
    """
    if isinstance(error, PoolTimeoutError):
        return DatabaseBusyError(f"{name} {_BUSY}: no connection became free")
    if isinstance(error, UnicodeDecodeError) and error.object.startswith(_MALFORMED):
        return DatabaseDamagedError(f"{name} is damaged: its schema cannot be read")
    origin = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(origin, OSError) and origin.errno == errno.ENOSPC:
        return DatabaseFullError(f"{name} cannot grow: the disk is full; {DISK_ADVICE}")
    if origin is not None and hasattr(origin, "sqlstate"):
        return _of_state(origin, name)
    code = getattr(origin, "sqlite_errorcode", None)
    if isinstance(origin, sqlite3.OperationalError) and str(origin).startswith("Could not decode to UTF-8"):
        return DatabaseUnreadableError(f"{name} is damaged: a text in it cannot be read")
    if not isinstance(origin, sqlite3.Error) or not isinstance(code, int):
        return None
    if code == sqlite3.SQLITE_CORRUPT_VTAB:
        return DatabaseUnreadableError(f"{name}: the index for searching persons is damaged")
    known = _CLASSES.get(code & 0xFF)  # extended codes keep the primary one in the low byte
    if known is None:
        return None
    kind, text = known
    return kind(f"{name} {text}")


def _of_state(error: BaseException, name: str) -> DatabaseError | None:
    """Return the error that an error of PostgreSQL's driver stands for."""
    state = error.sqlstate  # type: ignore[attr-defined]
    if state is None:  # the server said nothing
        if not {"OperationalError", "InterfaceError"} & {
            ancestor.__name__ for ancestor in type(error).__mro__
        }:
            return None
        reason = str(error).strip().splitlines()
        return DatabaseUnreachableError(f"{name} {_UNREACHABLE}: {reason[-1] if reason else 'no answer'}")
    known = next((_BY_STATE[state[:length]] for length in (5, 3, 2) if state[:length] in _BY_STATE), None)
    return None if known is None else known[0](f"{name} {known[1]}")


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn the engine errors of a block that concern the database as a whole into our own."""
    try:
        yield
    except Exception as error:
        known = explain(error, name)
        if known is None:
            raise
        raise known from error
