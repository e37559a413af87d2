"""The metadata database: snapshots to read from, one transaction at a time to write with."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from hoglab.storage.database import tables
from hoglab.storage.database.changes import ChangeFeed, Topic, bump, check_topic
from hoglab.storage.database.connections import DatabaseConnections, open_connections
from hoglab.storage.database.durability import Rebuildable
from hoglab.storage.database.errors import DatabaseDamagedError, DatabaseMovedError, explained
from hoglab.storage.database.locks import took_effect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from sqlalchemy import Connection, CursorResult, Executable, MetaData

    from hoglab.storage.database.sqlite.connections import SqliteConnections


_MOVES = {
    "leaving": "is being moved to {0}: run `hoglab migrate-to` again to finish it, or with --cancel to stay",
    "left": "was moved to {0}, which has everything since: start the server with that",
    "arriving": "is not whole: it is being moved here from {0}; run `hoglab migrate-to` again to finish it",
}
"""Texts about a move of the contents, by the step in the installation's row."""


class Transaction:
    """An open write transaction: everything done through it is committed together, or not at all."""

    def __init__(self, connection: Connection, *, feed: bool) -> None:
        self.connection = connection
        self._feed = feed
        self._changed: dict[tuple[str, int], set[str] | None] = {}

    def execute(self, statement: Executable, parameters: Any = None) -> CursorResult[Any]:
        """Execute a statement, and return the result of ``connection.execute``."""
        return self.connection.execute(statement, parameters)

    def changed(self, topic: Topic, project_id: int, item: str | None = None) -> None:
        """Raise the version of a topic in this transaction and tell its listeners after the commit.

        ``item``: the id of the only thing that changed, for caches that need not read the others again.
        """
        if not self._feed:
            raise ValueError("this database keeps no change versions")
        check_topic(topic)
        known = self._changed.setdefault((topic, project_id), set())
        if item is None:
            self._changed[topic, project_id] = None
        elif known is not None:
            known.add(item)

    def changed_items(self, topic: str, project_id: int) -> set[str] | None:
        """Return the ids of what changed of a topic, None when that is not known."""
        return self._changed.get((topic, project_id))

    def bump_versions(self) -> list[tuple[str, int, int]]:
        """Write the raised versions; what it returns is to be published after the commit."""
        return [bump(self.connection, topic, project_id) for topic, project_id in self._changed]


class _Companion(threading.local):
    write: Callable[[Transaction], object] | None = None


