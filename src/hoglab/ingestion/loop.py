"""The loop from the partitions of an event log to the event store, persons and hog functions.

One thread takes batches of one partition after the other through all steps (`hoglab.ingestion.steps`): of those that
the ledger gives this process. A second thread decodes the next batch meanwhile, which has no effect that could be lost.

Where processes share the log, a batch is begun in the ledger before it has any effect: the ledger says where it ends,
and which sequence numbers its records have from then on. A process that takes the partition over finishes the same
batch, so that the event store, which has no transactions, stores it once, even if two processes work on it. Rows of the
database are written under the lease: a process that was paused, and has lost its lease, writes nothing.

What fails is tried again, for nothing is lost by that: the position has not moved. Meanwhile the loop stands still, and
says so.
"""

from __future__ import annotations

import asyncio
import threading
import time
from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import structlog
from prometheus_client import Counter, Gauge

from hoglab.background import BackgroundService
from hoglab.capture.partitioning import append_again
from hoglab.capture.records import as_replayed
from hoglab.ingestion.batches import Batch, Unreadable, ahead, batches_of
from hoglab.ingestion.quarantine import QuarantineFullError
from hoglab.ingestion.steps import RETRIES, Cursor
from hoglab.storage.database import DatabaseError
from hoglab.storage.event_log import EventLogFullError, SequenceNumber, numbered
from hoglab.storage.event_log.partitions import RENEW_EVERY_S, LeaseLostError, LeaseRound
from hoglab.storage.event_log.sole import SoleLedger, SoleReader
from hoglab.storage.event_store import EventStoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from concurrent.futures import Executor

    from hoglab.ingestion.steps import BatchSteps, IngestionLimits
    from hoglab.storage.event_log import LogReader, LogRecord
    from hoglab.storage.event_log.log import GroupCommitLog
    from hoglab.storage.event_log.partitions import Ledger, OpenBatch, PartitionLease
    from hoglab.storage.event_log.progress import LeasedLog
    from hoglab.storage.event_store import PartitionedEventStore

IDLE_S = 0.02
"""Pause before the next look at several partitions when there were no new records."""
LINGER_S = 0.5
"""Time for which a shared partition is left alone after a small batch: the event store wants few inserts."""
SMALL_RECORDS = 1_000
"""Number of records below which a batch is small."""
EVERYTHING = 1 << 62
REPLAY_EVERY_S = 1.0
"""Interval at which records are looked for that are to go back from quarantine into the log."""

_log = structlog.get_logger(__name__)

LAG_SECONDS = Gauge("hoglab_ingestion_lag_seconds", "Age of the oldest record that waits to be ingested.")
DEFERRED_BYTES = Gauge(
    "hoglab_event_log_deferred_bytes",
    "Accepted records that wait for others of their project to be ingested.",
)
_REPLAYED = Counter(
    "hoglab_ingestion_replayed_records", "Log records that went from quarantine back into the log."
)
_STANDS_STILL = Gauge("hoglab_ingestion_stands_still", "Whether a fault of the server stops ingestion.")
_OWNED = Gauge("hoglab_event_log_partitions_owned", "Partitions of the event log that this process ingests.")
_TAKEN = Counter("hoglab_event_log_partitions_taken", "Partitions that this process began to ingest.")
_TAKEN_OVER = Counter(
    "hoglab_event_log_batches_taken_over", "Batches that another process had begun, and this one ended."
)
_FENCED = Counter(
    "hoglab_event_log_fenced_writes",
    "Writes that came to nothing, as another process had taken the partition.",
)


@dataclass(slots=True)
class _Reading:
    """A partition that this process reads."""

    lease: PartitionLease
    reader: LogReader
    cursor: Cursor
    rests_until: float = 0.0


class _LeaseKeeper(BackgroundService):
    """The service that renews leases, also while a batch takes long."""

    NAME: ClassVar[str] = "event-log-leases"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger
        self.newest = LeaseRound({}, ())

    def start(self) -> None:
        """Start to renew leases; one that nobody else takes is taken once. Raises `DatabaseError` for that one."""
        if self._ledger.is_shared:
            super().start()
        else:
            self.newest = self._ledger.renew()

    def forget(self, number: int) -> None:
        """Drop a partition that turned out to be another process's, before the next renewal tells."""
        owned, surplus = self.newest
        self.newest = LeaseRound(
            {partition: lease for partition, lease in owned.items() if partition != number}, surplus
        )

    def round(self) -> float | None:
        try:
            self.newest = self._ledger.renew()
        except DatabaseError as error:  # whether they are lost, the database says to who writes
            _log.warning("leases_not_renewed", reason=str(error))
        return RENEW_EVERY_S


