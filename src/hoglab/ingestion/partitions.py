"""The loop over the partitions of an event log that this process has leases for; other processes have others.

One thread takes batches of one partition after the other through all steps. A batch is begun in the database before it
has any effect: the row says where it ends, and which sequence numbers its records have from then on. A process that
takes the partition over finishes the same batch, so that the event store, which has no transactions, stores it once,
even if two processes work on it. Rows of the database are written under the lease: a process that was paused, and has
lost its lease, writes nothing.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import structlog
from prometheus_client import Counter, Gauge

from hoglab.background import STOP_TIMEOUT_S, BackgroundService
from hoglab.ingestion.batches import Batch, Unreadable, ahead, batches_of
from hoglab.ingestion.service import Ingestion
from hoglab.ingestion.steps import Cursor
from hoglab.people import LogStage
from hoglab.storage.database import DatabaseError
from hoglab.storage.event_log import Offset, SequenceNumber, numbered
from hoglab.storage.event_log.partitions import (
    RENEW_EVERY_S,
    LeaseLostError,
    LeaseRound,
    OpenBatch,
    PartitionDone,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from concurrent.futures import Executor

    from hoglab.ingestion.steps import BatchSteps
    from hoglab.storage.event_log import LogRecord
    from hoglab.storage.event_log.partitions import LeasedLog, LogPartition, PartitionLease
    from hoglab.storage.event_store import PartitionedEventStore

IDLE_S = 0.02
"""Pause before the next look when there were no new records."""
LINGER_S = 0.5
"""Time for which a partition is left alone after a small batch: each is an insert, and the event store wants few."""
SMALL_RECORDS = 1_000
"""Number of records below which a batch is small."""
EVERYTHING = 1 << 62

_log = structlog.get_logger(__name__)

_OWNED = Gauge("hoglab_event_log_partitions_owned", "Partitions of the event log that this process ingests.")
_TAKEN = Counter("hoglab_event_log_partitions_taken", "Partitions that this process began to ingest.")
_TAKEN_OVER = Counter(
    "hoglab_event_log_batches_taken_over", "Batches that another process had begun, and this one ended."
)
_FENCED = Counter(
    "hoglab_event_log_fenced_writes",
    "Writes that came to nothing, as another process had taken the partition.",
)


class _PartitionCursor(Cursor):
    """Progress through a partition, under a lease. Records have offsets of the partition until their batch is begun."""

    def __init__(self, log: LeasedLog, lease: PartitionLease) -> None:
        super().__init__()
        self._leases = log.leases
        self._lease = lease
        self.partition = lease.partition
        self.stage = LogStage(f"people-{lease.partition}", partial(log.leases.fence, lease=lease))
        self.open_batch: OpenBatch | None = log.leases.open_batch(lease)
        """The batch that is to be finished before anything else."""
        self.reached = log.leases.positions()[lease.partition]
        """The offset of the partition up to which everything is done."""

    def begin(self, batch: Batch) -> None:
        """Give the records of a batch their sequence numbers: the same ones if it was begun before.

        Raises `LeaseLostError`.
        """
        if self.open_batch is None:
            last = batch.records[-1].offset
            self.open_batch = self._leases.begin(self._lease, last, len(batch.events))
        self.sequence_offset = sequence_offset = self.open_batch.sequence_offset
        self.first_seq = numbered(Offset(self.reached + 1), sequence_offset)
        for event in batch.events:
            event.log_offset = SequenceNumber(event.log_offset + sequence_offset)

    def done(self, record: LogRecord) -> PartitionDone:
        """Return what dispatch notes: the partition is done up to a record."""
        return PartitionDone(self._lease, record.offset)

    def commit(self, record: LogRecord) -> None:
        """Move behind the record that dispatch has noted."""
        super().commit(record)
        self._resume_after(record.offset)

    def skip_empty(self, reached: Offset) -> None:
        """Note that there are no records up to an offset. Raises `LeaseLostError`."""
        self._leases.finish(PartitionDone(self._lease, reached))
        self._resume_after(reached)

    def _resume_after(self, reached: Offset) -> None:
        self.reached = reached
        if self.open_batch is not None and reached >= self.open_batch.last:
            self.open_batch = None


@dataclass(slots=True)
class _Reading:
    """A partition that this process reads."""

    lease: PartitionLease
    partition: LogPartition
    cursor: _PartitionCursor
    rests_until: float = 0.0


class _LeaseKeeper(BackgroundService):
    """The service that renews leases, also while a batch takes long."""

    NAME: ClassVar[str] = "event-log-leases"

    def __init__(self, log: LeasedLog) -> None:
        super().__init__()
        self._leases = log.leases
        self.newest = LeaseRound({}, ())

    def forget(self, number: int) -> None:
        """Drop a partition that turned out to be another process's, before the next renewal tells."""
        owned, surplus = self.newest
        self.newest = LeaseRound(
            {partition: lease for partition, lease in owned.items() if partition != number}, surplus
        )

    def round(self) -> float | None:
        try:
            self.newest = self._leases.renew()
        except DatabaseError as error:  # whether they are lost, the database says to who writes
            _log.warning("leases_not_renewed", reason=str(error))
        return RENEW_EVERY_S


