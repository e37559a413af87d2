"""The event store in a DuckDB file, inside this process.

Only one process can open the file. The ingestion thread writes; every reader has a cursor of its own and
sees the last commit. The settings are locked after opening and the engine may touch no other file, but those of
tables beside the events where there is a directory of them: a query can neither read the disk nor change limits.
"""

from __future__ import annotations

import contextlib
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
import structlog
from msgspec.structs import replace

from hoglab.storage.database.errors import DISK_ADVICE
from hoglab.storage.event_log import SequenceNumber
from hoglab.storage.event_store import EventStoreUnavailableError
from hoglab.storage.event_store.deadlines import QueryDeadlines
from hoglab.storage.event_store.dialects.duckdb import DuckDb
from hoglab.storage.event_store.duckdb_file import DuckDbFile, DuckDbReader, first_line
from hoglab.storage.event_store.once import file_versions
from hoglab.storage.event_store.once.file_versions import (
    replace_versions,
    unchanged,
    versions_between,
    versions_new_between,
)
from hoglab.storage.event_store.once.known_keys import (
    KnownKeys,
    has_repetitions,
    keys_of_halves,
    keys_of_rows,
)
from hoglab.storage.event_store.once.versions import WritePlan, new_at, settle
from hoglab.storage.event_store.overrides import write_overrides
from hoglab.storage.event_store.rows import as_json, as_utf8, mended, table_of
from hoglab.storage.event_store.sealed.erasing import distinct_ids_since, erase, overwrite_free_blocks, uuids
from hoglab.storage.event_store.sealed.newest import newest_events
from hoglab.storage.event_store.sealed.sealing import SealingLimits, is_sparse, seal, tidy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Set
    from pathlib import Path
    from uuid import UUID

    from hoglab.storage.event_store import ErasableEvents, EventBatch, EventRow, Wanted
    from hoglab.storage.event_store.dialects import Dialect
    from hoglab.storage.event_store.once.known_keys import Keys
    from hoglab.storage.table_files import TableDirectory

MIB = 1024 * 1024

MEMORY = "1GB"
"""Memory limit of the engine, for queries and caches together.

Its blocks have a place of this size of their own. Otherwise DuckDB 2.0.0 gives all free memory back to the system each
time when blocks of a sixteenth of the limit were dropped from the cache, and a query waits for as much new memory."""

MAX_SPILL_BYTES = 4096 * MIB
"""Maximum size of the temporary files of queries that need more than that."""

WRONG_OPTIMIZERS = ("statistics_propagation",)
"""Parts of the engine that are switched off. DuckDB 2.0.0 takes the sum of whole numbers over a left join with an
empty table, such as that of merged persons where nobody was, for 0: this one then decides comparisons with it, and so
how many rows there are (tests/analysis/test_sessions.py, test_against_oracle.py)."""

QUERY_TIMEOUT_S = 60.0

MIN_FREE_DISK_BYTES = 100 * MIB
"""With less space on the disk nothing is written: a store that hits the end of the disk while it rewrites
its file has to be opened again."""

CHECKPOINT_BYTES = 128 * MIB
"""Size of the write-ahead log at which it is worked into the file, which holds the writer up."""

IDLE_CHECKPOINT_BYTES = 1 * MIB
"""A write-ahead log smaller than this is left alone when the writer is idle, and so are fewer changes of results
state."""

CHECK_PATIENCE_S = 0.2
"""Time for which a health check waits for the writer, who may be at a checkpoint for seconds."""

KEY_ROWS = 500_000
"""Events read at once when their keys have to be computed again."""

_BROKEN_JSON = (
    "SELECT seq FROM incoming WHERE NOT json_valid(properties) OR NOT json_valid(person_properties)"
)
# As numbers, for an object for each uuid would make a start after the keys were lost take many times as long.
_KEYS = (
    "SELECT project_id, ('0x' || left(digits, 16))::UBIGINT AS high, ('0x' || right(digits, 16))::UBIGINT AS low "
    "FROM (SELECT seq, project_id, replace(uuid::VARCHAR, '-', '') AS digits FROM stored_events "
    "WHERE seq BETWEEN $1 AND $2)"
)

_FORGET_OVERRIDES = (
    "DELETE FROM person_override WHERE project_id = $project_id AND "
    "(old_person_id IN (SELECT unnest($people::VARCHAR[])::UUID) "
    "OR person_id IN (SELECT unnest($people::VARCHAR[])::UUID))"
)

_log = structlog.get_logger(__name__)

T = TypeVar("T")


