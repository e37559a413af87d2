"""An open DuckDB file: one connection for the writer, cursors for readers, and what its errors mean."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import duckdb

from hoglab.storage.database.errors import DISK_ADVICE
from hoglab.storage.event_store import (
    DamagedCacheError,
    EventStoreUnavailableError,
    QueryCancelledError,
    QueryError,
    QueryMemoryError,
    QueryTimeoutError,
)
from hoglab.storage.event_store.aggregate_cache_file import SCHEMA as CACHE_SCHEMA
from hoglab.storage.event_store.aggregate_cache_file import AggregateCacheFile
from hoglab.storage.event_store.rows import SCHEMA, SCHEMA_VERSION, UPGRADES
from hoglab.storage.table_files import confine

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence
    from pathlib import Path

    from hoglab.storage.event_log import SequenceNumber
    from hoglab.storage.event_store.deadlines import QueryDeadlines

CLOSE_PATIENCE_S = 5.0
"""Time for which `DuckDbFile.close` waits for interrupted queries to end."""

HEADER_BYTES = 3 * 4096
"""Size of the header before the blocks of a file."""

IDLE_CURSORS = 8
"""Cursors kept for the next readers."""

_NO_ROOM = os.strerror(errno.ENOSPC)
_BLOCKS = (
    "SELECT block_size, used_blocks FROM pragma_database_size() WHERE database_name = current_database()"
)
_TABLES = "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()"


class Interruptible(Protocol):
    """Something whose statement can be ended from another thread."""

    def interrupt(self) -> None: ...


class DuckDbFile:
    """Broken for good after an error that the engine calls fatal: close it and open another."""

    def __init__(
        self,
        path: Path,
        config: Mapping[str, Any],
        *,
        max_spill_bytes: int,
        readable: Sequence[Path] = (),
        cache_path: Path | None = None,
    ) -> None:
        """Open the file; queries may read ``readable`` directories and nothing else.

        ``cache_path`` is the file of the aggregate cache. Raises `EventStoreUnavailableError`.
        """
        self._path = path
        is_whole = path.exists() and not path.with_name(f"{path.name}.wal").exists()
        try:
            self.connection = duckdb.connect(str(path), config=dict(config))
        except duckdb.Error as error:
            raise EventStoreUnavailableError(_why_not_opened(path, error)) from error
        if is_whole:
            try:
                self._check_length()
            except BaseException:
                self.connection.close()
                raise
        # Not heeded in the configuration.
        self.connection.execute(f"SET max_temp_directory_size = '{max_spill_bytes // 1024}KiB'")
        # Before other files are forbidden.
        self.cache = None if cache_path is None else AggregateCacheFile.attached(self.connection, cache_path)
        confine(self.connection, readable)
        self.broken = False
        self.damage: str | None = None  # what could not be read; known when somebody tried to
        self._closed = False
        self._idle: list[Any] = []
        self._active: set[Any] = set()
        self.streams: set[Interruptible] = set()
        """Readers that may see an old state of the file for long."""
        self._changed = threading.Condition()

    def load(self) -> tuple[SequenceNumber, int]:
        """Create the tables in a new file, or upgrade them, and return the log position and the next ``seq``.

        Raises `EventStoreUnavailableError` for a file of a newer program.
        """
        try:
            tables = self.connection.execute(_TABLES).fetchall()
            if ("store_state",) not in tables:
                self.connection.execute(f"BEGIN; {SCHEMA}")
                self.connection.execute("INSERT INTO store_state VALUES ($1, 0, 1)", [SCHEMA_VERSION])
                self.connection.execute("COMMIT")
            [(version, position, next_seq)] = self.connection.execute("FROM store_state").fetchall()
            for older in range(version, SCHEMA_VERSION):
                self.connection.execute(f"BEGIN; {UPGRADES[older]}")
                self.connection.execute("UPDATE store_state SET schema_version = $1", [older + 1])
                self.connection.execute("COMMIT")
        except duckdb.Error as error:
            self.close()
            raise EventStoreUnavailableError(f"{self._path}: {first_line(error)}") from error
        if version > SCHEMA_VERSION:
            self.close()
            raise EventStoreUnavailableError(
                f"{self._path} has schema version {version}, which is newer than this program knows: "
                "start the version of hoglab that wrote it, or a newer one"
            )
        return position, next_seq

    def identity(self) -> tuple[str, int, int] | None:
        """Return installation id, generation and number of starts; None for a file that has none yet."""
        if ("installation",) not in self.connection.execute(_TABLES).fetchall():
            return None
        # All of it: the connection has nothing else to do while a result is not read to its end.
        rows = self.connection.execute("FROM installation").fetchall()
        return (str(rows[0][0]), int(rows[0][1]), int(rows[0][2])) if rows else None

    def set_identity(self, installation_id: str, generation: int, starts: int) -> None:
        """Write them, durably."""
        self.connection.execute(
            "BEGIN; CREATE TABLE IF NOT EXISTS installation (id VARCHAR, generation BIGINT, starts BIGINT); "
            "DELETE FROM installation"
        )
        self.connection.execute(
            "INSERT INTO installation VALUES ($1, $2, $3)", [installation_id, generation, starts]
        )
        self.connection.execute("COMMIT")

    def _check_length(self) -> None:
        """Raise `EventStoreUnavailableError` when the file is too short for the blocks that are in use.

        To be called before anything is written: later, some blocks are in memory alone.
        """
        [(block_bytes, used)] = self.connection.execute(_BLOCKS).fetchall()
        missing = HEADER_BYTES + int(block_bytes) * int(used) - self._path.stat().st_size
        if missing > 0:
            raise EventStoreUnavailableError(
                f"{self._path} was cut off: at least {missing} bytes are missing at its end. Restore a backup"
            )

    @contextmanager
    def cursor(self) -> Iterator[Any]:
        """Provide a cursor that nobody else uses. Raises `EventStoreUnavailableError`."""
        with self._changed:
            if self._closed or self.broken:
                raise EventStoreUnavailableError("the event store is closed")
            cursor = self._idle.pop() if self._idle else self.connection.cursor()
            self._active.add(cursor)
        try:
            yield cursor
        finally:
            self._give_back(cursor)

    def _give_back(self, cursor: Any) -> None:
        with self._changed:
            self._active.discard(cursor)
            if self._closed or len(self._idle) >= IDLE_CURSORS:
                cursor.close()
            else:
                self._idle.append(cursor)
            self._changed.notify_all()

    def interrupt_streams(self) -> None:
        """End what is being streamed."""
        for stream in tuple(self.streams):
            stream.interrupt()

    def roll_back(self) -> None:
        """End a transaction that failed, if the engine has not done so itself."""
        with contextlib.suppress(duckdb.Error):
            self.connection.execute("ROLLBACK")

    def checkpoints_due(self, at_least: int) -> Iterator[str]:
        """Yield the statements that write changes into the files that have at least ``at_least`` bytes of them."""
        if self._wal_bytes() >= at_least:
            yield "CHECKPOINT"
        if self.cache is not None and self.cache.unwritten_bytes(self.connection) >= at_least:
            yield f"CHECKPOINT {CACHE_SCHEMA}"

    def _wal_bytes(self) -> int:
        try:
            return self._path.with_name(self._path.name + ".wal").stat().st_size
        except FileNotFoundError:
            return 0

    def explain(self, error: duckdb.Error) -> Exception:
        """Return our exception for one of the engine's."""
        if isinstance(error, duckdb.FatalException | duckdb.InternalException):
            self.broken = True  # after either the engine answers nothing any more
        if self.cache is not None and self.cache.is_source_of(str(error)):
            return DamagedCacheError(f"aggregate-cache.duckdb is damaged: {first_line(error)}")
        if _is_damage(error):
            self.damage = first_line(error)
            return EventStoreUnavailableError(f"{self._path} is damaged: {self.damage}")
        if isinstance(error, duckdb.FatalException | duckdb.IOException | duckdb.ConnectionException):
            advice = f"; {DISK_ADVICE}" if _NO_ROOM in str(error) else ""
            return EventStoreUnavailableError(f"{self._path}: {first_line(error)}{advice}")
        if isinstance(error, duckdb.InterruptException) and self._closed:
            return EventStoreUnavailableError("the event store is closed")
        if isinstance(error, duckdb.OutOfMemoryException):
            return QueryMemoryError(first_line(error))
        return QueryError(first_line(error))

    def close(self) -> None:
        """Interrupt queries, wait for their readers for a while, and close the file."""
        with self._changed:
            self._closed = True
            for cursor in self._active:
                cursor.interrupt()
            self._changed.wait_for(lambda: not self._active, CLOSE_PATIENCE_S)
            for cursor in self._idle:
                cursor.close()
            self._idle.clear()
        self.connection.close()


