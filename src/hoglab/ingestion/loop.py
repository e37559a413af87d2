"""The loop from the event log to the event store, persons and hog functions.

One thread. It takes a batch of records, lets transformations change their events, resolves persons, stores,
dispatches, and then moves its position in the log. Whatever happens between two of these steps, the batch is
processed again from the log and comes out the same: persons are idempotent, the store knows the log offset of
what it holds, and so does the dispatcher. (Events whose batch is processed again have their persons' properties as they
are by then, after the whole batch.) A second thread decodes the next batch meanwhile, which has no effect
that could be lost.

What fails is either the server's own fault (a damaged file, an engine away, no memory, a full disk), then the loop
stands still, says so and tries again; or that of one record, which goes into quarantine. A record is to blame only
when a healthy one about the same persons, of the same project, gets through all steps (`Ingestion._rehearse`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import structlog
from prometheus_client import Counter, Gauge, Histogram

from hoglab.ingestion.batches import Batch, BatchSize, Unreadable, ahead, batch_of, batches_of
from hoglab.ingestion.normalise import Event, row_of
from hoglab.ingestion.quarantine import QuarantineFullError
from hoglab.people.identity import clean_distinct_id
from hoglab.storage.database import DatabaseError
from hoglab.storage.event_log import EventLogFullError
from hoglab.storage.event_store import EventBatch, EventRow, EventStoreUnavailableError, PersonOverride
from hoglab.storage.event_store.ingested import IngestedEvent

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from uuid import UUID

    from hoglab.ingestion.flag_calls import FlagCalls
    from hoglab.ingestion.quarantine import Quarantine
    from hoglab.people import PersonService
    from hoglab.storage.event_log import EventLog, LogRecord
    from hoglab.storage.event_store import EventStore

MIB = 1024 * 1024

CONSUMER = "ingestion"
"""Name of this loop's position in the event log."""

_logger = structlog.get_logger(__name__)

_STORED = Counter("hoglab_ingestion_events", "Events stored for the first time.")
_RESENT = Counter("hoglab_ingestion_resent_events", "Events that were stored already.")
_DROPPED = Counter("hoglab_ingestion_dropped_events", "Events dropped on purpose.", ["reason"])
_QUARANTINED = Counter("hoglab_ingestion_quarantined_records", "Log records put into quarantine.")
_REPLAYED = Counter(
    "hoglab_ingestion_replayed_records", "Log records that went from quarantine back into the log."
)
_STANDS_STILL = Gauge("hoglab_ingestion_stands_still", "Whether a fault of the server stops ingestion.")
_RETRIES = Counter("hoglab_ingestion_retries", "Batches that were tried again after an error.")
_BATCH_SECONDS = Histogram("hoglab_ingestion_batch_seconds", "Time to process one batch.")
_DEFERRED_BYTES = Gauge(
    "hoglab_event_log_deferred_bytes",
    "Accepted records that wait for others of their project to be ingested.",
)
_LAG_SECONDS = Gauge("hoglab_ingestion_lag_seconds", "Age of the oldest record that waits to be ingested.")


SERVERS_FAULT = (DatabaseError, MemoryError, OSError, QuarantineFullError)
"""Errors for which no record is to blame, whichever it was. For those of the event store, it depends."""

REPLAY_EVERY_S = 1.0
"""Interval at which records are looked for that are to go back from quarantine into the log."""

REHEARSED_EVENT = "$rehearsal"


class IngestedProject(Protocol):
    """Project as far as ingestion needs it."""

    @property
    def anonymize_ips(self) -> bool: ...


class Transformer(Protocol):
    """Changes or drops events before anything else sees them (spec: hog-runtime 7.2)."""

    def transform(self, project_id: int, events: list[Event]) -> list[Event]:
        """The events that are left, in order. ``event``, ``distinct_id`` and ``properties`` may be changed."""
        ...


class Dispatcher(Protocol):
    """Starts what runs on stored events (spec: hog-runtime 0)."""

    def position(self) -> int:
        """The log offset up to which everything was dispatched, 0 at first."""
        ...

    def dispatch(self, events: Sequence[IngestedEvent], *, log_offset: int) -> None:
        """Enqueue invocations for events that are new, in log order, of any number of projects.

        Must record ``log_offset`` as its position in the transaction of the enqueueing, also when nothing
        is to be run, and must not enqueue an invocation twice when it sees an event twice.
        """
        ...

    def rehearse(self, events: Sequence[IngestedEvent]) -> None:
        """Go through all steps of `dispatch` without enqueueing anything; raises what they raise."""
        ...

    def has_room(self) -> bool:
        """Whether more may be enqueued now; ingestion waits while not."""
        ...

    def flush(self) -> None:
        """Write what was left for later. Called when there is nothing to do, and at the end."""
        ...


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
    room_poll_s: float = 0.05
    # While requests come in this many times faster than they are ingested, a pace that cannot be kept up
    # with, most of the time is left to accepting them, until so much waits that catching up matters more.
    busy_factor: float = 3.0
    busy_share: float = 0.15
    busy_until_bytes: int = 512 * MIB
    max_pause_s: float = 4.0


