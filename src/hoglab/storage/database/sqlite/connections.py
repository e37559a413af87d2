"""Connections to a SQLite file: a pool of readers and one writer."""

from __future__ import annotations

import sqlite3
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, MetaData, create_engine, event
from sqlalchemy.pool import QueuePool

from hoglab.storage.database.copies import copy_before_migration
from hoglab.storage.database.durability import Rebuildable, commit_sync
from hoglab.storage.database.errors import DatabaseBusyError, DatabaseUnreadableError, explain
from hoglab.storage.database.locks import write_lock
from hoglab.storage.database.migrations import migrate
from hoglab.storage.database.sqlite import person_search, row_digests

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUSY_TIMEOUT_S = 5.0
"""Time for which a statement waits for a lock that another process holds."""

MMAP_BYTES = 256 * 1024 * 1024
"""Size of the part of the file that is read through a memory map instead of ``read`` calls."""

WAL_KEPT_BYTES = 64 * 1024 * 1024
"""A write-ahead log that grew beyond this is cut back to it after a checkpoint."""

WRITER_CACHE_KIB = 32 * 1024
"""Pages that the writer keeps in memory: a batch of events touches indexes all over."""

SPARE_PAGES = 2_048
"""Free pages that a file may have: they are used again."""
GIVEN_BACK_PAGES = 4_096
"""Pages that are given back at once: a writer has to wait so long."""

SWITCH_RETRY_S = 0.01
"""Pause between attempts to switch a file to a write-ahead log while another process writes to it."""
IDLE_READERS = 8
MAX_READERS = 72
"""Read connections kept open, and open at most (more than the threads of a server, so that none waits)."""


def connect(
    path: Path,
    metadata: MetaData,
    *,
    read_only: bool = False,
    rebuildable: Rebuildable | None = None,
    synced_by_caller: bool = False,
) -> sqlite3.Connection:
    """Return a plain connection with the settings that every connection of ours has.

    It may be used by any thread, by one at a time, and begins no transactions of its own accord.
    Each commit waits for the disk (``synchronous=FULL``), unless the caller sees to that (``synced_by_caller``), or
    what is written is ``rebuildable``: the latest commits can be lost when the power fails, though never when the
    process does. ``read_only`` refuses writes.
    A file that does not exist is created with the settings that ``metadata`` names.
    Raises `DatabaseUnreadableError`.
    """
    waits = not (read_only or synced_by_caller or rebuildable)
    try:
        connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        try:
            if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
                for name, value in metadata.info.get("sqlite_file", {}).items():
                    connection.execute(f"PRAGMA {name}={value}")
            _write_ahead(connection)
            connection.execute(f"PRAGMA synchronous={'FULL' if waits else 'NORMAL'}")
            connection.execute(f"PRAGMA mmap_size={MMAP_BYTES}")
            connection.execute(f"PRAGMA journal_size_limit={WAL_KEPT_BYTES}")
            # Deleted rows may be of erased persons, expired, or secret. It takes a second for a million events.
            connection.execute("PRAGMA secure_delete=ON")
            for name, value in metadata.info.get("sqlite_connection", {}).items():
                connection.execute(f"PRAGMA {name}={value}")
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute("PRAGMA temp_store=MEMORY")
            connection.execute(
                "PRAGMA query_only=ON" if read_only else f"PRAGMA cache_size=-{WRITER_CACHE_KIB}"
            )
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise explain(error, str(path)) or DatabaseUnreadableError(f"{path}: {error}") from error
    return connection


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch a file to a write-ahead log, if it has none yet.

    SQLite does not wait for another process that is just doing the same: it fails at once, whatever the busy timeout.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        else:
            return
        time.sleep(SWITCH_RETRY_S)


