"""Rules of event logs with any storage: group commit, bounds, deferral, waiting, deletion of finished records.

One thread writes. It takes every record that waits, has them stored in one transaction that is on disk when it
ends, and wakes the waiters of each event loop with one call. The more requests wait, the larger the group, so the cost
of reaching the disk is shared.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import structlog

from hoglab.storage.database.errors import DatabaseError
from hoglab.storage.database.types import from_micros
from hoglab.storage.event_log import (
    EventLogFullError,
    LogRecord,
    LogStats,
    Offset,
    ReadToken,
    SequenceNumber,
    numbered,
)
from hoglab.storage.event_log.backlog import Backlog
from hoglab.storage.event_log.deferral import WINDOW_BYTES, Admitted, Deferral
from hoglab.storage.event_log.group_commit import Waiter, wake

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

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
"""Share of one owner's records in each of these two; more are refused, and those of others are taken."""

KEEP_FINISHED_S = 3600.0
KEEP_FINISHED_BYTES = 256 * MIB
"""Records that every consumer has finished are kept for this long, and up to this much, then deleted.
When space is scarce none are kept."""

TIDY_EVERY_S = 5.0
TIDY_STEP_RECORDS = 128
"""Interval at which old records are looked for, and the number deleted in one transaction."""

ACKNOWLEDGE_TIMEOUT_S = 10.0
"""Time for which an append waits for an engine across a network; then the sender is told to come back."""

RETRY_WAITING_S = 1
RETRY_BACKLOG_S = 10
RETRY_CLOSED_S = 5
"""Values of ``Retry-After`` for the reasons for which records are refused; see `RETRY_DISK_S`, too."""

RETRY_ADMITTING_S = 1.0
"""Pause after a failure before deferred records are tried again."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Limits on what a log accepts and keeps; see the constants of these names."""

    max_backlog_bytes: int = MAX_BACKLOG_BYTES
    max_waiting_bytes: int = MAX_WAITING_BYTES
    keep_finished_s: float = KEEP_FINISHED_S
    keep_finished_bytes: int = KEEP_FINISHED_BYTES
    window_bytes: int = WINDOW_BYTES


class Stored(NamedTuple):
    """Stored group: ``ready`` has offsets from ``first`` on, ``deferred`` waits; ``at`` in microseconds."""

    first: Offset
    at: int
    ready: Sequence[Waiter]
    deferred: Sequence[tuple[int, Waiter]]


