"""The steps of a batch of records: transformations, persons, the event store, dispatch, and then the position.

When a process ends between two of these steps, the batch is processed again from the log with the same result: persons
are idempotent, the store knows the log offset of its events, and so does the dispatcher. (Its events have their
persons' properties as they are then, after the whole batch.)

An error is either the server's own fault (a damaged file, an engine away, no memory, a full disk) and is raised, or
the fault of one record, which goes into quarantine. A record is to blame only when a healthy one about the same
persons, of the same project, gets through all steps (`BatchSteps._dry_run`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import structlog
from prometheus_client import Counter, Histogram

from hoglab.ingestion.batches import Batch, BatchSize, batch_of
from hoglab.ingestion.normalise import Event, row_of
from hoglab.ingestion.quarantine import QuarantineFullError
from hoglab.people import ALL_EVENTS, LogStage
from hoglab.people.identity import clean_distinct_id
from hoglab.storage.database import DatabaseError
from hoglab.storage.event_log import Offset, SequenceNumber, numbered
from hoglab.storage.event_log.partitions import PartitionDone
from hoglab.storage.event_store import EventBatch, EventRow
from hoglab.storage.event_store.ingested import IngestedEvent

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from hoglab.delivery.dispatch import EventDispatcher
    from hoglab.functions.runtime.transformations import Transformations
    from hoglab.http.identity import Project
    from hoglab.ingestion.flag_calls import FlagCalls
    from hoglab.ingestion.quarantine import Quarantine
    from hoglab.people import PersonService
    from hoglab.storage.event_log import LogRecord
    from hoglab.storage.event_log.partitions import Ledger, OpenBatch, PartitionLease
    from hoglab.storage.event_store import EventWriter, PersonOverride

MIB = 1024 * 1024

_logger = structlog.get_logger(__name__)

_STORED = Counter("hoglab_ingestion_events", "Events stored for the first time.")
_RESENT = Counter("hoglab_ingestion_resent_events", "Events that were stored already.")
_DROPPED = Counter("hoglab_ingestion_dropped_events", "Events dropped on purpose.", ["reason"])
_QUARANTINED = Counter("hoglab_ingestion_quarantined_records", "Log records put into quarantine.")
RETRIES = Counter("hoglab_ingestion_retries", "Batches that were tried again after an error.")
_BATCH_SECONDS = Histogram("hoglab_ingestion_batch_seconds", "Time to process one batch.")

SERVERS_FAULT = (DatabaseError, MemoryError, OSError, QuarantineFullError)
"""Errors for which no record is to blame; errors of the event store are not among them."""

DRY_RUN_EVENT = "$dry_run"


@dataclass(frozen=True, slots=True)
class IngestionLimits:
    """Limits of reading and processing, and the loop's patience."""

    read_records: int = 10_000  # cut into batches, which are decoded one ahead
    read_bytes: int = 8 * MIB
    batch_events: int = 5_000
    batch_json_bytes: int = 24 * MIB
    # Of events that are transformed: how many at first, and while that is slow, and how long it should take.
    first_events: int = 1_000
    least_events: int = 100
    transform_s: float = 2.0
    attempts: int = 3  # of a record alone, before it is put into quarantine
    retry_s: float = 0.5
    max_retry_s: float = 10.0
    idle_s: float = 0.5
    # Time from the start of a small batch to the next one, unless somebody waits for events: each takes milliseconds.
    linger_s: float = 0.0
    room_poll_s: float = 0.05
    # While requests come in this many times faster than they are ingested, a pace that cannot be kept up
    # with, most of the time is left to accepting them, until so much waits that catching up matters more.
    busy_factor: float = 3.0
    busy_share: float = 0.15
    busy_until_bytes: int = 512 * MIB
    max_pause_s: float = 4.0