class DuckDbReader:
    """A cursor for one thread: see `Reader`. Moments come and go as naive UTC; aware parameters are converted."""

    def __init__(self, file: DuckDbFile, cursor: Any, deadlines: QueryDeadlines, timeout_s: float) -> None:
        self._file = file
        self._cursor = cursor
        self._deadlines = deadlines
        self._timeout_s = timeout_s
        self._interrupted = False

    def execute(
        self, sql: str, parameters: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> list[tuple[Any, ...]]:
        """See `Reader.execute`."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        with self._deadlines.within(limit_s, self._cursor.interrupt) as deadline:
            try:
                rows: list[tuple[Any, ...]] = self._begun(sql, parameters).fetchall()
            except duckdb.Error as error:
                if isinstance(error, duckdb.InterruptException) and deadline.expired:
                    raise QueryTimeoutError(f"the query took longer than {limit_s:g} s") from error
                raise self._explained(error) from error
        return rows

    def stream(
        self, sql: str, parameters: Mapping[str, Any] | None = None, *, rows: int = 256
    ) -> Generator[list[tuple[Any, ...]]]:
        """See `Reader.stream`."""
        left = True
        try:
            self._file.streams.add(self)
            self._begun(sql, parameters)
            while batch := self._cursor.fetchmany(rows):
                yield batch
            left = False
        except duckdb.Error as error:
            left = False
            raise self._explained(error) from error
        finally:
            self._file.streams.discard(self)
            if left:  # the next statement of a cursor ends the one before, whose snapshot would stay
                with contextlib.suppress(duckdb.Error):
                    self._cursor.execute("SELECT 1").fetchall()

    def _begun(self, sql: str, parameters: Mapping[str, Any] | None) -> Any:
        """Return a statement that runs, with those of the values that it names: the engine refuses others."""
        if not parameters:
            return self._cursor.execute(sql)
        [statement] = self._cursor.extract_statements(sql)
        given = {name: _naive(parameters[name]) for name in statement.named_parameters if name in parameters}
        return self._cursor.execute(statement, given)

    def _explained(self, error: duckdb.Error) -> Exception:
        if isinstance(error, duckdb.InterruptException) and self._interrupted:
            return QueryCancelledError("the query was cancelled")
        return self._file.explain(error)

    def interrupt(self) -> None:
        """See `Reader.interrupt`."""
        self._interrupted = True
        self._cursor.interrupt()

    def columns(self) -> list[str]:
        """Return column names of the last query."""
        return [column[0] for column in self._cursor.description or ()]


def stamp(path: Path, installation_id: str, generation: int, starts: int) -> None:
    """Write an identity into a file that nobody uses. Raises `EventStoreUnavailableError`."""
    file = DuckDbFile(path, {}, max_spill_bytes=0)
    try:
        file.set_identity(installation_id, generation, starts)
    except duckdb.Error as error:
        raise EventStoreUnavailableError(f"{path}: {first_line(error)}") from error
    finally:
        file.close()


def upgrade(path: Path) -> None:
    """Bring the tables of a file that nobody has open up to date. Raises `EventStoreUnavailableError`."""
    file = DuckDbFile(path, {}, max_spill_bytes=0)
    file.load()
    file.close()


def first_line(error: BaseException) -> str:
    """Return the engine's message without excerpts and advice."""
    return str(error).strip().partition("\n")[0]


def _is_damage(error: duckdb.Error) -> bool:
    return isinstance(error, duckdb.SerializationException) or "Corrupt database file" in str(error)


def _why_not_opened(path: Path, error: duckdb.Error) -> str:
    line = first_line(error)
    if "lock on file" in line:
        holder = line.partition("held in ")[2].partition(" (")[2].partition(")")[0]  # "PID 17"
        who = f"process {holder.removeprefix('PID ')}" if holder.startswith("PID ") else "another process"
        return f"{path} is in use by {who}"
    if "replaying WAL" in line:
        return (
            f"{path}.wal is damaged: {line}; `hoglab repair` sets it aside, and the events in it are ingested again "
            "from the event log"
        )
    return f"{path} cannot be opened: {line}"


def _naive(value: Any) -> Any:
    """Return moments as the engine has them: UTC without saying so."""
    if isinstance(value, datetime):
        return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, list | tuple):
        return [_naive(item) for item in value]
    return value
