"""The loop from an event log of one order to the event store, persons and hog functions.

One thread. It takes a batch of records through all steps (`hoglab.ingestion.steps`), and then moves its position in the
log. A second thread decodes the next batch meanwhile, which has no effect that could be lost.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import structlog
from prometheus_client import Gauge

from hoglab.ingestion.batches import Unreadable, ahead, batches_of
from hoglab.ingestion.service import Ingestion
from hoglab.ingestion.steps import BatchSteps, Cursor
from hoglab.storage.event_log import Offset, numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from hoglab.ingestion.flag_calls import FlagCalls
    from hoglab.ingestion.quarantine import Quarantine
    from hoglab.ingestion.steps import Dispatcher, IngestedProject, IngestionLimits, Transformer
    from hoglab.people import PersonService
    from hoglab.storage.event_log import EventLog, LogRecord, SequenceNumber
    from hoglab.storage.event_store import EventStore

CONSUMER = "ingestion"
"""Name of this loop's position in the event log."""

_logger = structlog.get_logger(__name__)

_DEFERRED_BYTES = Gauge(
    "hoglab_event_log_deferred_bytes",
    "Accepted records that wait for others of their project to be ingested.",
)
LAG_SECONDS = Gauge("hoglab_ingestion_lag_seconds", "Age of the oldest record that waits to be ingested.")


class LogIngestion(Ingestion):
    """The background service that owns the loop."""

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
        steps = BatchSteps(
            store,
            people,
            project,
            quarantine,
            dispatcher=dispatcher,
            transformer=transformer,
            flag_calls=flag_calls,
            limits=limits,
            clock=clock,
        )
        super().__init__(steps)
        self._log = log
        self._clock = clock
        self._cursor = _LogCursor(log)
        self._seen = 0  # how many records were accepted when the last batch was done

    # --- life

    def start(self) -> None:
        """Find the position to continue from and start the thread."""
        self._recover()
        LAG_SECONDS.set_function(self.lag_s)
        _DEFERRED_BYTES.set_function(self._log.deferred_bytes)
        super().start()

    def stop(self, timeout_s: float) -> bool:
        """Finish the current batch and end the thread; return whether it ended in time."""
        self._stopping.set()
        self._log.wake()
        for gauge in (LAG_SECONDS, _DEFERRED_BYTES):
            gauge.set_function(lambda: 0.0)
        return super().stop(timeout_s)

    @property
    def position(self) -> SequenceNumber:
        """The number of the record up to which everything is done."""
        return self._cursor.position

    def lag_s(self) -> float:
        """Return the age of the oldest record that waits to be ingested, in seconds; 0 when none does."""
        oldest = self._log.oldest_after(Offset(self._cursor.position))
        return 0.0 if oldest is None else max(0.0, time.time() - oldest.timestamp())

    def _recover(self) -> None:
        """Continue where both the store and the dispatcher have everything before.

        A crash may leave them one batch apart; that batch is then processed again.
        """
        people, dispatcher, cursor = self._steps.people, self._steps.dispatcher, self._cursor
        stored = self._steps.store.position(cursor.partition)
        last = numbered(self._log.last_offset())
        ingested = max(stored, people.position())
        if last < ingested:
            # Its next offsets would look like events that are stored or applied already, and be lost.
            _logger.warning(
                "the event log was replaced: it ends before what was ingested", log=last, ingested=ingested
            )
            self._log.advance_sequence(ingested)
        cursor.dispatched = stored if dispatcher is None else dispatcher.position()
        cursor.position = min(stored, cursor.dispatched)
        self._seen = self._log.accepted()
        cursor.add_pending_merges(people.overrides_after(stored))

    # --- the loop

    def _turn(self, decoder: Executor) -> None:
        if not self._has_capacity():
            return
        self._replay(partial(self._log.append, insist=True))
        position = Offset(self._cursor.position)
        if not self._log.wait(position, self._limits.idle_s):
            self._steps.rest()
            return
        records = self._log.read(
            position,
            max_records=self._limits.read_records,
            max_bytes=self._limits.read_bytes,
        )
        # A batch must not reach beyond what is stored: it is stored as a whole or not at all.
        stored = self._steps.store.position(self._cursor.partition)
        stored_records = [record for record in records if numbered(record.offset) <= stored]
        if records:
            started_at, self._steps.functions_s = self._clock(), 0.0
            self._ingest(stored_records or records, decoder)
            self._yield(self._clock() - started_at, self._cursor.position - position)

    def _yield(self, seconds: float, done: int) -> None:
        """Pause after work on ``done`` records if requests come in faster than they are ingested.

        Of the time that functions took only as much counts as there was other work: slow ones are no reason to be
        slower still.
        """
        accepted = self._log.accepted()
        arrived, self._seen = accepted - self._seen, accepted
        own_s = min(seconds, 2 * (seconds - self._steps.functions_s))
        if (
            arrived * own_s > done * self._limits.busy_factor * seconds
            and self._log.pending_bytes() < self._limits.busy_until_bytes
        ):
            pause_s = own_s * (1 / self._limits.busy_share - 1)
            self._stopping.wait(min(pause_s, self._limits.max_pause_s))

    def _ingest(self, records: Sequence[LogRecord], decoder: Executor) -> None:
        """Process records in batches; records that cannot be processed even alone go into quarantine."""
        steps, limits = self._steps, self._limits
        batches = batches_of(records, max_events=steps.batch_events, max_json_bytes=limits.batch_json_bytes)
        for batch in ahead(batches, decoder):
            if self._stopping.is_set():
                return
            if isinstance(batch, Unreadable):
                steps.quarantine_record(self._cursor, batch.record, batch.reason)
            else:
                steps.finish(self._cursor, batch)


class _LogCursor(Cursor):
    """Cursor of a log of one order, which keeps the position."""

    def __init__(self, log: EventLog) -> None:
        super().__init__()
        self._log = log

    def commit(self, record: LogRecord) -> None:
        """Commit the position, so that the log may delete the records before it."""
        self._log.commit(CONSUMER, record.offset)
        super().commit(record)
