"""The metadata database: snapshots to read from, one transaction at a time to write with."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hoglab.storage.database import person_search, row_digests, tables
from hoglab.storage.database.changes import ChangeFeed, Topic, bump, check_topic
from hoglab.storage.database.errors import UnsupportedDatabaseError, explained
from hoglab.storage.database.migrations import migrate
from hoglab.storage.database.sqlite import SqliteConnections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection, CursorResult, Executable, MetaData

    from hoglab.storage.database.durability import Rebuildable


SPARE_PAGES = 2_048
"""Free pages that a file may have: they are used again."""
GIVEN_BACK_PAGES = 4_096
"""Pages that are given back at once: a writer has to wait so long."""


class Transaction:
    """An open write transaction: everything done through it is committed together, or not at all."""

    def __init__(self, connection: Connection, *, feed: bool) -> None:
        self.connection = connection
        self._feed = feed
        self._changed: dict[tuple[str, int], set[str] | None] = {}

    def execute(self, statement: Executable, parameters: Any = None) -> CursorResult[Any]:
        """The same as ``connection.execute``."""
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
        """The ids of what changed of a topic, None when that is not known."""
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

    def __init__(self, connections: SqliteConnections, metadata: MetaData) -> None:
        self._connections = connections
        self._feed = tables.change_version.name in metadata.tables
        self.changes = ChangeFeed()
        self._companion = _Companion()
        if self._feed:
            self.refresh_changes()

    @classmethod
    def open(cls, url_or_path: str | Path, metadata: MetaData = tables.metadata) -> Database:
        """Open (creating it when it is missing) and bring the schema up to date.

        ``url_or_path`` is a file, or an address such as ``sqlite:///hoglab.db``. ``metadata`` says which
        of our schemas it holds. Raises `SchemaTooNewError`, `DatabaseUnreadableError`,
        `DatabaseBusyError` and, for an address of another engine, `UnsupportedDatabaseError`.
        """
        connections = SqliteConnections(_sqlite_path(url_or_path), metadata)
        try:
            with explained(connections.name):
                migrate(connections, metadata)
                with connections.write() as connection:
                    person_search.make(connection)
                    row_digests.make(connection)
                connections.keep_digests()
                return cls(connections, metadata)
        except BaseException:
            connections.dispose()
            raise

    @contextmanager
    def read(self, *, settled: bool = True) -> Iterator[Connection]:
        """A connection that sees one unchanging state for the whole block and refuses to write.

        The block ends only when all that it may have seen is on disk, so that no answer tells what a power cut can
        still undo. ``settled=False``: it does not wait, for what is asked at every request and promises nothing.
        """
        with explained(self._connections.name), self._connections.read() as connection:
            yield connection
        if settled:
            self._connections.sync.settle()

    @contextmanager
    def write(self, *, rebuildable: Rebuildable | None = None) -> Iterator[Transaction]:
        """A transaction: committed and on disk at the end of the block, rolled back when the block raises.

        Blocks that end close to each other share one sync of the disk. What is named ``rebuildable`` does not wait
        for it: a power cut may undo it, the end of the process cannot. Raises `DatabaseBusyError`,
        `DatabaseFullError`, `DatabaseNotDurableError`, and `NestedWriteError` when this thread is inside a write
        block already.
        """
        with explained(self._connections.name):
            with self._connections.write(rebuildable=rebuildable) as connection:
                transaction = Transaction(connection, feed=self._feed)
                yield transaction
                companion = self._companion.write
                if companion is not None:
                    companion(transaction)
                bumped = transaction.bump_versions()
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
        """For health checks: raises the errors of reading, and `DatabaseNotDurableError`."""
        self._connections.sync.check()
        with self.read(settled=False) as connection:
            connection.exec_driver_sql("SELECT 1 FROM alembic_version").first()

    def quick_check(self) -> str | None:
        """Look the structure of the file through; what is wrong with it, None for nothing. Raises `DatabaseError`."""
        with self.read(settled=False) as connection:
            problem = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        return None if problem == "ok" else str(problem).replace("\n", " ")

    def damaged_tables(self) -> list[str]:
        """The tables with rows that are not what was written. Raises `DatabaseError`."""
        with self.read(settled=False) as connection:
            return row_digests.damaged(connection)

    def accept_rows(self) -> None:
        """Take what is in the tables for what was written."""
        with self.write() as tx:
            row_digests.make(tx.connection, anew=True)

    def refresh_changes(self) -> int:
        """Learn of changes that other processes made, and notify of them; returns how many there were.

        Cheap; meant to be called about once a second where more than one process may write.
        """
        with self.read() as connection:
            return self.changes.refresh(connection)

    def purge(self, *, rewrite: bool = False) -> None:
        """Have the bytes of what was deleted leave the files.

        ``rewrite``: also where the file is not overwritten with each deletion. Raises `DatabaseBusyError`: to be called
        again.
        """
        with explained(self._connections.name):
            self._connections.purge(rewrite=rewrite)

    def give_back(self) -> None:
        """Give space that became free back to the disk, a part at a time.

        All of the file is written anew once when it cannot do that and is mostly free.
        """
        with explained(self._connections.name):
            free, pages = self._connections.free_pages()
            if free < SPARE_PAGES:
                return
            self._connections.give_back(min(free - SPARE_PAGES // 2, GIVEN_BACK_PAGES))
            if self._connections.free_pages()[0] >= free and free > pages // 2:
                self._connections.purge(rewrite=True)

    def dispose(self) -> None:
        """Close every connection. A database is not used afterwards."""
        self._connections.dispose()


def _sqlite_path(url_or_path: str | Path) -> Path:
    text = str(url_or_path)
    scheme, separator, rest = text.partition(":///")
    if separator and scheme == "sqlite":
        return Path(rest)
    if "://" in text:
        raise UnsupportedDatabaseError(
            f"{text.split(':', maxsplit=1)[0]} databases are not supported by this version"
        )
    return Path(text)