class Database:
    """One database for the whole process, used from any thread.

    Readers never wait for the writer: each `read` block sees the state of the last commit before its
    first statement. Writers take turns.
    """

    def __init__(self, connections: DatabaseConnections, metadata: MetaData) -> None:
        self._connections = connections
        self._feed = tables.change_version.name in metadata.tables
        self.changes = ChangeFeed()
        self._companion = _Companion()
        self.damage: str | None = None
        """Damage that the engine met since the database was opened; None while none is known."""
        if self._feed:
            self.refresh_changes()

    @classmethod
    def open(
        cls, url_or_path: str | Path, metadata: MetaData = tables.metadata, *, moving: bool = False
    ) -> Database:
        """Open (creating a file that is missing) when the schema is up to date, which a file is brought to.

        ``url_or_path`` is a file, or an address such as ``sqlite:///hoglab.db`` or ``postgresql://host/name``; a
        database of a server is waited for, until ``hoglab migrate`` has prepared it. ``metadata`` says which of our
        schemas it holds. ``moving``: also when what it holds is not at home there. Raises `SchemaTooNewError`,
        `SchemaTooOldError`, `DatabaseMovedError`, `DatabaseUnreadableError`, `DatabaseUnreachableError`,
        `DatabaseBusyError` and, for an address of another engine, `UnsupportedDatabaseError`.
        """
        connections = open_connections(url_or_path, metadata)
        try:
            with explained(connections.name):
                connections.prepare()
                database = cls(connections, metadata)
                if not moving and metadata is tables.metadata:
                    database.check_at_home()
                return database
        except BaseException:
            connections.dispose()
            raise

    @classmethod
    def upgrade(cls, url_or_path: str | Path, metadata: MetaData = tables.metadata) -> bool:
        """Bring the schema of a database up to date, and return whether there was anything to do.

        A missing database is created. Raises the errors of `open`.
        """
        connections = open_connections(url_or_path, metadata)
        try:
            with explained(connections.name):
                return connections.upgrade()
        finally:
            connections.dispose()

    @classmethod
    def other_sessions(cls, url_or_path: str | Path) -> int:
        """Return the number of connections of others to a database server.

        0 for a file, which is locked by its directory.
        """
        connections = open_connections(url_or_path, tables.metadata)
        try:
            with explained(connections.name):
                return connections.other_sessions()
        finally:
            connections.dispose()

    def check_at_home(self) -> None:
        """Raise `DatabaseMovedError` where another database has, or will have, what is in this one."""
        with self.read(durable=False) as connection:
            move = connection.scalar(sa.select(tables.installation.c.move))
        if move is not None:
            raise DatabaseMovedError(f"{self.name} {_MOVES[move['step']].format(move['other'])}")

    @property
    def name(self) -> str:
        """Name of the database in messages; without a password."""
        return self._connections.name

    @property
    def files(self) -> Sequence[DatabaseFile]:
        """The files that it is in; none where a server has them."""
        return [DatabaseFile(self, file) for file in self._connections.files]

    @property
    def is_shared(self) -> bool:
        """Whether other servers may write to it, and a read takes the time of a network."""
        return self._connections.is_shared

    @contextmanager
    def read(self, *, durable: bool = True) -> Iterator[Connection]:
        """Provide a connection that sees one unchanging state for the whole block and refuses to write.

        The block ends only when all that it may have seen is on disk, so that no answer tells what a power cut can
        still undo. ``durable=False``: it does not wait, for what is asked at every request and promises nothing.
        """
        with self.noting_damage(), self._connections.read(durable=durable) as connection:
            yield connection

    @contextmanager
    def noting_damage(self) -> Iterator[None]:
        """Explain the errors of a block, and remember damage that the engine met in it."""
        try:
            with explained(self._connections.name):
                yield
        except DatabaseDamagedError as error:
            self.damage = str(error)
            raise

    @contextmanager
    def write(self, *, rebuildable: Rebuildable | None = None, shared: bool = False) -> Iterator[Transaction]:
        """Provide a transaction: committed and on disk at the end of the block, rolled back when the block raises.

        Blocks that end close to each other share one sync of the disk. What is named ``rebuildable`` does not wait
        for it: a power cut may undo it, the end of the process cannot. A ``shared`` block waits for those that are not,
        and keeps them waiting, but may run beside shared ones of other processes: it locks the rows that it changes,
        and is ready for constraints that others have filled. Raises `DatabaseBusyError`, `DatabaseFullError`,
        `DatabaseNotDurableError`, and `NestedWriteError` when this thread is inside a write block already.
        """
        with self.noting_damage():
            with self._connections.write(rebuildable=rebuildable, shared=shared) as connection:
                transaction = Transaction(connection, feed=self._feed)
                yield transaction
                companion = self._companion.write
                if companion is not None:
                    companion(transaction)
                bumped = transaction.bump_versions()
                if bumped:
                    self._connections.announce(connection)
            took_effect()
            self._companion.write = None
            for topic, project_id, version in bumped:
                self.changes.remember(
                    topic, project_id, version, transaction.changed_items(topic, project_id)
                )
            self.changes.publish(bumped)

    @contextmanager
    def accompanied(self, write: Callable[[Transaction], object]) -> Iterator[None]:
        """Let ``write`` add to the first transaction that this thread commits inside the block.

        What it adds stands exactly when something else was changed. It is called again for the next transaction
        when one is rolled back.
        """
        self._companion.write = write
        try:
            yield
        finally:
            self._companion.write = None

    def check(self) -> None:
        """Raise the errors of reading, or `DatabaseNotDurableError`, for health checks."""
        self._connections.check()
        with self.read(durable=False) as connection:
            connection.exec_driver_sql("SELECT 1 FROM alembic_version").first()

    def refresh_changes(self) -> int:
        """Read which changes other processes made, notify of them, and return how many there were.

        Cheap; meant to be called about once a second where more than one process may write.
        """
        with self.read() as connection:
            return self.changes.refresh(connection)

    def await_change(self, timeout_s: float) -> bool:
        """Wait until another process tells of a change, or the time is over; to be followed by `refresh_changes`.

        False at once where nobody tells. Raises `DatabaseError`.
        """
        with explained(self._connections.name):
            return self._connections.await_change(timeout_s)

    def dispose(self) -> None:
        """Close every connection. A database is not used afterwards."""
        self._connections.dispose()


class DatabaseFile:
    """The file of an open database, for upkeep, checks and repairs; a server looks after its disks by itself.

    Methods raise `DatabaseError`.
    """

    def __init__(self, database: Database, connections: SqliteConnections) -> None:
        self._database = database
        self._connections = connections

    def quick_check(self) -> str | None:
        """Check the structure of the file, and return what is wrong with it; None: nothing."""
        with self._database.noting_damage():
            problem = self._connections.structure_problem()
        if problem is not None:
            self._database.damage = f"{self._database.name} is damaged: {problem}"
        return problem

    def damaged_tables(self) -> list[str]:
        """Return the tables with rows that are not what was written."""
        with explained(self._database.name):
            return self._connections.damaged_tables()

    def accept_rows(self) -> None:
        """Take what is in the tables for what was written."""
        with explained(self._database.name):
            self._connections.accept_rows()

    def search_is_damaged(self) -> bool:
        """Return whether the index for searching persons lacks somebody. May read all of it."""
        with explained(self._database.name):
            return self._connections.search_is_damaged()

    def repair_search(self) -> bool:
        """Rebuild a damaged index for searching persons, and return whether it was damaged."""
        if not self.search_is_damaged():
            return False
        with self._database.write(rebuildable=Rebuildable.PERSON_SEARCH) as tx:
            self._connections.reset_search(tx.connection)
        return True

    def purge(self, *, rewrite: bool = False) -> None:
        """Remove the bytes of what was deleted from the files.

        ``rewrite``: also where the file is not overwritten with each deletion. Raises `DatabaseBusyError`: to be called
        again.
        """
        with explained(self._database.name):
            self._connections.purge(rewrite=rewrite)

    def give_back(self) -> None:
        """Give space that became free back to the disk, a part at a time."""
        with explained(self._database.name):
            self._connections.give_back()