class _ReplacingError(Exception):
    """Events are to be replaced, for which nobody may be sealing."""


class DuckDbEventStore:
    """See `EventStore` for tables and guarantees."""

    dialect: Dialect = DuckDb()

    def __init__(
        self,
        path: Path,
        *,
        memory: str = MEMORY,
        threads: int | None = None,
        max_spill_bytes: int = MAX_SPILL_BYTES,
        query_timeout_s: float = QUERY_TIMEOUT_S,
        min_free_disk_bytes: int = MIN_FREE_DISK_BYTES,
        tables: TableDirectory | None = None,
        cache_path: Path | None = None,
    ) -> None:
        """Open the store in a file, creating it when it is missing.

        ``memory`` is a size such as "512MB"; ``threads`` defaults to the processors of the machine. Queries may
        read the files of ``tables`` too. ``cache_path`` is the file of the schema ``aggregate_cache``; None: there is
        no such schema.
        Raises `EventStoreUnavailableError` when another process has the file open, when it cannot be read,
        and when a newer program wrote it.
        """
        self._path = path
        self._cache_path = cache_path
        self._config = {
            "memory_limit": memory,
            "block_allocator_memory": memory,
            "threads": threads or os.cpu_count() or 1,
            "disabled_optimizers": ",".join(WRONG_OPTIMIZERS),
            "temp_directory": f"{path}.tmp",
            "checkpoint_threshold": f"{CHECKPOINT_BYTES // MIB}MiB",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "python_enable_replacements": False,
        }
        self._max_spill_bytes = max_spill_bytes
        self._readable = () if tables is None else (tables.path.resolve(),)
        self._query_timeout_s = query_timeout_s
        self._min_free_disk_bytes = min_free_disk_bytes
        self._deadlines = QueryDeadlines()
        self._writing = threading.Lock()
        self._sealing = threading.Lock()
        self._sealer: DuckDbReader | None = None
        self.uses = 0
        """Number of times that somebody has begun to read."""
        self._closed = False
        self._known = KnownKeys(path.with_name(f"{path.name}.keys"))
        self._file = self._open()
        self._load()

    def _load(self) -> None:
        self._position, self._next_seq = self._file.load()
        try:
            self._known.load(self._next_seq, self._keys_between)
        except (OSError, duckdb.Error) as error:
            self._file.close()
            raise EventStoreUnavailableError(f"{self._path}: {first_line(error)}") from error

    def _keys_between(self, first: int, last: int) -> Iterator[tuple[int, Keys]]:
        """Yield the keys of stored events, read from them."""
        with self._file.cursor() as cursor:
            for start in range(first, last + 1, KEY_ROWS):
                end = min(start + KEY_ROWS - 1, last)
                columns = cursor.execute(_KEYS, [start, end]).fetchnumpy()
                yield end, keys_of_halves(columns["project_id"], columns["high"], columns["low"])

    def _open(self) -> DuckDbFile:
        return DuckDbFile(
            self._path,
            self._config,
            max_spill_bytes=self._max_spill_bytes,
            readable=self._readable,
            cache_path=self._cache_path,
        )

    # -- writing ------------------------------------------------------------------------------------

    def append(
        self,
        batch: EventBatch,
        *,
        log_offset: SequenceNumber,
        log_partition: int = 0,
        first_seq: SequenceNumber | None = None,
    ) -> Sequence[int]:
        """Write rows, overrides and the log position in one transaction, and return which of the rows are new.

        Each row is judged by its own ``log_offset``: one that is not above `position` was stored before, and is not
        written again; it is among the answer when its event was new with that same log record. So a batch may overlap
        with what was stored before a crash. JSON that the engine cannot parse is mended (`as_json`), unless
        the batch says that it was checked.

        Raises `EventStoreUnavailableError` (disk full, file damaged): the same batch can be tried again.
        """
        if log_partition or first_seq is not None:
            raise ValueError("events of a log with several partitions need another engine")
        try:
            with self._writing:
                return self._append(batch, log_offset, may_replace=False)
        except _ReplacingError:
            # What replaces events and what seals or erases them would undo each other.
            with self._sealing, self._writing:
                return self._append(batch, log_offset, may_replace=True)

    def _append(self, batch: EventBatch, log_offset: SequenceNumber, *, may_replace: bool) -> Sequence[int]:
        self._make_usable()
        offsets = [row.log_offset for row in batch.rows]
        if max(offsets, default=0) > max(log_offset, self._position):
            raise ValueError("a row has a log offset above that of its batch")
        repeated: list[int] = []
        if min(offsets, default=log_offset) <= self._position:
            repeated = [position for position, offset in enumerate(offsets) if offset <= self._position]
        try:
            stored = self._new_before(batch.rows, repeated) if repeated else []
            if log_offset <= self._position:
                return stored
            written = self._write(
                batch, _without(repeated, len(offsets)), log_offset, may_replace=may_replace
            )
            return sorted((*stored, *written)) if stored else written
        except _ReplacingError:
            self._file.roll_back()
            raise
        except duckdb.Error as error:
            self._file.roll_back()
            explained = self._file.explain(error)
            if isinstance(explained, EventStoreUnavailableError):
                raise explained from error
            raise EventStoreUnavailableError(f"{self._path}: {first_line(error)}") from error

    def dry_run(self, rows: Sequence[EventRow]) -> None:
        """See `EventWriter.dry_run`."""
        with self._writing:
            self._make_usable()
            connection = self._file.connection
            with self._explained():
                connection.execute("BEGIN")
                written = self._settled(rows, range(len(rows)), keys_of_rows(rows)).written
                if written:
                    self._register(_at(rows, written), is_checked=True)
                    connection.execute("INSERT INTO events BY NAME SELECT * FROM incoming")
                    connection.unregister("incoming")
                connection.execute("UPDATE store_state SET position = position")
                connection.execute("ROLLBACK")

    def _write(
        self, batch: EventBatch, positions: Sequence[int], log_offset: SequenceNumber, *, may_replace: bool
    ) -> Sequence[int]:
        """Store the rows at some positions that say something new, and return the positions of the new events."""
        connection = self._file.connection
        connection.execute("BEGIN")
        keys = keys_of_rows(_at(batch.rows, positions))
        settled = self._settled(batch.rows, positions, keys, batch.late)
        if settled.replaced and not may_replace:
            raise _ReplacingError
        rows = _at(batch.rows, settled.written)
        if settled.first_offsets:
            firsts = [settled.first_offsets.get(position, 0) for position in settled.written]
            rows = [replace(row, first_offset=first) for row, first in zip(rows, firsts, strict=True)]
        if rows:
            self._register(rows, is_checked=batch.is_checked)
            connection.execute("INSERT INTO events BY NAME SELECT * FROM incoming")
        if settled.replaced:
            seqs = {position: self._next_seq + index for index, position in enumerate(settled.written)}
            replace_versions(connection, batch.rows, settled.replaced, seqs, log_offset)
        if batch.overrides:
            write_overrides(connection, batch.overrides, log_offset)
        next_seq = self._next_seq + len(rows)
        connection.execute("UPDATE store_state SET position = $1, next_seq = $2", [log_offset, next_seq])
        connection.execute("COMMIT")
        self._known.add(keys if len(rows) == len(keys) else keys_of_rows(rows), self._next_seq)
        self._position, self._next_seq = log_offset, next_seq
        connection.unregister("incoming")  # frees the columns
        return settled.new

    def _settled(
        self, rows: Sequence[EventRow], positions: Sequence[int], keys: Keys, late: Set[int] = frozenset()
    ) -> WritePlan:
        """Return which of the rows at some positions are written, and what they replace; ``keys`` are theirs."""
        suspects = self._known.find(keys)
        if not suspects and not has_repetitions(keys):
            return WritePlan(written=list(positions), new=list(positions))
        asked_at = [
            positions[index] for index in sorted({at for suspect in suspects for at in suspect.positions})
        ]
        asked = _at(rows, asked_at)
        extents = [(suspect.first, suspect.last) for suspect in suspects]
        if len(asked) >= file_versions.MANY:
            resent = {asked_at[number] for number in unchanged(self._file.connection, asked, extents)}
            positions = [position for position in positions if position not in resent]
            asked = [rows[position] for position in asked_at if position not in resent]
        stored = versions_between(self._file.connection, asked, extents) if asked else {}
        return settle(rows, positions, stored, late)

    def _register(self, rows: Sequence[EventRow], *, is_checked: bool) -> None:
        """Make the rows the engine's table ``incoming``, with JSON that later queries can read."""
        connection = self._file.connection
        first = self._next_seq
        places = range(first, first + len(rows))
        if is_checked:
            connection.register("incoming", table_of(rows, places))
            return
        rows = [mended(row, as_utf8) for row in rows]
        connection.register("incoming", table_of(rows, places))
        broken = connection.execute(_BROKEN_JSON).fetchall()
        for (seq,) in broken:
            rows[seq - first] = mended(rows[seq - first], as_json)
        if broken:
            connection.register("incoming", table_of(rows, places))

    def _new_before(self, rows: Sequence[EventRow], positions: Sequence[int]) -> list[int]:
        """Return positions of the rows, among some, whose events were new with the log records they came in."""
        offsets = [rows[position].log_offset for position in positions]
        asked = _at(rows, positions)
        stored = versions_new_between(self._file.connection, asked, min(offsets), max(offsets))
        return new_at(rows, positions, stored)

    def position(self, log_partition: int | None = None) -> SequenceNumber:
        """See `EventWriter.position`; in other partitions than the first there is nothing."""
        return SequenceNumber(0) if log_partition else self._position

    def check(self) -> None:
        """Raise `EventStoreUnavailableError` if a batch could not be written now, for health checks.

        A batch that is being written, or a checkpoint, is not waited for.
        """
        if self._writing.acquire(timeout=CHECK_PATIENCE_S):
            try:
                self._make_usable()
            finally:
                self._writing.release()
        else:
            self.check_room()
        with self.reader() as reader:
            reader.execute("SELECT 1", timeout_s=5)

    def _make_usable(self) -> None:
        """Open the file again after a fatal error; refuse while the disk is nearly full."""
        if self._closed:
            raise EventStoreUnavailableError("the event store is closed")
        self.check_room()
        if self._file.broken:
            _log.warning("event_store_reopened", path=str(self._path))
            self._file.close()
            self._file = self._open()
            self._load()

    @contextmanager
    def pause_writes(self) -> Iterator[SequenceNumber]:
        """Keep the writer away, so that the files can be copied; gives the position. Queries go on.

        Raises `EventStoreUnavailableError`.
        """
        with self._writing:
            self._make_usable()
            with contextlib.suppress(duckdb.Error):  # then the log is copied along
                self._file.connection.execute("CHECKPOINT")
            yield self._position

    def identity(self) -> tuple[str, int, int] | None:
        """Return installation id, generation and number of starts; None for a file that has none yet."""
        with self._writing, self._explained():
            return self._file.identity()

    def set_identity(self, installation_id: str, generation: int, starts: int) -> None:
        """Write them, durably."""
        with self._writing, self._explained():
            self._file.set_identity(installation_id, generation, starts)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise `EventStoreUnavailableError` for any error of the engine in the block."""
        try:
            yield
        except duckdb.Error as error:
            self._file.roll_back()
            explained = self._file.explain(error)
            if isinstance(explained, EventStoreUnavailableError):
                raise explained from error
            raise EventStoreUnavailableError(f"{self._path}: {first_line(error)}") from error

    @property
    def damage(self) -> str | None:
        """Damage found in the file since it was opened: what could not be read; None while none is known."""
        return self._file.damage

    def check_room(self) -> None:
        """Raise `EventStoreUnavailableError` while the disk is nearly full."""
        disk = os.statvfs(self._path.parent)
        if disk.f_bavail * disk.f_frsize < self._min_free_disk_bytes:
            raise EventStoreUnavailableError(
                f"the event store cannot grow: the disk is nearly full; {DISK_ADVICE}"
            )

    def checkpoint(self) -> None:
        """Write the write-ahead logs of the store and of the aggregate cache into their files.

        The writer calls this when it is idle; it may do nothing.
        """
        with self._writing:
            if self._closed or self._file.broken:
                return
            try:
                self.check_room()
                for statement in self._file.checkpoints_due(IDLE_CHECKPOINT_BYTES):
                    self._file.connection.execute(statement)
            except EventStoreUnavailableError as error:
                _log.info("event_store_checkpoint_postponed", reason=str(error))
            except duckdb.TransactionException:
                _log.info("event_store_checkpoint_postponed", reason="queries are running")
            except duckdb.Error as error:
                _log.error("event_store_checkpoint_failed", reason=first_line(error))
                self._file.explain(error)

    # -- reading ------------------------------------------------------------------------------------

    @contextmanager
    def reader(self) -> Iterator[DuckDbReader]:
        """Provide a cursor of its own for the block. Raises `EventStoreUnavailableError`."""
        if self._file.broken:  # by a query before, perhaps: no writer may come along for long
            with self._writing:
                self._make_usable()
        self.uses += 1
        with self._cursor() as reader:
            yield reader

    @contextmanager
    def _cursor(self) -> Iterator[DuckDbReader]:
        file = self._file
        with file.cursor() as cursor:
            yield DuckDbReader(file, cursor, self._deadlines, self._query_timeout_s)

    def newest_events(
        self, wanted: Wanted, columns: Sequence[str], *, limit: int, offset: int = 0, timeout_s: float
    ) -> list[tuple[Any, ...]]:
        """See `EventReader.newest_events`."""
        with self.reader() as reader:
            return newest_events(reader, wanted, columns, limit=limit, offset=offset, timeout_s=timeout_s)

    # -- sealing ------------------------------------------------------------------------------------

    def seal(self, limits: SealingLimits | None = None, *, is_idle: bool) -> int:
        """Seal or merge once; the number of rows written, 0 when nothing was to be done.

        Beside the writer and readers, by one thread at a time. See `hoglab.storage.event_store.sealed.sealing`.
        """
        with self._sealing, self._cursor() as reader:
            self.check_room()
            self._sealer = reader
            try:
                rows = seal(reader, limits or SealingLimits(), is_idle=is_idle)
                if is_idle and not rows and is_sparse(reader):
                    with self._writing:
                        tidy(reader)
                    self.checkpoint()
                return rows
            finally:
                self._sealer = None

    def uuids(self, events: ErasableEvents) -> list[UUID]:
        """Return the uuids of the events that `erase` would delete."""
        with self._cursor() as reader:
            return uuids(reader, events)

    def erase(self, events: ErasableEvents) -> int:
        """Delete events, and return how many. Their bytes are gone after `scrub`.

        Raises `EventStoreUnavailableError` and the errors of `Reader`; some may be gone then, and the call goes on.
        """
        with self._sealing, self._cursor() as reader:
            self.check_room()
            return erase(reader, events)

    def forget_overrides(self, project_id: int, person_ids: Sequence[UUID]) -> None:
        """Delete what is known of the merges of persons whose events are gone."""
        people = [str(person_id) for person_id in person_ids]
        with self._writing:
            self._make_usable()
            try:
                self._file.connection.execute(_FORGET_OVERRIDES, {"project_id": project_id, "people": people})
            except duckdb.Error as error:
                raise self._file.explain(error) from error

    def distinct_ids_since(
        self, project_id: int, distinct_ids: Sequence[str], log_offset: SequenceNumber
    ) -> set[str]:
        """Return which of some distinct ids have events in later log records."""
        with self._cursor() as reader:
            return distinct_ids_since(reader, project_id, distinct_ids, log_offset)

    def scrub(self) -> None:
        """Make the bytes of what was deleted leave the file; streams that may still read it end.

        Raises `EventStoreUnavailableError` when somebody reads what was deleted: to be called again.
        """
        with self._sealing, self._writing, self._cursor() as reader:
            self._make_usable()
            self._file.interrupt_streams()
            try:
                tidy(reader)
                for step in (
                    lambda: overwrite_free_blocks(reader),
                    lambda: reader.execute("DROP TABLE overwritten"),
                ):
                    self._file.connection.execute("CHECKPOINT")
                    step()
                self._file.connection.execute("CHECKPOINT")
            except duckdb.Error as error:
                self._file.explain(error)
                raise EventStoreUnavailableError(f"{self._path}: {first_line(error)}") from error

    def interrupt_sealing(self) -> None:
        """End what `seal` does now, in another thread: it raises `QueryCancelledError`."""
        sealer = self._sealer
        if sealer is not None:
            sealer.interrupt()

    # -- aggregate cache ----------------------------------------------------------------------------

    @property
    def has_aggregate_cache(self) -> bool:
        """Whether there is a schema ``aggregate_cache`` to read and write."""
        cache = self._file.cache
        return cache is not None and cache.is_attached

    def reset_aggregate_cache(self) -> None:
        """Begin with an empty aggregate cache; nobody may be using the old one."""
        if self._file.cache is not None:
            with self._file.cursor() as cursor:
                self._file.cache.reset(cursor)

    def close(self) -> None:
        """Interrupt statements, write everything into the file and close it; a second call does nothing."""
        with self._writing:
            if self._closed:
                return
            self._closed = True
            self._known.close()
            self._file.close()
        self._deadlines.close()


def _at(values: Sequence[T], positions: Sequence[int]) -> Sequence[T]:
    return values if len(positions) == len(values) else [values[position] for position in positions]


def _without(positions: Sequence[int], count: int) -> Sequence[int]:
    """Return the positions below ``count`` that are not among these, in order."""
    if not positions:
        return range(count)
    gone = set(positions)
    return [position for position in range(count) if position not in gone]
