"""The event log in a SQLite table.

A group is stored in one transaction that is on disk when it ends (``synchronous=FULL``).
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hoglab.storage.database import Database, Rebuildable, tables
from hoglab.storage.database.errors import DISK_ADVICE, explained
from hoglab.storage.database.locks import write_lock
from hoglab.storage.database.sqlite import connect
from hoglab.storage.database.types import from_micros
from hoglab.storage.event_log import EventLogFullError, LogRecord, Offset
from hoglab.storage.event_log.deferral import STEP_RECORDS, Admitted, step
from hoglab.storage.event_log.group_commit import RETRY_DISK_S
from hoglab.storage.event_log.log import MIB, TIDY_STEP_RECORDS, GroupCommitLog, LogLimits, Stored

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hoglab.storage.event_log import SequenceNumber
    from hoglab.storage.event_log.group_commit import Waiter

MIN_FREE_DISK_BYTES = 200 * MIB
"""With less space on the disk, records are refused, so that the other files can still work."""

LEAST_FREE_DISK_BYTES = MIB
"""Free space below which the disk counts as full, at every setting."""

SPARE_BYTES = 64 * MIB
"""Free pages that the file keeps for what comes next; more of them are given back to the disk."""

_INSERT = 'INSERT INTO event_log_record ("offset", owner, appended_at, payload) VALUES '
_ROW = "(?, ?, ?, ?)"
_LAST = "SELECT seq FROM sqlite_sequence WHERE name = 'event_log_record'"
_SKIP = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'event_log_record'"
_SKIP_FIRST = (
    "INSERT INTO sqlite_sequence (name, seq) SELECT 'event_log_record', ? "
    "WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'event_log_record')"
)
_SIZES = (
    'SELECT max("offset"), sum(length(payload)), max(appended_at), owner FROM event_log_record '
    'GROUP BY "offset" / 64, owner ORDER BY 1'
)
_OLDEST = 'SELECT appended_at FROM event_log_record WHERE "offset" > ? ORDER BY "offset" LIMIT 1'
_LAST_OF = 'SELECT max("offset") FROM event_log_record WHERE owner = ? AND appended_at <= ?'
_FIRST = 'SELECT min("offset") FROM event_log_record'
_EXTENT = (
    'SELECT coalesce(min("offset"), 0), count(*), coalesce(sum(length(payload)), 0) FROM event_log_record'
)
_READ = (
    'SELECT "offset", appended_at, payload FROM event_log_record WHERE "offset" > ? ORDER BY "offset" LIMIT ?'
)
_POSITION = 'SELECT "offset" FROM consumer_position WHERE consumer = ?'
_LOWEST = 'SELECT min("offset") FROM consumer_position'
_COMMIT = (
    'INSERT INTO consumer_position (consumer, "offset", updated_at) VALUES (?, ?, ?) '
    'ON CONFLICT (consumer) DO UPDATE SET "offset" = max("offset", excluded."offset"), '
    "updated_at = excluded.updated_at"
)
_TRIM = (
    'DELETE FROM event_log_record WHERE "offset" IN '
    '(SELECT "offset" FROM event_log_record WHERE "offset" <= ? ORDER BY "offset" LIMIT ?) '
    "RETURNING length(payload)"
)
_DEFER = "INSERT INTO deferred_record (owner, appended_at, payload) VALUES "
_DEFER_ROW = "(?, ?, ?)"
_DEFERRED = (
    "SELECT owner, count(*), sum(length(payload)), min(appended_at) FROM deferred_record "
    "GROUP BY owner ORDER BY min(id)"
)
_NEXT = "SELECT id, length(payload), appended_at FROM deferred_record WHERE owner = ? ORDER BY id LIMIT ?"
_ADMIT = (
    "INSERT INTO event_log_record (owner, appended_at, payload) "
    "SELECT owner, appended_at, payload FROM deferred_record WHERE owner = ? AND id <= ? ORDER BY id"
)
_FORGET = "DELETE FROM deferred_record WHERE owner = ? AND id <= ?"


class SqliteEventLog(GroupCommitLog):
    """Part of ``queue.db``, of one process."""

    def __init__(
        self, path: Path, *, min_free_disk_bytes: int = MIN_FREE_DISK_BYTES, limits: LogLimits | None = None
    ) -> None:
        """Open the log in a file, creating it when it is missing.

        Raises the errors of `Database.open`.
        """
        super().__init__(str(path), limits or LogLimits())
        Database.open(path, tables.queue_metadata).dispose()  # brings the schema up to date
        self._path = path
        self._min_free_disk_bytes = min_free_disk_bytes
        self._turns = write_lock(path)
        self._appender = connect(path, tables.queue_metadata)
        # Positions and deletions do not wait for the disk: losing the latest repeats work, loses no events.
        self._keeper = connect(path, tables.queue_metadata, rebuildable=Rebuildable.LOG_POSITIONS)
        self._reader = connect(path, tables.queue_metadata, read_only=True)
        self._reading = threading.Lock()
        self._load()
        self._start()

    def _load(self) -> None:
        """Measure what is there."""
        with explained(self._name):
            row = self._reader.execute(_LAST).fetchone()
            for last_offset, size, newest_at, owner in self._reader.execute(_SIZES):
                self._backlog.add(last_offset, size, newest_at, owner)
                self._newest_record = last_offset
            self._deferral.load(self._reader.execute(_DEFERRED))
        self._last_offset = Offset(0 if row is None else int(row[0]))

    # -- appending ----------------------------------------------------------------------------------

    def _check_space(self, size: int) -> None:
        if self._free_disk_bytes() - size < max(self._min_free_disk_bytes, LEAST_FREE_DISK_BYTES):
            raise EventLogFullError(f"the disk is nearly full: {DISK_ADVICE}", RETRY_DISK_S)

    def _space_is_scarce(self) -> bool:
        return self._free_disk_bytes() < 2 * self._min_free_disk_bytes

    def _free_disk_bytes(self) -> int:
        disk = os.statvfs(self._path.parent)
        return disk.f_bavail * disk.f_frsize

    def _store_group(self, group: Sequence[Waiter]) -> Stored:
        now = self._now_us()
        with self._work:
            ready, deferred = self._deferral.divide(group, self._backlog)
        return Stored(self._store(ready, deferred, now), now, ready, deferred)

    def _store(self, ready: Sequence[Waiter], deferred: Sequence[tuple[int, Waiter]], now: int) -> Offset:
        """Commit ready and deferred records, and return the offset of the first ready one."""
        connection = self._appender
        with self._turns.turn():
            row = connection.execute(_LAST).fetchone()
            first = Offset(1 if row is None else int(row[0]) + 1)
            values: list[int | bytes | None] = []
            for offset, waiter in enumerate(ready, first):
                values += (offset, waiter.owner, now, waiter.payload)
            # One statement is a transaction of its own, and takes the interpreter's lock back once: after every
            # row, this thread would wait for the event loop to let go of it.
            insert = f"{_INSERT}{', '.join([_ROW] * len(ready))}"
            if not deferred:
                connection.execute(insert, values)
                return first
            with _transaction(connection):
                waiting: list[int | bytes] = []
                for owner, waiter in deferred:
                    waiting += (owner, now, waiter.payload)
                connection.execute(f"{_DEFER}{', '.join([_DEFER_ROW] * len(deferred))}", waiting)
                if ready:
                    connection.execute(insert, values)
        return first

    def _admit_from(self, owner: int) -> Admitted:
        connection = self._appender
        with self._turns.turn(), _transaction(connection):
            rows = connection.execute(_NEXT, (owner, STEP_RECORDS + 1)).fetchall()
            taken, oldest_left = step(rows, self._deferral.step_bytes)
            last_id, _, newest_at = taken[-1]
            connection.execute(_ADMIT, (owner, last_id))
            connection.execute(_FORGET, (owner, last_id))
            (last_offset,) = connection.execute(_LAST).fetchone()
            return Admitted(owner, last_offset, [size for _, size, _ in taken], newest_at, oldest_left)

    # -- reading ------------------------------------------------------------------------------------

    def read(self, after: Offset, *, max_records: int, max_bytes: int) -> Sequence[LogRecord]:
        """Return records above ``after`` in order; see `GroupCommitLog.read`."""
        records: list[LogRecord] = []
        size = 0
        with self._reading, explained(self._name):
            cursor = self._reader.execute(_READ, (after, max_records))
            try:
                for offset, appended_at, payload in cursor:
                    size += len(payload)
                    if records and size > max_bytes:
                        break
                    records.append(LogRecord(offset, from_micros(appended_at), payload))
            finally:
                cursor.close()  # ends the snapshot, which would keep the write-ahead log from being reused
        return records

    def position(self, consumer: str) -> Offset:
        """Return the last offset that this consumer has finished, 0 when it never committed."""
        return self._offset(_POSITION, consumer) or Offset(0)

    def _lowest_position(self) -> Offset | None:
        return self._offset(_LOWEST)

    def _move_position(self, consumer: str, offset: Offset) -> None:
        with explained(self._name), self._turns.turn():
            self._keeper.execute(_COMMIT, (consumer, offset, self._now_us()))

    def _extent(self) -> tuple[Offset, int, int]:
        with self._reading, explained(self._name):
            first, records, size = self._reader.execute(_EXTENT).fetchone()
        return first, records, size

    def _oldest_stored(self, after: Offset) -> int | None:
        return self._number(_OLDEST, after)

    def _last_of(self, owner: int, until: int) -> Offset | None:
        return self._offset(_LAST_OF, owner, until)

    def _first_stored(self) -> Offset | None:
        return self._offset(_FIRST)

    def _offset(self, query: str, *parameters: int | str) -> Offset | None:
        number = self._number(query, *parameters)
        return None if number is None else Offset(number)

    def _number(self, query: str, *parameters: int | str) -> int | None:
        with self._reading, explained(self._name):
            row = self._reader.execute(query, parameters).fetchone()
        return None if row is None or row[0] is None else int(row[0])

    def advance_sequence(self, number: SequenceNumber) -> None:
        """Give out only offsets above ``number`` from now on; nothing changes when that is so already."""
        with explained(self._name), self._turns.turn():
            self._keeper.execute(_SKIP, (number,))
            self._keeper.execute(_SKIP_FIRST, (number,))
            with self._work:
                self._last_offset = max(self._last_offset, Offset(number))

    # -- deleting -----------------------------------------------------------------------------------

    def _delete_step(self, up_to: int) -> list[int]:
        with explained(self._name), self._turns.turn():
            return [size for (size,) in self._keeper.execute(_TRIM, (up_to, TIDY_STEP_RECORDS)).fetchall()]

    def _give_back(self, *, scarce: bool) -> None:
        """Shrink the file in steps until no more than the spare bytes in it are unused."""
        spare_bytes = 0 if scarce else SPARE_BYTES
        step_bytes = 8 * MIB
        while not self._closed.is_set():
            with explained(self._name), self._turns.turn():
                page_bytes = self._keeper.execute("PRAGMA page_size").fetchone()[0]
                unused = self._keeper.execute("PRAGMA freelist_count").fetchone()[0]
                pages = min(unused - spare_bytes // page_bytes, step_bytes // page_bytes)
                if pages <= 0:
                    return
                self._keeper.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()

    def _disconnect(self) -> None:
        with self._turns.turn(), self._reading:
            for connection in (self._appender, self._keeper, self._reader):
                connection.close()


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Provide a block whose statements are stored together or not at all."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()