class Ingestion:
    """The background service that owns the loop. `start` once, `stop` once."""

    def __init__(
        self,
        log: EventLog,
        store: EventStore,
        people: PersonService,
        project: Callable[[int], IngestedProject | None],
        quarantine: Quarantine,
        *,
        dispatcher: Dispatcher | None = None,
        transformer: Transformer | None = None,
        flag_calls: FlagCalls | None = None,
        limits: IngestionLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._store = store
        self._people = people
        self._project = project
        self._quarantine = quarantine
        self._fault: str | None = None
        self._replayed_at = -REPLAY_EVERY_S
        self._dispatcher = dispatcher
        self._transformer = transformer
        self._flag_calls = flag_calls
        self._limits = limits = limits or IngestionLimits()
        self._clock = clock
        self._batch_events = BatchSize(
            limits.batch_events,
            first=limits.batch_events if transformer is None else limits.first_events,
            least=limits.least_events,
            wanted_s=limits.transform_s,
        )
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._position = 0
        self._dispatched = 0
        self._seen = 0  # how many records were accepted when the last batch was done
        # Merges that persons know of and the store does not yet, by project and old person id.
        self._owed: dict[tuple[int, UUID], PersonOverride] = {}
        self._dirty = False  # whether something was stored since the last checkpoint
        self._functions_s = 0.0  # what transforming and dispatching took since the records at hand were read

    # --- life

    def start(self) -> None:
        """Find the position to continue from and start the thread."""
        self._recover()
        _LAG_SECONDS.set_function(self.lag_s)
        _DEFERRED_BYTES.set_function(self._log.deferred_bytes)
        self._thread = threading.Thread(target=self._run, name="ingestion", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Finish the batch at hand and end the thread; whether it ended in time."""
        self._stopping.set()
        self._log.wake()
        thread = self._thread
        if thread is None:
            return True
        for gauge in (_LAG_SECONDS, _DEFERRED_BYTES):
            gauge.set_function(lambda: 0.0)
        thread.join(timeout_s)
        return not thread.is_alive()

    @property
    def position(self) -> int:
        """The log offset up to which everything is done."""
        return self._position

    def is_alive(self) -> bool:
        """Whether the loop runs, for health checks."""
        return self._thread is not None and self._thread.is_alive()

    def lag_s(self) -> float:
        """Age of the oldest record that waits to be ingested, in seconds; 0 when none does."""
        oldest = self._log.oldest_after(self._position)
        return 0.0 if oldest is None else max(0.0, time.time() - oldest.timestamp())

    @property
    def fault(self) -> str | None:
        """Reason for which the loop stands still, and its remedy; None while it runs."""
        return self._fault

    def _recover(self) -> None:
        """Continue where both the store and the dispatcher have everything before.

        A crash may leave them one batch apart; that batch is then processed again.
        """
        stored = self._store.position()
        last = self._log.last_offset()
        known = max(stored, self._people.position())
        if last < known:
            # Its next offsets would look like events that are stored or applied already, and be lost.
            _logger.warning(
                "the event log was replaced: it ends before what was ingested", log=last, ingested=known
            )
            self._log.skip_to(known)
        self._dispatched = stored if self._dispatcher is None else self._dispatcher.position()
        self._position = min(stored, self._dispatched)
        self._seen = self._log.accepted()
        self._owe(self._people.overrides_after(stored))

    def _owe(self, overrides: Sequence[PersonOverride]) -> None:
        self._owed.update({(each.project_id, each.old_person_id): each for each in overrides})

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
                    # The position has not moved: nothing is lost, and the next turn begins with the same record.
                    _RETRIES.inc()
                    _logger.exception(
                        "ingestion failed and tries again", position=self._position, retry_s=retry_s
                    )
                    self._note_fault(error)
                    self._stopping.wait(retry_s)
                    retry_s = min(retry_s * 2, self._limits.max_retry_s)
            self._flush()

    def _flush(self) -> None:
        if self._dispatcher is not None:
            try:
                self._dispatcher.flush()
            except Exception as error:
                _logger.warning("metrics of functions were not written", error=str(error))

    def _note_fault(self, error: Exception | None) -> None:
        before = self._fault
        self._fault = None if error is None else f"stands still, and loses nothing: {error}; {_remedy(error)}"
        if (before is None) != (error is None):
            _STANDS_STILL.set(error is not None)

    def _turn(self, decoder: Executor) -> None:
        if self._dispatcher is not None and not self._dispatcher.has_room():
            self._stopping.wait(self._limits.room_poll_s)
            return
        self._replay()
        if not self._log.wait(self._position, self._limits.idle_s):
            self._rest()
            return
        records = self._log.read(
            self._position,
            max_records=self._limits.read_records,
            max_bytes=self._limits.read_bytes,
        )
        # A batch must not reach over what the store holds: it is stored as a whole or not at all.
        stored = self._store.position()
        held = [record for record in records if record.offset <= stored]
        if records:
            started_at, before, self._functions_s = self._clock(), self._position, 0.0
            self._ingest(held or records, decoder)
            self._yield(self._clock() - started_at, self._position - before)

    def _yield(self, seconds: float, done: int) -> None:
        """After work on ``done`` records, leave time to those who accept requests if they outpace us.

        Of the time that functions took only as much counts as there was other work: slow ones are no reason to be
        slower still.
        """
        accepted = self._log.accepted()
        arrived, self._seen = accepted - self._seen, accepted
        own_s = min(seconds, 2 * (seconds - self._functions_s))
        if (
            arrived * own_s > done * self._limits.busy_factor * seconds
            and self._log.pending_bytes() < self._limits.busy_until_bytes
        ):
            pause_s = own_s * (1 / self._limits.busy_share - 1)
            self._stopping.wait(min(pause_s, self._limits.max_pause_s))

    def _rest(self) -> None:
        """There is nothing to do: settle what was written."""
        if self._dirty:
            self._flush()
            self._store.checkpoint()
            self._people.forget_old_warnings()
            self._dirty = False

    def _ingest(self, records: Sequence[LogRecord], decoder: Executor) -> None:
        """Process records in batches; records that cannot be processed even alone go into quarantine."""
        limits = self._limits
        batches = batches_of(records, max_events=self._batch_events, max_json_bytes=limits.batch_json_bytes)
        for batch in ahead(batches, decoder):
            if self._stopping.is_set():
                return
            if isinstance(batch, Unreadable):
                self._put_aside(batch.record, batch.reason)
            else:
                self._finish(batch)

    def _finish(self, batch: Batch) -> None:
        """Process a batch; when it fails, its records one by one, to find the one that makes it fail."""
        try:
            self._process(batch)
        except SERVERS_FAULT:
            raise
        except Exception:
            if len(batch.records) == 1:
                self._finish_alone(batch.records[0])
                return
            _RETRIES.inc()
            _logger.exception("a batch failed; its records are tried one by one", records=len(batch.records))
            # Their events were changed by the failed attempt, so they are decoded anew.
            for record in batch.records:
                if record.offset > self._position and not self._stopping.is_set():
                    self._finish_alone(record)

    def _finish_alone(self, record: LogRecord) -> None:
        """Process one record; put it aside when it fails again and again and healthy ones get through between."""
        for attempt in range(1, self._limits.attempts + 1):
            try:
                self._process(batch_of(record))
            except SERVERS_FAULT:
                raise
            except Exception as error:
                self._rehearse(record)
                if attempt == self._limits.attempts:
                    _logger.exception("a record cannot be processed", offset=record.offset)
                    self._put_aside(record, f"{type(error).__name__}: {error}")
                elif self._stopping.wait(self._limits.retry_s):
                    return
            else:
                return

    def _rehearse(self, record: LogRecord) -> None:
        """Take plain events of the same project and about the same persons through all steps, without a trace.

        Raises what any of the steps raises: then the server is at fault.
        """
        batch = batch_of(record)
        events = [
            Event(
                project_id,
                uuid4(),
                REHEARSED_EVENT,
                name,
                record.appended_at.astimezone(UTC),
                datetime.now(UTC),
                {"$set": {REHEARSED_EVENT: True}},  # so that what is stored of the person is read
                historical=False,
                log_offset=record.offset,
            )
            for project_id, name in sorted(self._people.named_in(self._known(batch.events)))
        ]
        if self._transformer is not None:
            for project_id in {event.project_id for event in events}:
                self._transformer.transform(project_id, [])
        attributions = self._people.rehearse(events, log_offset=record.offset)
        rows = [
            row_of(event, attribution, anonymize_ip=False)
            for event, attribution in zip(events, attributions, strict=True)
            if attribution is not None
        ]
        self._store.check()
        self._store.rehearse(rows)
        if self._dispatcher is not None:
            self._dispatcher.rehearse([IngestedEvent(row, {}) for row in rows])
            self._dispatcher.dispatch((), log_offset=self._dispatched)

    def _put_aside(self, record: LogRecord, reason: str) -> None:
        """Put a record into quarantine and go on behind it."""
        self._quarantine.put(record, reason)
        _QUARANTINED.inc()
        _logger.error("record_quarantined", offset=record.offset, reason=reason)
        self._people.apply([], log_offset=record.offset)  # persons are never behind events
        self._advance([], [], record)

    def _replay(self) -> None:
        """Put records from quarantine back into the log. Whatever of them is stored already is not stored again."""
        now = time.monotonic()
        if now < self._replayed_at + REPLAY_EVERY_S:
            return
        self._replayed_at = now
        for offset, payload in self._quarantine.replaying():
            try:
                again = asyncio.run(self._log.append(payload, insist=True))
            except EventLogFullError as error:
                _logger.warning("replay_waits", reason=str(error))
                return
            self._quarantine.discard([offset])
            _REPLAYED.inc()
            _logger.info("record_replayed", offset=offset, as_offset=again)

    # --- one batch

    @_BATCH_SECONDS.time()
    def _process(self, batch: Batch) -> None:
        events = self._transform(self._known(batch.events))
        applied = self._people.apply(events, log_offset=batch.records[-1].offset, warnings=batch.warnings)
        self._owe(applied.overrides)
        anonymous = {each for each in {event.project_id for event in events} if self._hides_ips(each)}
        rows: list[EventRow] = []
        kept: list[Event] = []
        for event, attribution in zip(events, applied.attributions, strict=True):
            if attribution is None:
                _DROPPED.labels("personless").inc()
                continue
            rows.append(row_of(event, attribution, anonymize_ip=event.project_id in anonymous))
            kept.append(event)
        if self._flag_calls is not None:
            self._flag_calls.note(kept)
        self._advance(rows, kept, batch.records[-1])

    def _known(self, events: Sequence[Event]) -> list[Event]:
        """Without events of projects that are gone, and without repetitions inside the batch."""
        gone = {each for each in {event.project_id for event in events} if self._project(each) is None}
        if not gone and len({event.uuid.int for event in events}) == len(events):
            return list(events)
        seen: set[tuple[int, int]] = set()
        kept: list[Event] = []
        for event in events:
            key = (event.project_id, event.uuid.int)  # hashing a UUID itself takes longer
            if event.project_id in gone:
                _DROPPED.labels("project").inc()
            elif key in seen:
                _RESENT.inc()
            else:
                seen.add(key)
                kept.append(event)
        return kept

    def _transform(self, events: list[Event]) -> list[Event]:
        if self._transformer is None:
            return events
        started_at = self._clock()
        by_project: dict[int, list[Event]] = {}
        for event in events:
            by_project.setdefault(event.project_id, []).append(event)
        kept: list[Event] = []
        for project_id, ours in by_project.items():
            before = {id(event): event.distinct_id for event in ours}
            left = self._transformer.transform(project_id, ours)
            if len(left) < len(ours):
                _DROPPED.labels("transformation").inc(len(ours) - len(left))
            for event in left:
                event.distinct_id = clean_distinct_id(event.distinct_id) or before[id(event)]
            kept += left
        if events:
            took_s = self._clock() - started_at
            self._batch_events.note(len(events), took_s)
            self._functions_s += took_s
        return kept

    def _hides_ips(self, project_id: int) -> bool:
        project = self._project(project_id)
        return project is not None and project.anonymize_ips

    def _advance(self, rows: Sequence[EventRow], events: Sequence[Event], last: LogRecord) -> None:
        """Store the rows of events, dispatch what is new, and move the position behind ``last``."""
        offset = last.offset
        again = offset <= self._store.position()
        new = self._store.append(
            EventBatch(rows, list(self._owed.values()), is_checked=True), log_offset=offset
        )
        self._dirty = True
        if not again:
            self._owed = {}
            _STORED.inc(len(new))
            _RESENT.inc(len(rows) - len(new))
        if self._dispatcher is not None and offset > self._dispatched:
            fresh = [
                IngestedEvent(rows[position], events[position].properties)
                for position in new
                if not events[position].historical
            ]
            started_at = self._clock()
            self._dispatcher.dispatch(fresh, log_offset=offset)
            self._dispatched = offset
            self._functions_s += self._clock() - started_at
        self._log.commit(CONSUMER, offset)
        self._position = offset


def _remedy(error: Exception) -> str:
    """Remedy for an error that stops the loop, for an operator."""
    if isinstance(error, QuarantineFullError):
        return "then it goes on by itself"
    if isinstance(error, MemoryError):
        return "give the server more memory"
    if isinstance(error, DatabaseError | EventStoreUnavailableError | OSError):
        return "check the disk, and run `hoglab check`; it goes on by itself once that is mended"
    return "the server's log has more about it"
