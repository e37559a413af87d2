"""The loop over the partitions of an event log that this process has leases of, beside other processes with others.

One thread takes batches of one partition after the other through all steps. A batch is begun in the database before
anything comes of it: where it ends, and under which numbers its records are known from then on. Whoever takes the
partition over ends the same batch, so that the event store, which has no transactions, takes it once, whoever is still
at it. What is in the database is written under the lease: a process that was paused, and has lost it, writes nothing.
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
from hoglab.ingestion.service import IngestionService
from hoglab.ingestion.steps import Track
from hoglab.people import IngestionStage
from hoglab.storage.database import DatabaseError
from hoglab.storage.event_log import LogRecord
from hoglab.storage.event_log.partitions import (
    RENEW_EVERY_S,
    BegunBatch,
    LeaseLostError,
    LeaseRound,
    PartitionDone,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from concurrent.futures import Executor

    from hoglab.ingestion.steps import BatchSteps
    from hoglab.storage.event_log.partitions import LeasedLog, LogPartition, PartitionLease
    from hoglab.storage.event_store import PartitionedEventStore

IDLE_S = 0.02
"""Pause before the next look where nothing had come."""
LINGER_S = 0.5
"""Time for which a partition is left alone after a small batch: each is an insert, and the event store wants few."""
SMALL_RECORDS = 1_000
EVERYTHING = 1 << 62

_log = structlog.get_logger(__name__)

_HELD = Gauge("hoglab_event_log_partitions_owned", "Partitions of the event log that this process ingests.")
_TAKEN = Counter("hoglab_event_log_partitions_taken", "Partitions that this process began to ingest.")
_TAKEN_OVER = Counter(
    "hoglab_event_log_batches_taken_over", "Batches that another process had begun, and this one ended."
)
_FENCED = Counter(
    "hoglab_event_log_fenced_writes",
    "Writes that came to nothing, as another process had taken the partition.",
)


class _PartitionTrack(Track):
    """Progress through a partition, under a lease. Records have offsets of the partition until their batch is begun."""

    def __init__(self, log: LeasedLog, lease: PartitionLease) -> None:
        super().__init__()
        self._leases = log.leases
        self._lease = lease
        self.partition = lease.partition
        self.stage = IngestionStage(f"people-{lease.partition}", partial(log.leases.fence, lease=lease))
        self.begun: BegunBatch | None = log.leases.begun(lease)
        """Batch that is to be ended before anything else."""
        self.reached = log.leases.positions()[lease.partition]
        """The offset of the partition up to which everything is done."""
        self._shift = 0

    def begin(self, batch: Batch) -> None:
        """Number its records, as was done before if it was begun before. Raises `LeaseLostError`."""
        begun = self.begun
        if begun is None:
            begun = self._leases.begin(self._lease, batch.records[-1].offset, len(batch.events))
        self.begun, self._shift = begun, begun.shift
        self.first_seq = self.reached + 1 + begun.shift
        batch.records = [
            LogRecord(each.offset + begun.shift, each.appended_at, each.payload) for each in batch.records
        ]
        for event in batch.events:
            event.log_offset += begun.shift

    def done(self, offset: int) -> PartitionDone:
        """Note for dispatch: the partition is done up to the record with this number."""
        return PartitionDone(self._lease, offset - self._shift)

    def commit(self, offset: int) -> None:
        """Follow what dispatch has noted."""
        super().commit(offset)
        self._go_on_behind(offset - self._shift)

    def pass_over(self, reached: int) -> None:
        """Note that there are no records up to an offset. Raises `LeaseLostError`."""
        self._leases.finish(PartitionDone(self._lease, reached))
        self._go_on_behind(reached)

    def _go_on_behind(self, reached: int) -> None:
        self.reached = reached
        if self.begun is not None and reached >= self.begun.last:
            self.begun = None


@dataclass(slots=True)
class _Reading:
    """A partition that this process reads."""

    lease: PartitionLease
    partition: LogPartition
    track: _PartitionTrack
    rests_until: float = 0.0


class _LeaseKeeper(BackgroundService):
    """The service that renews leases, also while a batch takes long."""

    NAME: ClassVar[str] = "event-log-leases"

    def __init__(self, log: LeasedLog) -> None:
        super().__init__()
        self._leases = log.leases
        self.newest = LeaseRound({}, ())

    def forget(self, number: int) -> None:
        """Drop a partition that was found to be another's, before the next renewal tells."""
        held, surplus = self.newest
        self.newest = LeaseRound({each: lease for each, lease in held.items() if each != number}, surplus)

    def round(self) -> float | None:
        try:
            self.newest = self._leases.renew()
        except DatabaseError as error:  # whether they are lost, the database says to who writes
            _log.warning("leases_not_renewed", reason=str(error))
        return RENEW_EVERY_S


