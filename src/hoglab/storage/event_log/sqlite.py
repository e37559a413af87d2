"""The event log in a SQLite table, made fast by group commit.

One thread writes. It takes every record that waits, stores them in one transaction that is on disk when it
ends (``synchronous=FULL``), and wakes the waiters of each event loop with one call. The more requests wait,
the larger the group, so the cost of reaching the disk is shared.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from hoglab.storage.database import Database, DatabaseError, Rebuildable, tables
from hoglab.storage.database.errors import explain, explained
from hoglab.storage.database.locks import write_lock
from hoglab.storage.database.sqlite import connect
from hoglab.storage.database.types import from_micros
from hoglab.storage.event_log import EventLogFullError, LogRecord, LogStats
from hoglab.storage.event_log.backlog import Backlog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MIB = 1024 * 1024

MAX_RECORD_BYTES = 64 * MIB
"""A larger record is a mistake of the caller (`ValueError`)."""

MAX_WAITING_BYTES = 64 * MIB
"""Records in memory that wait for the disk; more are refused."""

MAX_GROUP_BYTES = 16 * MIB
"""Records written in one transaction, at least one."""

MAX_GROUP_RECORDS = 1024
"""Records written in one statement."""

MAX_BACKLOG_BYTES = 2048 * MIB
"""Records that wait for a consumer; more are refused."""

OWNER_SHARE = 0.5
"""What one owner's records may take of each of these two; more are refused, and those of others are taken."""

MIN_FREE_DISK_BYTES = 200 * MIB
"""With less space on the disk, records are refused, so that the other files can still work."""

LEAST_FREE_DISK_BYTES = MIB
"""Whatever is set, a disk with less space than this is full."""

KEEP_FINISHED_S = 3600.0
KEEP_FINISHED_BYTES = 256 * MIB
"""Records that every consumer has finished are kept for this long, and up to this much, then deleted.
When the disk is nearly full none are kept."""

TIDY_EVERY_S = 5.0
TIDY_STEP_RECORDS = 128
"""How often old records are looked for, and how many are deleted in one transaction."""

SPARE_BYTES = 64 * MIB
"""Free pages that the file keeps for what comes next; more of them are given back to the disk."""

RETRY_WAITING_S = 1
RETRY_BACKLOG_S = 10
RETRY_DISK_S = 30
RETRY_CLOSED_S = 5
"""What clients are told when records are refused for each of the reasons."""

_INSERT = 'INSERT INTO event_log_record ("offset", appended_at, payload) VALUES '
_ROW = "(?, ?, ?)"
_LAST = "SELECT seq FROM sqlite_sequence WHERE name = 'event_log_record'"
_SKIP = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'event_log_record'"
_SKIP_FIRST = (
    "INSERT INTO sqlite_sequence (name, seq) SELECT 'event_log_record', ? "
    "WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'event_log_record')"
)
_SIZES = (
    'SELECT max("offset"), sum(length(payload)), max(appended_at) FROM event_log_record '
    'GROUP BY "offset" / 64 ORDER BY 1'
)
_STATS = 'SELECT min("offset"), count(*), sum(length(payload)) FROM event_log_record'
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

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Waiter:
    payload: bytes
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[int]
    owner: int | None