class GroupCommitLog(ABC):
    """See `EventLog` and `LogWriter`: it has one partition, of which `hoglab.storage.event_log.sole` has the reader.

    `append` may be awaited in any number of event loops, in any threads.

    An engine says how records are stored and read; its constructor ends with `_start`.
    """

    partitions = 1
    max_record_bytes = MAX_RECORD_BYTES

    _acknowledge_s: float | None = None
    """Time for which an append waits, None for as long as it takes."""

    def __init__(self, name: str, limits: LogLimits) -> None:
        """Open the log; ``name`` stands for it in messages."""
        self._name = name
        self._limits = limits
        self._keep_finished_s = limits.keep_finished_s

        self._applying = (
            threading.Lock()
        )  # held from a change of the stored log until the counts below have it
        lock = threading.Lock()  # guards everything below
        self._work = threading.Condition(lock)  # the writer has something to do
        self._arrived = threading.Condition(lock)  # consumers have something to read
        self._woken = False  # whether one of them is to look around without it
        self._waiting: deque[Waiter] = deque()
        self._waiting_bytes = 0
        self._waiting_by_owner: Counter[int] = Counter()
        self._backlog = Backlog(min(MIB, limits.max_backlog_bytes // 64, max(1, limits.window_bytes // 64)))
        self._deferral = Deferral(limits.window_bytes)
        self._admits_at = 0.0  # when deferred records may go into the log: later after a failure
        self._newest_record = Offset(0)  # offset of the newest record that is stored, 0 for none
        self._last_offset = Offset(0)  # the last one given out: deleted records and `advance_sequence` count
        self._failing = False  # of the writer thread alone
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=self._write_until_closed, name="event-log", daemon=True),
            threading.Thread(target=self._tidy_until_closed, name="event-log-tidy", daemon=True),
        ]

    def _start(self) -> None:
        self._backlog.finish(self._lowest_position() or 0)
        for thread in self._threads:
            thread.start()

    # -- what an engine does ------------------------------------------------------------------------

    @abstractmethod
    def _store_group(self, group: Sequence[Waiter]) -> Stored:
        """Store records as `Deferral.divide` says, durably; raises when none is stored."""

    @abstractmethod
    def _admit_from(self, owner: int) -> Admitted | None:
        """Put the next deferred records of an owner into the log; None when there is nothing to be done any more."""

    @abstractmethod
    def _check_space(self, size: int) -> None:
        """Raise `EventLogFullError` when there is no room on the disk for ``size`` bytes."""

    @abstractmethod
    def _space_is_scarce(self) -> bool: ...

    @abstractmethod
    def _lowest_position(self) -> Offset | None:
        """Return lowest position of all consumers; None when there is no consumer."""

    @abstractmethod
    def _move_position(self, consumer: str, offset: Offset) -> None: ...

    @abstractmethod
    def _delete_step(self, up_to: int) -> list[int]:
        """Delete some records, few enough that no writer waits long, and return their sizes."""

    @abstractmethod
    def _give_back(self, *, scarce: bool) -> None:
        """Give space that deleted records took back to the disk."""

    @abstractmethod
    def _extent(self) -> tuple[Offset, int, int]:
        """Return first offset, number and bytes of the records that are stored; zeros for none."""

    @abstractmethod
    def _oldest_stored(self, after: Offset) -> int | None:
        """Return acceptance time of the first record with an offset above, in microseconds."""

    @abstractmethod
    def _last_of(self, owner: int, until: int) -> Offset | None:
        """Return the last offset of an owner's records that were accepted by a moment, in microseconds."""

    @abstractmethod
    def _first_stored(self) -> Offset | None:
        """Return the first offset of all."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Close the connections; called last, when the threads have ended."""

    @abstractmethod
    def read(self, after: Offset, *, max_records: int, max_bytes: int) -> Sequence[LogRecord]:
        """Return records above ``after`` in order.

        At most ``max_records``, and at most ``max_bytes`` unless the first alone is larger. Raises the errors of
        `hoglab.storage.database`.
        """

    @abstractmethod
    def position(self, consumer: str) -> Offset:
        """Return the last offset that this consumer has finished, 0 when it never committed."""

    @abstractmethod
    def advance_sequence(self, number: SequenceNumber) -> None:
        """Give out only offsets above ``number`` from now on; nothing changes when that is so already.

        For a log that was lost or replaced beside stores that remember offsets of the old one.
        """

    def _now_us(self) -> int:
        """Return the moment that records are stamped with, in microseconds."""
        return time.time_ns() // 1000

    # -- appending ----------------------------------------------------------------------------------

    async def append_all(
        self,
        records: Sequence[tuple[int, bytes]],
        *,
        insist: bool = False,
        owner: int | None = None,
        alone: bool = False,
    ) -> None:
        """Store records one after the other: see `LogWriter.append_all`, and `append` for what it raises."""
        for _, payload in records:
            await self.append(payload, insist=insist, owner=owner, alone=alone)

    async def append(
        self, payload: bytes, *, insist: bool = False, owner: int | None = None, alone: bool = False
    ) -> Offset:
        """Store one record and return its offset once it is on disk, 0 when it is deferred.

        Raises `EventLogFullError` when too much waits for a consumer (unless ``insist``) or for the disk, of all or of
        this ``owner``, when the disk is (nearly) full or fails, and when the log is closed; `ValueError` above
        `MAX_RECORD_BYTES`. A caller that is cancelled may or may not have its record stored, nor one that is told that
        the engine did not answer.
        """
        size = len(payload)
        if size > MAX_RECORD_BYTES:
            raise ValueError(f"a record of {size} bytes is larger than {MAX_RECORD_BYTES}")
        loop = asyncio.get_running_loop()
        waiter = Waiter(payload, loop, loop.create_future(), owner, alone)
        with self._work:
            self._admit(size, insist=insist, owner=None if alone else owner)
            self._waiting.append(waiter)
            self._waiting_bytes += size
            if owner is not None:
                self._waiting_by_owner[owner] += size
            if len(self._waiting) == 1:
                self._work.notify()
        try:
            async with asyncio.timeout(self._acknowledge_s):
                return await waiter.future
        except TimeoutError as error:
            text = f"{self._name} did not answer within {self._acknowledge_s:g} s"
            raise EventLogFullError(text, RETRY_WAITING_S) from error

    def _admit(self, size: int, *, insist: bool, owner: int | None = None) -> None:
        """Refuse a record that there is no room for."""
        if self._closed.is_set():
            raise EventLogFullError("the event log is closed", RETRY_CLOSED_S)
        if self._waiting and self._waiting_bytes + size > self._limits.max_waiting_bytes:
            raise EventLogFullError("too many events wait for the disk", RETRY_WAITING_S)
        waiting_bytes = self._backlog.pending_bytes + self._deferral.bytes + self._waiting_bytes
        if not insist and waiting_bytes + size > self._limits.max_backlog_bytes:
            raise EventLogFullError("too many events wait for ingestion", RETRY_BACKLOG_S)
        if owner is None:
            return
        waiting_bytes = self._waiting_by_owner[owner]
        if waiting_bytes and waiting_bytes + size > self._limits.max_waiting_bytes * OWNER_SHARE:
            raise EventLogFullError("too many events of one project wait for the disk", RETRY_WAITING_S)
        waiting_bytes += self._backlog.pending_of(owner) + self._deferral.bytes_of(owner)
        if not insist and waiting_bytes + size > self._limits.max_backlog_bytes * OWNER_SHARE:
            raise EventLogFullError("too many events of one project wait for ingestion", RETRY_BACKLOG_S)

    def _write_until_closed(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(self._has_work, RETRY_ADMITTING_S if self._deferral.records else None)
                if self._closed.is_set() and not self._waiting:
                    return
                group = self._take_group()
                owner = self._next_deferred()
            if group:
                self._write_group(group)
            if owner is not None:
                self._admit_deferred(owner)

    def _has_work(self) -> bool:
        return bool(self._waiting) or self._closed.is_set() or self._next_deferred() is not None

    def _next_deferred(self) -> int | None:
        """Return owner whose deferred records may go into the log now."""
        if not self._deferral.records or time.monotonic() < self._admits_at:
            return None
        return self._deferral.next_owner(self._backlog)

    def _take_group(self) -> list[Waiter]:
        group: list[Waiter] = []
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

    def _write_group(self, group: list[Waiter]) -> None:
        size = sum(len(waiter.payload) for waiter in group)
        stored, error = Stored(Offset(0), 0, (), ()), None
        with self._applying:
            try:
                self._check_space(size)
                stored = self._store_group(group)
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
                for owner, waiter in stored.deferred:
                    self._deferral.add(owner, len(waiter.payload), stored.at)
                sizes = [(waiter.owner, len(waiter.payload)) for waiter in stored.ready]
                self._note_stored(stored.first, sizes, stored.at)
        if error is None:
            ready = [(Offset(offset), waiter) for offset, waiter in enumerate(stored.ready, stored.first)]
            wake([*ready, *((Offset(0), waiter) for _, waiter in stored.deferred)], None)
        else:
            wake([(Offset(0), waiter) for waiter in group], error)

    def _note_stored(self, first: Offset, records: Sequence[tuple[int | None, int]], at: int) -> None:
        """Count records of these owners and sizes that are in the log now, from this offset on."""
        if not records:
            return
        for offset, (owner, size) in enumerate(records, first):
            self._backlog.add(offset, size, at, owner)
        self._last_offset = self._newest_record = Offset(first + len(records) - 1)
        self._arrived.notify_all()

    def _report(self, error: Exception | None) -> None:
        """Log when writing begins to fail and when it works again, not each failure between."""
        if error is not None and not self._failing:
            _log.error("event_log_cannot_write", log=self._name, reason=str(error))
        elif error is None and self._failing:
            _log.warning("event_log_writes_again", log=self._name)
        self._failing = error is not None

    def _admit_deferred(self, owner: int) -> None:
        """Put the next deferred records of an owner into the log."""
        with self._applying:
            try:
                admitted = self._admit_from(owner)
            except Exception as error:
                self._report(error)
                self._admits_at = time.monotonic() + RETRY_ADMITTING_S
                return
            if admitted is None:
                return
            first = Offset(admitted.last_offset - len(admitted.sizes) + 1)
            with self._arrived:
                self._deferral.note(admitted)
                sizes = [(admitted.owner, size) for size in admitted.sizes]
                self._note_stored(first, sizes, admitted.newest_at)

    # -- reading ------------------------------------------------------------------------------------

    def wait(self, after: Offset, timeout_s: float) -> bool:
        """Wait until a record above ``after`` exists or the time is over, and return whether one exists.

        Returns at once when the log is closed.
        """
        with self._arrived:
            self._arrived.wait_for(
                lambda: self._newest_record > after or self._woken or self._closed.is_set(), timeout_s
            )
            self._woken = False
            return self._newest_record > after

    def wake(self) -> None:
        """End the wait of the waiting consumer, or else the next wait: a consumer may be about to wait."""
        with self._arrived:
            self._woken = True
            self._arrived.notify_all()

    # -- consumers ----------------------------------------------------------------------------------

    def commit(self, consumer: str, offset: Offset) -> None:
        """Mark everything up to and including ``offset`` as finished; never moves a position back."""
        self._move_position(consumer, offset)
        self._note_finished()

    def _note_finished(self) -> None:
        """Look up how far all consumers are: the invocation queue moves positions too."""
        lowest = self._lowest_position() or 0
        with self._work:
            self._backlog.finish(lowest)
            if self._deferral.records:
                self._work.notify()

    # -- deleting -----------------------------------------------------------------------------------

    def trim(self, up_to: SequenceNumber) -> int:
        """Delete records up to and including ``up_to``, but none that a consumer has not finished.

        Returns how many bytes of records went. There is no need to call it: finished records that are old
        or many are deleted by and by (`KEEP_FINISHED_S`, `KEEP_FINISHED_BYTES`).
        """
        lowest = self._lowest_position()
        last = up_to if lowest is None else min(up_to, lowest)
        freed = 0
        while not self._closed.is_set() and (step := self._delete_step(last)):
            freed += sum(step)
        with self._work:
            self._backlog.drop(last)
            if self._newest_record <= last:
                self._newest_record = Offset(0)
        return freed

    def tidy(self) -> None:
        """Delete finished records that are old or many, and give unused space back to the disk."""
        self._note_finished()
        scarce = self._space_is_scarce()
        keep_s = 0.0 if scarce else self._keep_finished_s
        keep_bytes = 0 if scarce else self._limits.keep_finished_bytes
        older_than = self._now_us() - int(keep_s * 1e6)
        with self._work:
            up_to = self._backlog.droppable(older_than=older_than, keep_bytes=keep_bytes)
        if up_to:
            self.trim(SequenceNumber(up_to))
        self._give_back(scarce=scarce)

    def _tidy_until_closed(self) -> None:
        while not self._closed.wait(TIDY_EVERY_S):
            try:
                self.tidy()
            except DatabaseError as error:
                _log.warning("event_log_not_tidied", log=self._name, reason=str(error))
            except Exception:
                _log.exception("event_log_tidy_failed")

    # -- the whole ----------------------------------------------------------------------------------

    def stats(self) -> LogStats:
        """Return first and last offset, number and bytes of the records that are stored.

        The last offset is that which was given out last, even when its record is deleted.
        """
        first, records, size = self._extent()
        with self._work:
            return LogStats(first, self._last_offset, records, size)

    def last_offset(self) -> Offset:
        """Return the newest offset that was given out, 0 at first; cheap."""
        with self._work:
            return self._last_offset

    def accepted(self) -> int:
        """Return the number of accepted records up to a constant: for differences; cheap."""
        with self._work:
            return self._last_offset + self._deferral.records

    def read_token(self, owner: int) -> ReadToken:
        """Return records of an owner that were accepted by now; cheap."""
        with self._work:
            deferred = self._deferral.oldest_of(owner) is not None
            return ReadToken(owner, numbered(self._last_offset), self._now_us() if deferred else None)

    def resolve(self, token: ReadToken) -> SequenceNumber | None:
        """Return the number up to which all of it is in the log; None while a part is deferred.

        Where such records are gone from the log already, what is left of it begins behind all of them.
        """
        until = token.deferred_until
        if until is None:
            return token.offset
        with self._work:
            oldest = self._deferral.oldest_of(token.owner)
            last = self._last_offset
        if oldest is not None and oldest <= until:
            return None
        offset, first = self._last_of(token.owner, until), self._first_stored()
        if offset is None:
            offset = last if first is None else Offset(first - 1)
        return max(token.offset, numbered(offset))

    def oldest_after(self, position: Offset) -> datetime | None:
        """Return acceptance time of the oldest record that a consumer at ``position`` has not finished.

        The result is None for none.
        """
        with self._work:
            deferred = self._deferral.oldest()
        oldest = [moment for moment in (deferred, self._oldest_stored(position)) if moment is not None]
        return from_micros(min(oldest)) if oldest else None

    def pending_bytes(self) -> int:
        """Return bytes of records that some consumer has not finished; cheap enough for every request."""
        with self._work:
            return self._backlog.pending_bytes + self._deferral.bytes

    def deferred_bytes(self) -> int:
        """Return bytes of those among them that wait for an offset; cheap."""
        with self._work:
            return self._deferral.bytes

    def check(self) -> None:
        """Raise the `EventLogFullError` that a small record would meet now, for health checks."""
        with self._work:
            self._admit(0, insist=False)
        self._check_space(0)

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
        self._disconnect()