class Cursor:
    """Progress through a partition, under a lease. Raises `LeaseLostError` when that is another process's."""

    def __init__(self, ledger: Ledger, lease: PartitionLease, *, dispatched: SequenceNumber) -> None:
        """Continue where the ledger says; ``dispatched``: the record up to which dispatch has everything."""
        self._ledger = ledger
        self._lease = lease
        self.partition = lease.partition
        self.stage = (
            LogStage(f"people-{lease.partition}", partial(ledger.fence, lease=lease))
            if ledger.is_shared
            else ALL_EVENTS
        )
        self.open_batch: OpenBatch | None = ledger.open_batch(lease)
        """The batch that is to be finished before anything else."""
        self.reached = ledger.positions()[lease.partition]
        """The offset up to which everything is done."""
        self.dispatched = dispatched
        self.sequence_offset = 0
        """The difference between the numbers of the records of the current batch and their offsets."""
        self.first_seq: SequenceNumber | None = None
        """``seq`` of the first event of the current batch; None where the store numbers events itself."""
        self.pending_merges: dict[tuple[int, UUID], PersonOverride] = {}
        """Merges that persons have and the store does not have yet, by project and old person id."""

    def add_pending_merges(self, overrides: Sequence[PersonOverride]) -> None:
        """Remember merges until the store has them."""
        self.pending_merges.update(
            {(override.project_id, override.old_person_id): override for override in overrides}
        )

    def number_of(self, record: LogRecord) -> SequenceNumber:
        """Return the number by which the effects of a record of the current batch are known."""
        return numbered(record.offset, self.sequence_offset)

    def begin(self, batch: Batch) -> None:
        """Give the records of a batch, and their events, their numbers: the same ones if it was begun before."""
        if self.open_batch is None:
            last = batch.records[-1].offset
            self.open_batch = self._ledger.begin(self._lease, last, len(batch.events))
        self.sequence_offset = self.open_batch.sequence_offset
        if self._ledger.is_shared:  # places of events are of the same count
            self.first_seq = numbered(Offset(self.reached + 1), self.sequence_offset)
        if self.sequence_offset:
            for event in batch.events:
                event.log_offset = SequenceNumber(event.log_offset + self.sequence_offset)

    def done(self, record: LogRecord) -> PartitionDone | None:
        """Return what dispatch notes with its runs, under the lease; None where it has a position of its own."""
        return PartitionDone(self._lease, record.offset) if self._ledger.is_shared else None

    def commit(self, record: LogRecord) -> None:
        """Move behind a record of the current batch, of which everything is done."""
        if not self._ledger.is_shared:
            self._ledger.finish(PartitionDone(self._lease, record.offset))
        self._resume_after(record.offset)

    def skip_empty(self, reached: Offset) -> None:
        """Note that there are no records up to an offset."""
        self._ledger.finish(PartitionDone(self._lease, reached))
        self._resume_after(reached)

    def _resume_after(self, reached: Offset) -> None:
        self.reached = reached
        if self.open_batch is not None and reached >= self.open_batch.last:
            self.open_batch = None