class SqliteEventLog:
    """Part of ``queue.db``. `append` may be awaited in any number of event loops, in any threads."""

    def __init__(
        self,
        path: Path,
        *,
        max_backlog_bytes: int = MAX_BACKLOG_BYTES,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
        min_free_disk_bytes: int = MIN_FREE_DISK_BYTES,
        keep_finished_s: float = KEEP_FINISHED_S,
        keep_finished_bytes: int = KEEP_FINISHED_BYTES,
    ) -> None:
        """Open the log in a file, creating it when it is missing.

        Raises the errors of `Database.open`.
        """
        Database.open(path, tables.queue_metadata).dispose()  # brings the schema up to date
        self._path = path
        self._max_backlog_bytes = max_backlog_bytes
        self._max_waiting_bytes = max_waiting_bytes
        self._min_free_disk_bytes = min_free_disk_bytes
        self._keep_finished_s = keep_finished_s
        self._keep_finished_bytes = keep_finished_bytes

        self._turns = write_lock(path)
        self._appender = connect(path, tables.queue_metadata)
        # Positions and deletions do not wait for the disk: losing the latest repeats work, loses no events.
        self._keeper = connect(path, tables.queue_metadata, rebuildable=Rebuildable.LOG_POSITIONS)
        self._reader = connect(path, tables.queue_metadata, read_only=True)
        self._reading = threading.Lock()

        lock = threading.Lock()  # guards everything below
        self._work = threading.Condition(lock)  # the writer has something to do
        self._arrived = threading.Condition(lock)  # consumers have something to read
        self._woken = False  # whether one of them is to look around without it
        self._waiting: deque[_Waiter] = deque()
        self._waiting_bytes = 0
        self._waiting_by_owner: Counter[int] = Counter()
        self._backlog = Backlog(min(MIB, max_backlog_bytes // 64))
        self._newest_record = 0  # offset of the newest record that is stored, 0 for none
        self._last_offset = self._load()  # the last one given out: deleted records and `skip_to` count
        self._failing = False  # of the writer thread alone
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=self._write_until_closed, name="event-log", daemon=True),
            threading.Thread(target=self._tidy_until_closed, name="event-log-tidy", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _load(self) -> int:
        """Measure what is there; returns the last offset that was ever given out."""
        with explained(str(self._path)):
            row = self._reader.execute(_LAST).fetchone()
            for last_offset, size, newest_at in self._reader.execute(_SIZES):
                self._backlog.add(last_offset, size, newest_at)
                self._newest_record = last_offset
        self._backlog.finish(self._lowest_position() or 0)
        return 0 if row is None else int(row[0])

    # -- appending ----------------------------------------------------------------------------------

    async def append(self, payload: bytes, *, insist: bool = False, owner: int | None = None) -> int:
        """Store one record and return its offset once it is on disk.

        Raises `EventLogFullError` when too much waits for a consumer (unless ``insist``) or for the disk, of all or of
        this ``owner``, when the disk is (nearly) full or fails, and when the log is closed; `ValueError` above
        `MAX_RECORD_BYTES`. A caller that is cancelled may or may not have its record stored.
        """
        size = len(payload)
        if size > MAX_RECORD_BYTES:
            raise ValueError(f"a record of {size} bytes is larger than {MAX_RECORD_BYTES}")
        loop = asyncio.get_running_loop()
        waiter = _Waiter(payload, loop, loop.create_future(), owner)
        with self._work:
            self._admit(size, insist=insist, owner=owner)
            self._waiting.append(waiter)
            self._waiting_bytes += size
            if owner is not None:
                self._waiting_by_owner[owner] += size
            if len(self._waiting) == 1:
                self._work.notify()
        return await waiter.future

    def _admit(self, size: int, *, insist: bool, owner: int | None = None) -> None:
        """Refuse a record that there is no room for."""
        if self._closed.is_set():
            raise EventLogFullError("the event log is closed", RETRY_CLOSED_S)
        if self._waiting and self._waiting_bytes + size > self._max_waiting_bytes:
            raise EventLogFullError("too many events wait for the disk", RETRY_WAITING_S)
        waiting_bytes = self._backlog.pending_bytes + self._waiting_bytes
        if not insist and waiting_bytes + size > self._max_backlog_bytes:
            raise EventLogFullError("too many events wait for ingestion", RETRY_BACKLOG_S)
        if owner is None:
            return
        waiting_bytes = self._waiting_by_owner[owner]
        if waiting_bytes and waiting_bytes + size > self._max_waiting_bytes * OWNER_SHARE:
            raise EventLogFullError("too many events of one project wait for the disk", RETRY_WAITING_S)
        waiting_bytes += self._backlog.pending_of(owner)
        if not insist and waiting_bytes + size > self._max_backlog_bytes * OWNER_SHARE:
            raise EventLogFullError("too many events of one project wait for ingestion", RETRY_BACKLOG_S)

    def _write_until_closed(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: self._waiting or self._closed.is_set())
                if not self._waiting:
                    return
                group = self._take_group()
            self._write_group(group)

    def _take_group(self) -> list[_Waiter]:
        group: list[_Waiter] = []
        size = 0
        while (
            self._waiting
            and len(group) < MAX_GROUP_RECORDS
            and (not group or size + len(self._waiting[0].payload) <= MAX_GROUP_BYTES)
        ):
            waiter = self._waiting.popleft()
            size += len(waiter.payload)
            group.append(waiter)
        return group

    def _write_group(self, group: list[_Waiter]) -> None:
        size = sum(len(waiter.payload) for waiter in group)
        now = time.time_ns() // 1000
        first, error = 0, None
        try:
            self._check_disk(size)
            first = self._store([waiter.payload for waiter in group], now)
        except Exception as caught:
            error = caught
        self._report(error)
        with self._arrived:
            self._waiting_bytes -= size
            for waiter in group:
                if waiter.owner is not None:
                    self._waiting_by_owner[waiter.owner] -= len(waiter.payload)
                    if not self._waiting_by_owner[waiter.owner]:
                        del self._waiting_by_owner[waiter.owner]
            if error is None:
                for self._last_offset, waiter in enumerate(group, first):
                    self._backlog.add(self._last_offset, len(waiter.payload), now, waiter.owner)
                self._newest_record = self._last_offset
                self._arrived.notify_all()
        _wake(group, first, error)

    def _report(self, error: Exception | None) -> None:
        """Log when writing begins to fail and when it works again, not each failure between."""
        if error is not None and not self._failing:
            _log.error("event_log_cannot_write", path=str(self._path), reason=str(error))
        elif error is None and self._failing:
            _log.warning("event_log_writes_again", path=str(self._path))
        self._failing = error is not None

    def _check_disk(self, size: int) -> None:
        if self._free_disk_bytes() - size < max(self._min_free_disk_bytes, LEAST_FREE_DISK_BYTES):
            raise EventLogFullError("the disk is nearly full", RETRY_DISK_S)

    def _free_disk_bytes(self) -> int:
        disk = os.statvfs(self._path.parent)
        return disk.f_bavail * disk.f_frsize

    def _store(self, payloads: list[bytes], now: int) -> int:
        """Commit a group; returns the offset of its first record."""
        connection = self._appender
        with self._turns.turn():
            row = connection.execute(_LAST).fetchone()
            first = 1 if row is None else int(row[0]) + 1
            values: list[int | bytes] = []
            for offset, payload in enumerate(payloads, first):
                values += (offset, now, payload)
            # One statement is a transaction of its own, and takes the interpreter's lock back once: after every
            # row, this thread would wait for the event loop to let go of it.
            connection.execute(f"{_INSERT}{', '.join([_ROW] * len(payloads))}", values)
        return first

    # -- reading ------------------------------------------------------------------------------------

    def read(self, after: int, *, max_records: int, max_bytes: int) -> Sequence[LogRecord]:
        """Records above ``after`` in order.

        At most ``max_records``, and at most ``max_bytes`` unless the first alone is larger. Raises the errors of
        `hoglab.storage.database`.
        """
        records: list[LogRecord] = []
        size = 0
        with self._reading, explained(str(self._path)):
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

    def wait(self, after: int, timeout_s: float) -> bool:
        """Block until a record above ``after`` exists or the time is over; whether one exists.

        Returns at once when the log is closed.
        """
        with self._arrived:
            self._arrived.wait_for(
                lambda: self._newest_record > after or self._woken or self._closed.is_set(), timeout_s
            )
            self._woken = False
            return self._newest_record > after

    def wake(self) -> None:
        """End the wait of whoever waits, or else the next one: a consumer may be about to wait."""
        with self._arrived:
            self._woken = True
            self._arrived.notify_all()

    # -- consumers ----------------------------------------------------------------------------------

    def position(self, consumer: str) -> int:
        """The last offset that this consumer has finished, 0 when it never committed."""
        with self._reading, explained(str(self._path)):
            row = self._reader.execute(_POSITION, (consumer,)).fetchone()
        return 0 if row is None else int(row[0])

    def commit(self, consumer: str, offset: int) -> None:
        """Mark everything up to and including ``offset`` as finished; never moves a position back."""
        with explained(str(self._path)), self._turns.turn():
            self._keeper.execute(_COMMIT, (consumer, offset, time.time_ns() // 1000))
        self._note_finished()

    def _note_finished(self) -> None:
        """Look up how far all consumers are: the invocation queue moves positions too."""
        lowest = self._lowest_position() or 0
        with self._work:
            self._backlog.finish(lowest)

    def _lowest_position(self) -> int | None:
        """What every consumer has finished; None when there is no consumer."""
        with self._reading, explained(str(self._path)):
            lowest = self._reader.execute(_LOWEST).fetchone()[0]
        return None if lowest is None else int(lowest)

    def skip_to(self, offset: int) -> None:
        """Give out only offsets above ``offset`` from now on; nothing changes when that is so already.

        For a log that was lost or replaced beside stores that remember offsets of the old one.
        """
        with explained(str(self._path)), self._turns.turn():
            self._keeper.execute(_SKIP, (offset,))
            self._keeper.execute(_SKIP_FIRST, (offset,))
            with self._work:
                self._last_offset = max(self._last_offset, offset)

    # -- deleting -----------------------------------------------------------------------------------

    def trim(self, up_to: int) -> int:
        """Delete records up to and including ``up_to``, but none that a consumer has not finished.

        Returns how many bytes of records went. There is no need to call it: finished records that are old
        or many are deleted by and by (`KEEP_FINISHED_S`, `KEEP_FINISHED_BYTES`).
        """
        lowest = self._lowest_position()
        if lowest is not None:
            up_to = min(up_to, lowest)
        freed = 0
        while not self._closed.is_set() and (step := self._delete_step(up_to)):
            freed += sum(step)
        with self._work:
            self._backlog.drop(up_to)
            if self._newest_record <= up_to:
                self._newest_record = 0
        return freed

    def tidy(self) -> None:
        """Delete finished records that are old or many, and give unused space back to the disk."""
        self._note_finished()
        scarce = self._free_disk_bytes() < 2 * self._min_free_disk_bytes
        keep_s = 0.0 if scarce else self._keep_finished_s
        keep_bytes = 0 if scarce else self._keep_finished_bytes
        older_than = time.time_ns() // 1000 - int(keep_s * 1e6)
        with self._work:
            up_to = self._backlog.droppable(older_than=older_than, keep_bytes=keep_bytes)
        if up_to:
            self.trim(up_to)
        self._give_back(0 if scarce else SPARE_BYTES)

    def _tidy_until_closed(self) -> None:
        while not self._closed.wait(TIDY_EVERY_S):
            try:
                self.tidy()
            except Exception:
                _log.exception("event_log_tidy_failed")

    def _delete_step(self, up_to: int) -> list[int]:
        """Delete some records, so few that no writer waits long; returns their sizes."""
        with explained(str(self._path)), self._turns.turn():
            return [size for (size,) in self._keeper.execute(_TRIM, (up_to, TIDY_STEP_RECORDS)).fetchall()]

    def _give_back(self, spare_bytes: int) -> None:
        """Shrink the file in steps until no more than the spare bytes in it are unused."""
        step_bytes = 8 * MIB
        while not self._closed.is_set():
            with explained(str(self._path)), self._turns.turn():
                page_bytes = self._keeper.execute("PRAGMA page_size").fetchone()[0]
                unused = self._keeper.execute("PRAGMA freelist_count").fetchone()[0]
                pages = min(unused - spare_bytes // page_bytes, step_bytes // page_bytes)
                if pages <= 0:
                    return
                self._keeper.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()

    # -- the whole ----------------------------------------------------------------------------------

    def stats(self) -> LogStats:
        """First and last offset, number and bytes of the records that are stored.

        The last offset is that which was given out last, even when its record is deleted.
        """
        with self._reading, explained(str(self._path)):
            first, records, size = self._reader.execute(_STATS).fetchone()
        with self._work:
            return LogStats(first or 0, self._last_offset, records, size or 0)

    def last_offset(self) -> int:
        """The newest offset that was given out, 0 at first; cheap."""
        with self._work:
            return self._last_offset

    def pending_bytes(self) -> int:
        """Bytes of records that some consumer has not finished; cheap enough for every request."""
        with self._work:
            return self._backlog.pending_bytes

    def check(self) -> None:
        """For health checks: raises the `EventLogFullError` that a small record would meet now."""
        with self._work:
            self._admit(0, insist=False)
        self._check_disk(0)

    def close(self) -> None:
        """Store what waits, refuse what comes, stop. Calling it again does nothing."""
        with self._work:
            if self._closed.is_set():
                return
            self._closed.set()
            self._work.notify_all()
            self._arrived.notify_all()
        for thread in self._threads:
            thread.join()
        with self._turns.turn(), self._reading:
            for connection in (self._appender, self._keeper, self._reader):
                connection.close()


def _wake(group: list[_Waiter], first: int, error: Exception | None) -> None:
    """Tell each waiter its offset or the error, with one call into each event loop."""
    offsets: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[int], int]]] = {}
    for offset, waiter in enumerate(group, first):
        offsets.setdefault(waiter.loop, []).append((waiter.future, offset))
    for loop, futures in offsets.items():
        try:
            loop.call_soon_threadsafe(_resolve, futures, error)
        except RuntimeError:  # the loop was closed: nobody is left to hear it
            _log.info("event_log_waiters_gone", records=len(futures))


def _resolve(futures: list[tuple[asyncio.Future[int], int]], error: Exception | None) -> None:
    for future, offset in futures:
        if future.done():  # its caller was cancelled
            continue
        if error is None:
            future.set_result(offset)
        else:
            future.set_exception(_refusal(error))


def _refusal(error: Exception) -> Exception:
    """The error for one waiter: a failing disk is a reason to come back later, not to fail for good."""
    if isinstance(error, EventLogFullError):
        return EventLogFullError(str(error), error.retry_after_s)
    if isinstance(error, sqlite3.Error | DatabaseError | OSError):
        known = explain(error, "the event log")
        return EventLogFullError(str(known or f"the event log cannot be written: {error}"), RETRY_DISK_S)
    return error