class PartitionedIngestion(IngestionService):
    """The background service that owns the loop."""

    def __init__(
        self,
        log: LeasedLog,
        store: PartitionedEventStore,
        steps: BatchSteps,
        *,
        append: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """``store``: that of the steps. ``append`` puts a record into the log again."""
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
        """Finish the batch at hand, end the threads, and let others read at once; whether all ended in time."""
        if not super().stop(timeout_s):
            return False
        self._keeper.stop()
        self._failed()
        with suppress(DatabaseError):
            self._log.leases.leave()
        return True

    def held(self) -> list[int]:
        """Return the partitions that this process reads now."""
        return sorted(self._readings)

    def _failed(self) -> None:
        """Forget all of what was read and not stored: the database says from where on it is read again."""
        for number in list(self._readings):
            self._close(number)

    def _close(self, number: int) -> None:
        self._readings.pop(number).partition.close()
        _HELD.set(len(self._readings))

    # --- the loop

    def _turn(self, decoder: Executor) -> None:
        round_ = self._keeper.newest
        self._follow(round_)
        if not self._has_room():
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
            if all(each.rests_until <= now for each in self._readings.values()):
                self._steps.rest()
            self._stopping.wait(IDLE_S)

    def _in_turn(self) -> list[int]:
        """Return the partitions, each of which is the first once."""
        numbers = sorted(self._readings)
        start = bisect_left(numbers, self._first)
        return numbers[start:] + numbers[:start]

    def _follow(self, round_: LeaseRound) -> None:
        """Open what this process was given, and let go of what is others'."""
        held, surplus = round_
        mine = {number: lease for number, lease in held.items() if number not in surplus}
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
        track = _PartitionTrack(self._log, lease)
        _TAKEN.inc()
        if track.begun is not None:
            _TAKEN_OVER.inc()
            numbers = [offset + track.begun.shift for offset in (track.reached, track.begun.last)]
            track.owe(self._steps.people.overrides_after(*numbers))
        self._readings[lease.partition] = _Reading(lease, self._log.source.partition(lease.partition), track)
        _HELD.set(len(self._readings))
        _log.info("partition_taken", partition=lease.partition, epoch=lease.epoch, position=track.reached)

    def _ingest_of(self, reading: _Reading, decoder: Executor) -> bool:
        """Ingest what has come of a partition; whether anything had."""
        now, track = time.monotonic(), reading.track
        if now < reading.rests_until:
            return False
        if track.begun is not None:
            self._ingest(track, self._rest_of(reading, track.begun), decoder, whole=True)
            return True
        if not reading.partition.wait(track.reached, 0):
            if reading.partition.reached > track.reached:
                track.pass_over(reading.partition.reached)
            return False
        limits = self._limits
        records = reading.partition.read(
            track.reached, max_records=limits.read_records, max_bytes=limits.read_bytes
        )
        self._ingest(track, records, decoder, whole=False)
        if len(records) < SMALL_RECORDS:
            reading.rests_until = now + LINGER_S
        return True

    def _rest_of(self, reading: _Reading, begun: BegunBatch) -> list[LogRecord]:
        """Return all records of a batch that are not done."""
        records: list[LogRecord] = []
        after = reading.track.reached
        while after < begun.last and not self._stopping.is_set():
            if reading.partition.wait(after, self._limits.idle_s):
                records += reading.partition.read(after, max_records=EVERYTHING, max_bytes=EVERYTHING)
                after = records[-1].offset
            after = max(after, reading.partition.reached)
        return [each for each in records if each.offset <= begun.last]

    def _ingest(
        self, track: _PartitionTrack, records: Sequence[LogRecord], decoder: Executor, *, whole: bool
    ) -> None:
        """Process records in batches, or all in one; those that cannot be processed go into quarantine."""
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
                track.begin(alone)
                steps.put_aside(track, alone.records[0], batch.reason)
            else:
                steps.finish(track, batch)
