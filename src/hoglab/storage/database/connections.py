"""Connections that a `Database` needs of an engine, to read and to write with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hoglab.storage.database.errors import UnsupportedDatabaseError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection, MetaData

    from hoglab.storage.database.durability import Rebuildable
    from hoglab.storage.database.sqlite.connections import SqliteConnections


class DatabaseConnections(Protocol):
    """The connections of a process to one database. Used from any thread."""

    name: str
    """Name of the database in messages; without a password."""
    is_shared: bool
    """Whether other servers may write to it, and a read takes the time of a network."""

    @property
    def files(self) -> Sequence[SqliteConnections]:
        """The files that are ours to look after; none where a server does that."""
        ...

    def prepare(self) -> None:
        """Bring the database into the state that the program expects, or wait until somebody else has."""
        ...

    def upgrade(self) -> bool:
        """Bring the schema up to date, and return whether there was anything to do."""
        ...

    def read(self, *, durable: bool) -> AbstractContextManager[Connection]:
        """Return a read-only transaction that sees one state.

        ``durable``: the block ends when what it saw is durable.
        """
        ...

    def write(self, *, rebuildable: Rebuildable | None, shared: bool) -> AbstractContextManager[Connection]:
        """Return a transaction while nobody else writes, here or elsewhere; durable at its end unless ``rebuildable``.

        ``shared``: others who write ``shared`` in other processes may do so meanwhile.
        """
        ...

    def announce(self, connection: Connection) -> None:
        """Wake other processes from `await_change` once the transaction of a connection is committed."""
        ...

    def await_change(self, timeout_s: float) -> bool:
        """Wait until another process announced a change, or the time is over.

        False at once where nobody tells of changes, so that one has to look from time to time.
        """
        ...

    def other_sessions(self) -> int:
        """Return the number of connections of others; to be read before any is opened."""
        ...

    def check(self) -> None:
        """Raise `DatabaseNotDurableError` if a sync has failed, for health checks."""
        ...

    def dispose(self) -> None:
        """Close every connection."""
        ...


def open_connections(url_or_path: str | Path, metadata: MetaData) -> DatabaseConnections:
    """Return connections to a file, or to an address (``sqlite:///…``, ``postgresql://…``); nothing is opened yet.

    Raises `UnsupportedDatabaseError`.
    """
    text = str(url_or_path)
    scheme, separator, rest = text.partition("://")
    if scheme in ("postgresql", "postgres") and separator:
        from hoglab.storage.database.postgres import PostgresConnections

        return PostgresConnections(text, metadata)
    if separator and not (scheme == "sqlite" and rest.startswith("/")):
        raise UnsupportedDatabaseError(f"{scheme} databases are not supported by this version")
    from hoglab.storage.database.sqlite import SqliteConnections

    return SqliteConnections(Path(rest[1:] if separator else text), metadata)