class BatchSteps:
    """Steps of batches, in one thread."""

    def __init__(
        self,
        store: EventWriter,
        people: PersonService,
        project: Callable[[int], Project | None],
        quarantine: Quarantine,
        *,
        dispatcher: EventDispatcher | None = None,
        transformer: Transformations | None = None,
        flag_calls: FlagCalls | None = None,
        limits: IngestionLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stopping = threading.Event()
        """Set when no further record is to be begun."""
        self.at_rest: list[Callable[[], None]] = []
        """Called when there is nothing else to do after something was stored."""
        self.store = store
        self.people = people
        self.quarantine = quarantine
        self.dispatcher = dispatcher
        self.limits = limits = limits or IngestionLimits()
        self._project = project
        self._transformer = transformer
        self._flag_calls = flag_calls
        self.clock = clock
        self.batch_events = BatchSize(
            limits.batch_events,
            first=limits.batch_events if transformer is None else limits.first_events,
            least=limits.least_events,
            wanted_s=limits.transform_s,
        )
        self.functions_s = 0.0
        """Seconds of transforming and dispatching since it was last set to 0."""
        self._dirty = False  # whether something was stored since the last checkpoint

    def flush(self) -> None:
        """Write what was deferred, and log a warning where that fails."""
        if self.dispatcher is not None:
            try:
                self.dispatcher.flush()
            except Exception as error:
                _logger.warning("metrics of functions were not written", error=str(error))

    def rest(self) -> None:
        """Write what was deferred, in files of the store as well, because there is nothing else to do."""
        if self._dirty:
            self.flush()
            for write in self.at_rest:
                write()
            self.people.forget_old_warnings()
            self._dirty = False

    def finish(self, cursor: Cursor, batch: Batch) -> None:
        """Process a batch; when it fails, its records one by one, to find the one that makes it fail."""
        cursor.begin(batch)
        try:
            self._process(cursor, batch)
        except SERVERS_FAULT:
            raise
        except Exception:
            if len(batch.records) == 1:
                self._finish_alone(cursor, batch.records[0])
                return
            RETRIES.inc()
            _logger.exception("a batch failed; its records are tried one by one", records=len(batch.records))
            # Their events were changed by the failed attempt, so they are decoded again.
            for record in batch.records:
                if record.offset > cursor.reached and not self.stopping.is_set():
                    self._finish_alone(cursor, record)

    def _finish_alone(self, cursor: Cursor, record: LogRecord) -> None:
        """Process one record; quarantine it when it fails at every attempt while healthy ones get through."""
        for attempt in range(1, self.limits.attempts + 1):
            try:
                self._process(cursor, batch_of(record, cursor.sequence_offset))
            except SERVERS_FAULT:
                raise
            except Exception as error:
                self._dry_run(cursor, record)
                if attempt == self.limits.attempts:
                    _logger.exception("a record cannot be processed", offset=cursor.number_of(record))
                    self.quarantine_record(cursor, record, f"{type(error).__name__}: {error}")
                elif self.stopping.wait(self.limits.retry_s):
                    return
            else:
                return

    def _dry_run(self, cursor: Cursor, record: LogRecord) -> None:
        """Take plain events of the same project and about the same persons through all steps, without a trace.

        Raises what any of the steps raises: then the server is at fault.
        """
        number = cursor.number_of(record)
        batch = batch_of(record, cursor.sequence_offset)
        events = [
            Event(
                project_id,
                uuid4(),
                DRY_RUN_EVENT,
                name,
                record.appended_at.astimezone(UTC),
                datetime.now(UTC),
                {"$set": {DRY_RUN_EVENT: True}},  # so that what is stored of the person is read
                historical=False,
                log_offset=number,
            )
            for project_id, name in sorted(self.people.named_in(self._known(batch.events)))
        ]
        if self._transformer is not None:
            for project_id in {event.project_id for event in events}:
                self._transformer.transform(project_id, [])
        attributions = self.people.dry_run(events, log_offset=number, stage=cursor.stage)
        rows = [
            row_of(event, attribution, anonymize_ip=False, partition=cursor.partition)
            for event, attribution in zip(events, attributions, strict=True)
            if attribution is not None
        ]
        self.store.check()
        self.store.dry_run(rows)
        if self.dispatcher is not None:
            self.dispatcher.dry_run([IngestedEvent(row, {}) for row in rows])
            # Of a partition nothing is moved: its batch is not done.
            self.dispatcher.dispatch((), log_offset=cursor.dispatched if cursor.first_seq is None else None)

    def quarantine_record(self, cursor: Cursor, record: LogRecord, reason: str) -> None:
        """Put a record into quarantine and continue after it."""
        number = cursor.number_of(record)
        self.quarantine.put(number, record.payload, reason)
        _QUARANTINED.inc()
        _logger.error("record_quarantined", offset=number, reason=reason)
        self.people.apply([], log_offset=number, stage=cursor.stage)  # persons are never behind events
        self._advance(cursor, [], [], record)

    # --- one batch

    @_BATCH_SECONDS.time()
    def _process(self, cursor: Cursor, batch: Batch) -> None:
        events = self._transform(self._known(batch.events))
        applied = self.people.apply(
            events,
            log_offset=cursor.number_of(batch.records[-1]),
            warnings=batch.warnings,
            stage=cursor.stage,
        )
        cursor.add_pending_merges(applied.overrides)
        project_ids = {event.project_id for event in events}
        anonymous = {project_id for project_id in project_ids if self._hides_ips(project_id)}
        rows: list[EventRow] = []
        kept: list[Event] = []
        for event, attribution in zip(events, applied.attributions, strict=True):
            if attribution is None:
                _DROPPED.labels("personless").inc()
                continue
            hides = event.project_id in anonymous
            rows.append(row_of(event, attribution, anonymize_ip=hides, partition=cursor.partition))
            kept.append(event)
        if self._flag_calls is not None:
            self._flag_calls.note(kept)
        self._advance(cursor, rows, kept, batch.records[-1])

    def _known(self, events: Sequence[Event]) -> list[Event]:
        """Return the events whose project exists, without those that the batch has again."""
        project_ids = {event.project_id for event in events}
        gone = {project_id for project_id in project_ids if self._project(project_id) is None}
        if not gone and len({event.uuid.int for event in events}) == len(events):
            return list(events)
        last: dict[tuple[int, int], Event] = {}  # hashing a UUID itself takes longer
        kept: list[Event] = []
        for event in events:
            if event.project_id in gone:
                _DROPPED.labels("project").inc()
                continue
            key = (event.project_id, event.uuid.int)
            before = last.get(key)
            if before is not None and event.repeats(before):
                _RESENT.inc()
            else:
                last[key] = event
                kept.append(event)
        return kept

    def _transform(self, events: list[Event]) -> list[Event]:
        if self._transformer is None:
            return events
        started_at = self.clock()
        by_project: dict[int, list[Event]] = {}
        for event in events:
            by_project.setdefault(event.project_id, []).append(event)
        kept: list[Event] = []
        for project_id, of_project in by_project.items():
            before = {id(event): event.distinct_id for event in of_project}
            transformed = self._transformer.transform(project_id, of_project)
            if len(transformed) < len(of_project):
                _DROPPED.labels("transformation").inc(len(of_project) - len(transformed))
            for event in transformed:
                event.distinct_id = clean_distinct_id(event.distinct_id) or before[id(event)]
            kept += transformed
        if events:
            took_s = self.clock() - started_at
            self.batch_events.note(len(events), took_s)
            self.functions_s += took_s
        return kept

    def _hides_ips(self, project_id: int) -> bool:
        project = self._project(project_id)
        return project is not None and project.anonymize_ips

    def _advance(
        self, cursor: Cursor, rows: Sequence[EventRow], events: Sequence[Event], last: LogRecord
    ) -> None:
        """Store the rows of events, dispatch what is new, and move the position behind ``last``."""
        number = cursor.number_of(last)
        again = number <= self.store.position(cursor.partition)
        late = frozenset(position for position, event in enumerate(events) if event.is_replayed)
        new = self.store.append(
            EventBatch(rows, list(cursor.pending_merges.values()), is_checked=True, late=late),
            log_offset=number,
            log_partition=cursor.partition,
            first_seq=cursor.first_seq,
        )
        self._dirty = True
        if not again:
            cursor.pending_merges = {}
            _STORED.inc(len(new))
            _RESENT.inc(len(rows) - len(new))
        if self.dispatcher is not None and number > cursor.dispatched:
            fresh = [
                IngestedEvent(rows[position], events[position].properties)
                for position in new
                if not events[position].historical
            ]
            started_at = self.clock()
            self.dispatcher.dispatch(fresh, log_offset=number, done=cursor.done(last))
            cursor.dispatched = number
            self.functions_s += self.clock() - started_at
        cursor.commit(last)