class CapturePressure:
    """Pauses of ingestion for requests to the same process, which go first while more come than can be ingested.

    Used by one thread.
    """

    def __init__(self, log: GroupCommitLog, limits: IngestionLimits) -> None:
        self._log = log
        self._limits = limits
        self._seen = log.accepted()  # at the last look

    def pause_s(self, done: int, *, seconds: float, functions_s: float) -> float:
        """Return the pause after work on ``done`` records, in seconds; 0 where ingestion keeps up.

        Of the time that functions took only as much counts as there was other work: slow ones are no reason to be
        slower still.
        """
        limits, accepted = self._limits, self._log.accepted()
        arrived, self._seen = accepted - self._seen, accepted
        own_s = min(seconds, 2 * (seconds - functions_s))
        if (
            arrived * own_s > done * limits.busy_factor * seconds
            and self._log.pending_bytes() < limits.busy_until_bytes
        ):
            return min(own_s * (1 / limits.busy_share - 1), limits.max_pause_s)
        return 0.0


class LogIngestion:
    """The background service that owns the loop. `start` once, `stop` once."""

    def __init__(
        self,
        open_reader: Callable[[int], LogReader],
        ledger: Ledger,
        steps: BatchSteps,
        *,
        append: Callable[[bytes], Awaitable[None]],
        on_taken: Callable[[int], None] = lambda _: None,
        pressure: CapturePressure | None = None,
        measures: Mapping[Gauge, Callable[[], float]],
    ) -> None:
        """Ingest the partitions that the ledger gives; ``open_reader`` returns the reader of one.

        ``append`` puts a record into the log again. ``on_taken`` is told of each partition that another process may
        have written of. ``measures``: the metrics of the log while it is ingested, `LAG_SECONDS` among them.
        """
        self._steps = steps
        self._limits = steps.limits
        self._stopping = steps.stopping
        self._thread: threading.Thread | None = None
        self._fault: str | None = None
        self._replayed_at = -REPLAY_EVERY_S
        self._open_reader = open_reader
        self._ledger = ledger
        self._append = append
        self._on_taken = on_taken
        self._pressure = pressure
        self._measures = measures
        self._keeper = _LeaseKeeper(ledger)
        self._readings: dict[int, _Reading] = {}
        self._taken_under: dict[int, PartitionLease] = {}  # what the store knows is of these leases
        self._first = 0  # whose turn it is
        self._hurried = threading.Event()  # somebody waits for records, or for the end
        # A single partition is waited for; several are looked at in turn.
        self._wait_s, self._idle_s = (0.0, IDLE_S) if ledger.is_shared else (self._limits.idle_s, 0.0)
        self._linger_s = LINGER_S if ledger.is_shared else self._limits.linger_s

    @classmethod
    def alone(cls, log: GroupCommitLog, steps: BatchSteps) -> LogIngestion:
        """Return the loop over a log that no other process ingests."""
        stored, dispatcher = partial(steps.store.position, 0), steps.dispatcher
        ledger = SoleLedger(
            log,
            stored=stored,
            applied=steps.people.position,
            dispatched=stored if dispatcher is None else dispatcher.position,
        )
        return cls(
            lambda _: SoleReader(log),
            ledger,
            steps,
            append=partial(append_again, log),
            pressure=CapturePressure(log, steps.limits),
            measures={LAG_SECONDS: ledger.lag_s, DEFERRED_BYTES: log.deferred_bytes},
        )

    @classmethod
    def shared(cls, log: LeasedLog, store: PartitionedEventStore, steps: BatchSteps) -> LogIngestion:
        """Return the loop over the partitions of which this process has leases; ``store`` is that of the steps."""
        return cls(
            log.source.partition,
            log.leases,
            steps,
            append=partial(append_again, log.source),
            on_taken=store.forget,
            measures={LAG_SECONDS: log.source.lag_s},
        )

    # --- life

    def start(self) -> None:
        """Start the threads."""
        self._keeper.start()
        for gauge, measure in self._measures.items():
            gauge.set_function(measure)
        self._thread = threading.Thread(target=self._run, name="ingestion", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Finish the current batch, end the threads, and give up the leases; return whether all ended in time."""
        self._stopping.set()
        self.hurry()
        for reading in list(self._readings.values()):
            reading.reader.wake()
        for gauge in self._measures:
            gauge.set_function(lambda: 0.0)
        if self._thread is not None:
            self._thread.join(timeout_s)
        if self.is_alive():
            return False
        self._keeper.stop()
        self._forget()
        with suppress(DatabaseError):
            self._ledger.leave()
        return True

    def hurry(self) -> None:
        """Ingest what waits without lingering, because somebody waits for it; partitions of a shared log linger on."""
        self._hurried.set()

    def is_alive(self) -> bool:
        """Return whether the loop runs, for health checks."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def fault(self) -> str | None:
        """Reason for which the loop stands still, and its remedy; None while it runs."""
        return self._fault

    @property
    def position(self) -> SequenceNumber:
        """The number of the record up to which everything is done. Raises `DatabaseError`."""
        return self._ledger.stored()

    def lag_s(self) -> float:
        """Return the age of the oldest record that waits to be ingested, in seconds; 0 when none does."""
        return self._measures[LAG_SECONDS]()

    def owned(self) -> list[int]:
        """Return the partitions that this process reads now."""
        return sorted(self._readings)

    def _forget(self) -> None:
        """Forget all records that were read and not stored: the ledger knows where reading continues."""
        for number in list(self._readings):
            self._close(number)

    def _close(self, number: int) -> None:
        self._readings.pop(number).reader.close()
        _OWNED.set(len(self._readings))

    # --- the loop

    def _run(self) -> None:
        with ThreadPoolExecutor(1, thread_name_prefix="ingestion-decoder") as decoder:
            retry_s = self._limits.retry_s
            while not self._stopping.is_set():
                try:
                    self._turn(decoder)
                    retry_s = self._limits.retry_s
                    self._note_fault(None)
                except Exception as error:
                    RETRIES.inc()
                    _log.exception("ingestion failed and tries again", retry_s=retry_s)
                    self._note_fault(error)
                    self._forget()
                    self._stopping.wait(retry_s)
                    retry_s = min(retry_s * 2, self._limits.max_retry_s)
            self._steps.flush()

    def _note_fault(self, error: Exception | None) -> None:
        before = self._fault
        self._fault = None if error is None else f"stands still, and loses nothing: {error}; {_remedy(error)}"
        if (before is None) != (error is None):
            _STANDS_STILL.set(error is not None)

    def _turn(self, decoder: Executor) -> None:
        round_ = self._keeper.newest
        self._follow(round_)
        if not self._has_capacity():
            return
        self._replay()
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
            self._stopping.wait(self._idle_s)

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
            self._ledger.give_up(surplus)
        for number in mine.keys() - self._readings.keys():
            self._open(mine[number])

    def _open(self, lease: PartitionLease) -> None:
        if self._taken_under.get(lease.partition) != lease:
            self._on_taken(lease.partition)
            self._taken_under[lease.partition] = lease
        cursor = self._continued(lease)
        self._readings[lease.partition] = _Reading(lease, self._open_reader(lease.partition), cursor)
        _OWNED.set(len(self._readings))

    def _continued(self, lease: PartitionLease) -> Cursor:
        """Return the cursor of a partition, with the merges that a crash, or a failure, kept from the store."""
        people, dispatcher, store = self._steps.people, self._steps.dispatcher, self._steps.store
        if not self._ledger.is_shared:
            stored = store.position(lease.partition)
            dispatched = stored if dispatcher is None else dispatcher.position()
            cursor = Cursor(self._ledger, lease, dispatched=dispatched)
            cursor.add_pending_merges(people.overrides_after(stored))
            return cursor
        cursor = Cursor(self._ledger, lease, dispatched=SequenceNumber(0))
        _TAKEN.inc()
        _log.info("partition_taken", partition=lease.partition, epoch=lease.epoch, position=cursor.reached)
        if (batch := cursor.open_batch) is not None:
            _TAKEN_OVER.inc()
            bounds = [numbered(offset, batch.sequence_offset) for offset in (cursor.reached, batch.last)]
            cursor.add_pending_merges(people.overrides_after(*bounds))
        return cursor

    def _ingest_of(self, reading: _Reading, decoder: Executor) -> bool:
        """Ingest new records of a partition, and return whether there were any."""
        cursor, reader = reading.cursor, reading.reader
        rest_s = reading.rests_until - time.monotonic()
        if rest_s > 0:
            if self._ledger.is_shared:
                return False
            self._hurried.wait(rest_s)
        self._hurried.clear()  # before reading: what is in the log by now is read
        batch = cursor.open_batch
        if batch is not None and batch.is_whole:
            self._ingest(cursor, self._rest_of(reading, batch), decoder, whole=True)
            return True
        if not reader.wait(cursor.reached, self._wait_s):
            if reader.reached > cursor.reached:
                cursor.skip_empty(reader.reached)
            return False
        limits, begun_at = self._limits, time.monotonic()
        records = reader.read(cursor.reached, max_records=limits.read_records, max_bytes=limits.read_bytes)
        if batch is not None:
            records = [record for record in records if record.offset <= batch.last]
            if not records:
                cursor.skip_empty(batch.last)  # they were in a log before this one
                return True
        before, started_at, self._steps.functions_s = cursor.reached, self._steps.clock(), 0.0
        self._ingest(cursor, records, decoder, whole=False)
        if self._pressure is not None:
            seconds, functions_s = self._steps.clock() - started_at, self._steps.functions_s
            done = cursor.reached - before
            self._stopping.wait(self._pressure.pause_s(done, seconds=seconds, functions_s=functions_s))
        reading.rests_until = begun_at + self._linger_s if len(records) < SMALL_RECORDS else 0.0
        return True

    def _rest_of(self, reading: _Reading, batch: OpenBatch) -> list[LogRecord]:
        """Return all records of a batch that are not done."""
        records: list[LogRecord] = []
        after = reading.cursor.reached
        while after < batch.last and not self._stopping.is_set():
            if reading.reader.wait(after, self._limits.idle_s):
                records += reading.reader.read(after, max_records=EVERYTHING, max_bytes=EVERYTHING)
                after = records[-1].offset
            after = max(after, reading.reader.reached)
        return [record for record in records if record.offset <= batch.last]

    def _ingest(
        self, cursor: Cursor, records: Sequence[LogRecord], decoder: Executor, *, whole: bool
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
                cursor.begin(Batch([batch.record], [], [], 0))
                steps.quarantine_record(cursor, batch.record, batch.reason)
            else:
                steps.finish(cursor, batch)

    def _has_capacity(self) -> bool:
        """Return whether delivery takes more; waits a moment where not."""
        dispatcher = self._steps.dispatcher
        if dispatcher is None or dispatcher.has_capacity():
            return True
        self._stopping.wait(self._limits.room_poll_s)
        return False

    def _replay(self) -> None:
        """Put records from quarantine back into the log. Events that are stored already are not stored again."""
        now = time.monotonic()
        if now < self._replayed_at + REPLAY_EVERY_S:
            return
        self._replayed_at = now
        quarantine = self._steps.quarantine
        for offset, payload in quarantine.replaying():
            try:
                asyncio.run(_awaited(self._append(as_replayed(payload))))
            except EventLogFullError as error:
                _log.warning("replay_waits", reason=str(error))
                return
            quarantine.discard([offset])
            _REPLAYED.inc()
            _log.info("record_replayed", offset=offset)


async def _awaited(appended: Awaitable[None]) -> None:
    await appended


def _remedy(error: Exception) -> str:
    """Return the remedy for an error that stops the loop, for an operator."""
    if isinstance(error, QuarantineFullError):
        return "then it goes on by itself"
    if isinstance(error, MemoryError):
        return "give the server more memory"
    if isinstance(error, DatabaseError | EventStoreUnavailableError | OSError):
        return "check the disk, and run `hoglab check`; it goes on by itself once that is mended"
    return "the server's log has more about it"