class PartitionedIngestion(Ingestion):
    """The background service that owns the loop."""

    def __init__(
        self,
        log: LeasedLog,
        store: PartitionedEventStore,
        steps: BatchSteps,
        *,
        append: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """Ingest into ``store``, that of ``steps``; ``append`` puts a record into the log again."""
        super().__init__(steps)
        self._log = log
        self._store = store
        self._append = append
        self._keeper = _LeaseKeeper(log)
        self._readings: dict[int, _Reading] = {}
        self._stored_under: dict[int, PartitionLease] = {}  # what the store knows is of these leases
        self._first = 0  # whose turn it is

    def start(self) -> None:
        """Start the threads."""
        self._keeper.start()
        super().start()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Finish the current batch, end the threads, and give up the leases; return whether all ended in time."""
        if not super().stop(timeout_s):
            return False
        self._keeper.stop()
        self._failed()
        with suppress(DatabaseError):
            self._log.leases.leave()
        return True

    def owned(self) -> list[int]:
        """Return the partitions that this process reads now."""
        return sorted(self._readings)

    def _failed(self) -> None:
        """Forget all records that were read and not stored: the database knows where reading continues."""
        for number in list(self._readings):
            self._close(number)

    def _close(self, number: int) -> None:
        self._readings.pop(number).partition.close()
        _OWNED.set(len(self._readings))

    # --- the loop

    def _turn(self, decoder: Executor) -> None:
        round_ = self._keeper.newest
        self._follow(round_)
        if not self._has_capacity():
            return
        self._replay(self._append)
        is_busy = False
        for number in self._in_turn():
            if self._stopping.is_set() or self._keeper.newest is not round_:
                return
            self._first = number + 1
            try:
                is_busy |= self._ingest_of(self._readings[number], decoder)
            except LeaseLostError as error:
                _FENCED.inc()
                _log.warning("partition_lost", partition=number, reason=str(error))
                self._close(number)
                self._keeper.forget(number)
        if not is_busy:
            now = time.monotonic()
            if all(reading.rests_until <= now for reading in self._readings.values()):
                self._steps.rest()
            self._stopping.wait(IDLE_S)

    def _in_turn(self) -> list[int]:
        """Return the partitions, each of which is the first once."""
        numbers = sorted(self._readings)
        start = bisect_left(numbers, self._first)
        return numbers[start:] + numbers[:start]

    def _follow(self, round_: LeaseRound) -> None:
        """Open the partitions that this process was given, and close those of other processes."""
        owned, surplus = round_
        mine = {number: lease for number, lease in owned.items() if number not in surplus}
        for number, reading in list(self._readings.items()):
            if mine.get(number) != reading.lease:
                self._close(number)
        if surplus:
            self._log.leases.give_up(surplus)
        for number in mine.keys() - self._readings.keys():
            self._open(mine[number])

    def _open(self, lease: PartitionLease) -> None:
        if self._stored_under.get(lease.partition) != lease:
            self._store.forget(lease.partition)
            self._stored_under[lease.partition] = lease
        cursor = _PartitionCursor(self._log, lease)
        _TAKEN.inc()
        if (batch := cursor.open_batch) is not None:
            _TAKEN_OVER.inc()
            bounds = [numbered(offset, batch.sequence_offset) for offset in (cursor.reached, batch.last)]
            cursor.add_pending_merges(self._steps.people.overrides_after(*bounds))
        self._readings[lease.partition] = _Reading(lease, self._log.source.partition(lease.partition), cursor)
        _OWNED.set(len(self._readings))
        _log.info("partition_taken", partition=lease.partition, epoch=lease.epoch, position=cursor.reached)

    def _ingest_of(self, reading: _Reading, decoder: Executor) -> bool:
        """Ingest new records of a partition, and return whether there were any."""
        now, cursor = time.monotonic(), reading.cursor
        if now < reading.rests_until:
            return False
        if cursor.open_batch is not None:
            self._ingest(cursor, self._rest_of(reading, cursor.open_batch), decoder, whole=True)
            return True
        if not reading.partition.wait(cursor.reached, 0):
            if reading.partition.reached > cursor.reached:
                cursor.skip_empty(reading.partition.reached)
            return False
        limits = self._limits
        records = reading.partition.read(
            cursor.reached, max_records=limits.read_records, max_bytes=limits.read_bytes
        )
        self._ingest(cursor, records, decoder, whole=False)
        if len(records) < SMALL_RECORDS:
            reading.rests_until = now + LINGER_S
        return True

    def _rest_of(self, reading: _Reading, batch: OpenBatch) -> list[LogRecord]:
        """Return all records of a batch that are not done."""
        records: list[LogRecord] = []
        after = reading.cursor.reached
        while after < batch.last and not self._stopping.is_set():
            if reading.partition.wait(after, self._limits.idle_s):
                records += reading.partition.read(after, max_records=EVERYTHING, max_bytes=EVERYTHING)
                after = records[-1].offset
            after = max(after, reading.partition.reached)
        return [record for record in records if record.offset <= batch.last]

    def _ingest(
        self, cursor: _PartitionCursor, records: Sequence[LogRecord], decoder: Executor, *, whole: bool
    ) -> None:
        """Process records in batches, or all in one; records that cannot be processed go into quarantine."""
        steps, limits = self._steps, self._limits
        batches = batches_of(
            records,
            max_events=(lambda: EVERYTHING) if whole else steps.batch_events,
            max_json_bytes=EVERYTHING if whole else limits.batch_json_bytes,
        )
        for batch in ahead(batches, decoder):
            if self._stopping.is_set():
                return
            if isinstance(batch, Unreadable):
                alone = Batch([batch.record], [], [], 0)
                cursor.begin(alone)
                steps.quarantine_record(cursor, alone.records[0], batch.reason)
            else:
                steps.finish(cursor, batch)