class SqliteConnections:
    """Readers work in parallel on a stable snapshot each; writers take turns."""

    is_shared = False

    def __init__(self, path: Path, metadata: MetaData) -> None:
        self.name = str(path)
        self._path = path
        self._metadata = metadata
        self._keeps_digests = False
        self._lock = write_lock(path)
        self.sync = commit_sync(path)
        self._readers = self._engine(read_only=True, begin="BEGIN", idle=IDLE_READERS, most=MAX_READERS)
        self._writer = self._engine(read_only=False, begin="BEGIN IMMEDIATE", idle=1, most=1)

    @property
    def files(self) -> tuple[SqliteConnections, ...]:
        """The file itself."""
        return (self,)

    def _engine(self, *, read_only: bool, begin: str, idle: int, most: int) -> Engine:
        def opened() -> sqlite3.Connection:
            connection = connect(self._path, self._metadata, read_only=read_only, synced_by_caller=True)
            row_digests.provide(connection)
            if self._keeps_digests and not read_only:
                row_digests.keep_up(connection)
            return connection

        engine = create_engine(
            f"sqlite:///{self._path}",
            creator=opened,
            poolclass=QueuePool,
            pool_size=idle,
            max_overflow=most - idle,
        )
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
        return engine

    def prepare(self) -> None:
        """Bring the schema up to date, and create what is kept beside it."""
        self.upgrade()
        with self.write() as connection:
            person_search.make(connection)
            row_digests.make(connection)
        with self._lock.turn():  # from now on writers keep the digests of tables up to date
            self._writer.dispose()
            self._keeps_digests = True

    def upgrade(self) -> bool:
        return migrate(self, self._metadata)

    @contextmanager
    def read(self, *, durable: bool = True) -> Iterator[Connection]:
        with self._readers.connect() as connection:
            yield connection
        if durable:
            self.sync.settle()

    @contextmanager
    def write(self, *, rebuildable: Rebuildable | None = None, shared: bool = False) -> Iterator[Connection]:
        """Provide a transaction that is on disk when the block ends, unless it is ``rebuildable``. None is shared."""
        del shared
        number = None
        with self._lock.turn(), self._writer.connect() as connection:
            try:
                with connection.begin():
                    yield connection
                    if rebuildable is None:
                        number = self.sync.begin()
            finally:
                if number is not None:
                    self.sync.committed(number)
        if number is not None:
            self.sync.wait(number)

    @contextmanager
    def migrate(self) -> Iterator[Connection]:
        """Provide a write transaction that may rebuild tables: foreign keys are checked only at its end."""
        with self._lock.turn(), self._writer.connect() as connection:
            number = self.sync.begin()
            raw = connection.connection
            raw.execute("PRAGMA foreign_keys=OFF")
            try:
                with connection.begin():
                    yield connection
                    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
                    if broken is not None:
                        raise DatabaseUnreadableError(
                            f"{self.name} refers to rows that do not exist: {tuple(broken)}"
                        )
            finally:
                raw.execute("PRAGMA foreign_keys=ON")
                self.sync.committed(number)
        self.sync.wait(number)

    def before_migration(self, revision: str) -> None:
        """Copy the file before it gets a newer schema than that of a revision."""
        copy_before_migration(self._path, revision)

    def announce(self, connection: Connection) -> None:
        """Do nothing: commands that share the file look from time to time."""

    def await_change(self, timeout_s: float) -> bool:  # noqa: ARG002
        return False

    def other_sessions(self) -> int:
        return 0

    def check(self) -> None:
        self.sync.check()

    def structure_problem(self) -> str | None:
        """Return the problem of the structure of the file, None without one."""
        with self.read(durable=False) as connection:
            problem = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        return None if problem == "ok" else str(problem).replace("\n", " ")

    def damaged_tables(self) -> list[str]:
        """Return the tables with rows that are not what was written."""
        with self.read(durable=False) as connection:
            return row_digests.damaged(connection)

    def accept_rows(self) -> None:
        """Take what is in the tables for what was written."""
        with self.write() as connection:
            row_digests.make(connection, force=True)

    def search_is_damaged(self) -> bool:
        """Return whether the index for searching persons lacks somebody. May read all of it."""
        with self.read(durable=False) as connection:
            plain = connection.connection.driver_connection
            return isinstance(plain, sqlite3.Connection) and person_search.is_damaged(plain)

    def reset_search(self, connection: Connection) -> None:
        """Empty the index for searching persons, in a transaction; it is filled again afterwards."""
        person_search.reset(connection)

    def purge(self, *, rewrite: bool) -> None:
        """Remove deleted bytes from the files: from free space, where that is rewritten, and from the write-ahead log.

        Raises `DatabaseBusyError` when somebody reads what was there before.
        """
        with self._lock.turn(), self._writer.connect() as connection:
            raw = connection.connection
            if rewrite:
                raw.execute("PRAGMA auto_vacuum=INCREMENTAL")
                raw.execute("VACUUM")
            busy, _, _ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise DatabaseBusyError(f"{self.name} is being read: what was deleted is still in its log")

    def give_back(self) -> None:
        """Give free pages at the end of the file back to the disk, a part at a time, and the write-ahead log.

        Where somebody reads, the log stays until the next call. The whole file is rewritten once when it cannot give
        pages back and is mostly free.
        """
        self._give_back_pages()
        with suppress(DatabaseBusyError):
            self.purge(rewrite=False)

    def _give_back_pages(self) -> None:
        free, pages = self._free_pages()
        if free < SPARE_PAGES:
            return
        most = min(free - SPARE_PAGES // 2, GIVEN_BACK_PAGES)
        with self._lock.turn(), self._writer.connect() as connection:
            connection.connection.execute(f"PRAGMA incremental_vacuum({most})").fetchall()
        if self._free_pages()[0] >= free and free > pages // 2:
            self.purge(rewrite=True)

    def _free_pages(self) -> tuple[int, int]:
        """Return the number of free pages of the file, and of all."""
        with self._readers.connect() as connection:
            free = connection.exec_driver_sql("PRAGMA freelist_count").scalar_one()
            return free, connection.exec_driver_sql("PRAGMA page_count").scalar_one()

    def dispose(self) -> None:
        self._readers.dispose()
        self._writer.dispose()
