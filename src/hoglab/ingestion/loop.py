"""The loop from the event log to the event store, persons and hog functions.

Three threads work on neighbouring batches: while one batch is stored and dispatched, the next one is transformed and
its persons are resolved, and the one after that is decoded. Each step takes the batches in the order of the log, and
the position in the log moves behind a batch when it is through all of them. Wherever a crash cuts this off, the
batches behind the position are processed again from the log and come out the same: persons are idempotent, the store
knows the log offset of what it holds, and so does the dispatcher.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from prometheus_client import Counter, Gauge, Histogram

from hoglab.ingestion.batches import Batch, Unreadable, ahead, batch_of, batches_of
from hoglab.ingestion.preparing import KnownProject, Preparation, Prepared, Transformer
from hoglab.ingestion.writing import Dispatcher, Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from hoglab.ingestion.flag_calls import FlagCalls
    from hoglab.ingestion.parking import Parking
    from hoglab.people import PersonService
    from hoglab.storage.event_log import EventLog, LogRecord
    from hoglab.storage.event_store import EventStore

MIB = 1024 * 1024

_logger = structlog.get_logger(__name__)

_PARKED = Counter("hoglab_ingestion_parked_records", "Log records parked as unreadable or unprocessable.")
_RETRIES = Counter("hoglab_ingestion_retries", "Batches that were tried again after an error.")
_BATCH_SECONDS = Histogram(
    "hoglab_ingestion_batch_seconds", "Time from decoded events to their dispatch, by batch."
)
_LAG_SECONDS = Gauge("hoglab_ingestion_lag_seconds", "Age of the newest record when it was finished.")


@dataclass(frozen=True, slots=True)
class IngestionLimits:
    """How much is read and processed at once, and how patient the loop is."""

    read_records: int = 10_000  # cut into batches, which are decoded one ahead
    read_bytes: int = 8 * MIB
    batch_events: int = 5_000
    batch_json_bytes: int = 24 * MIB
    attempts: int = 3  # of a record alone, before it is parked
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
        project: Callable[[int], KnownProject | None],
        parking: Parking,
        *,
        dispatcher: Dispatcher | None = None,
        transformer: Transformer | None = None,
        flag_calls: FlagCalls | None = None,
        limits: IngestionLimits | None = None,
    ) -> None:
        self._log = log
        self._people = people
        self._parking = parking
        self._preparation = Preparation(people, project, transformer=transformer, flag_calls=flag_calls)
        self._writer = Writer(log, store, dispatcher)
        self._limits = limits or IngestionLimits()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._writing: tuple[Batch, Future[None]] | None = None
        self._position = 0
        self._seen = 0  # newest offset when the last batch was done

    # --- life

    def start(self) -> None:
        """Find the position to continue from and start the thread."""
        self._recover()
        self._thread = threading.Thread(target=self._run, name="ingestion", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Finish the batch at hand and end the thread; whether it ended in time."""
        self._stopping.set()
        thread = self._thread
        if thread is None:
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    @property
    def position(self) -> int:
        """The log offset up to which everything is done."""
        return self._position

    def is_alive(self) -> bool:
        """Whether the loop runs, for health checks."""
        return self._thread is not None and self._thread.is_alive()

    def _recover(self) -> None:
        """Continue where both the store and the dispatcher have everything before."""
        self._position = self._writer.recover()
        stored = self._writer.stored()
        last = self._log.last_offset()
        known = max(stored, self._people.position())
        if last < known:
            # Its next offsets would look like events that are stored or applied already, and be lost.
            _logger.warning(
                "the event log was replaced: it ends before what was ingested", log=last, ingested=known
            )
            self._log.skip_to(known)
        self._seen = self._log.last_offset()
        self._writer.owe(self._people.overrides_after(stored))

    # --- the loop

    def _run(self) -> None:
        with (
            ThreadPoolExecutor(1, thread_name_prefix="ingestion-decoder") as decoder,
            ThreadPoolExecutor(1, thread_name_prefix="ingestion-writer") as writer,
        ):
            retry_s = self._limits.retry_s
            while not self._stopping.is_set():
                try:
                    self._turn(decoder, writer)
                    retry_s = self._limits.retry_s
                except Exception:
                    # The position has not moved: nothing is lost, and the next turn begins with the same record.
                    _RETRIES.inc()
                    _logger.exception(
                        "ingestion failed and tries again", position=self._position, retry_s=retry_s
                    )
                    self._stopping.wait(retry_s)
                    retry_s = min(retry_s * 2, self._limits.max_retry_s)

    def _turn(self, decoder: Executor, writer: Executor) -> None:
        if not self._writer.has_room():
            self._stopping.wait(self._limits.room_poll_s)
            return
        if not self._log.wait(self._position, self._limits.idle_s):
            if self._writer.rest():
                self._people.forget_old_warnings()
            return
        records = self._log.read(
            self._position,
            max_records=self._limits.read_records,
            max_bytes=self._limits.read_bytes,
        )
        # A batch must not reach over what the store holds: it is stored as a whole or not at all.
        stored = self._writer.stored()
        held = [record for record in records if record.offset <= stored]
        if records:
            started_at, before = time.monotonic(), self._position
            self._ingest(held or records, decoder, writer)
            self._yield(time.monotonic() - started_at, self._position - before)

    def _yield(self, seconds: float, done: int) -> None:
        """After work on ``done`` records, leave time to those who accept requests if they outpace us."""
        last = self._log.last_offset()
        arrived, self._seen = last - self._seen, last
        if (
            arrived > done * self._limits.busy_factor
            and self._log.pending_bytes() < self._limits.busy_until_bytes
        ):
            pause_s = seconds * (1 / self._limits.busy_share - 1)
            self._stopping.wait(min(pause_s, self._limits.max_pause_s))

    def _ingest(self, records: Sequence[LogRecord], decoder: Executor, writer: Executor) -> None:
        """Process records in batches, to the end of the last one or until we are to stop."""
        limits = self._limits
        batches = batches_of(records, max_events=limits.batch_events, max_json_bytes=limits.batch_json_bytes)
        try:
            for batch in ahead(batches, decoder):
                if self._stopping.is_set():
                    return
                if isinstance(batch, Batch):
                    self._begin(batch, writer)
                elif self._settle():
                    self._park(batch)
        finally:
            self._settle()

    # --- one batch

    def _begin(self, batch: Batch, writer: Executor) -> None:
        """Prepare a batch while the one before is written, and have it written after that."""
        started_at = time.monotonic()
        try:
            prepared = self._prepare(batch)
        except Exception as error:
            if self._settle():
                self._one_by_one(batch, error)
        else:
            if self._settle():
                self._writing = batch, writer.submit(self._write, prepared, started_at)

    def _settle(self) -> bool:
        """Wait until the batch that is being written is done; False when it could not be finished before our end."""
        if self._writing is None:
            return not self._stopping.is_set()
        (batch, written), self._writing = self._writing, None
        try:
            written.result()
        except Exception as error:
            self._one_by_one(batch, error)
        return self._position >= batch.records[-1].offset

    def _prepare(self, batch: Batch) -> Prepared:
        return self._preparation.prepare(batch, on_merged=self._writer.owe)

    def _write(self, prepared: Prepared, started_at: float) -> None:
        last = prepared.last
        self._writer.write(prepared)
        self._position = last.offset
        _LAG_SECONDS.set(max(0.0, time.time() - last.appended_at.timestamp()))
        _BATCH_SECONDS.observe(time.monotonic() - started_at)

    # --- when a batch fails

    def _one_by_one(self, batch: Batch, error: Exception) -> None:
        """Process the records of a batch that failed each alone, to find the one that makes it fail."""
        _RETRIES.inc()
        _logger.error(
            "a batch failed; its records are tried one by one", records=len(batch.records), exc_info=error
        )
        # Their events were changed by the failed attempt, so they are decoded anew.
        for record in batch.records:
            if record.offset > self._position and not self._stopping.is_set():
                self._finish_alone(record)

    def _finish_alone(self, record: LogRecord) -> None:
        """Process one record; park it when it fails again and again while the engines work."""
        for attempt in range(1, self._limits.attempts + 1):
            try:
                self._write(self._prepare(batch_of(record)), time.monotonic())
            except Exception as error:
                if not self._engines_work():
                    raise
                if attempt == self._limits.attempts:
                    _logger.exception("a record cannot be processed", offset=record.offset)
                    self._park(Unreadable(record, f"{type(error).__name__}: {error}"))
                elif self._stopping.wait(self._limits.retry_s):
                    return
            else:
                return

    def _engines_work(self) -> bool:
        """Whether persons, store and dispatcher take anything; if not, no record is to blame for a failure."""
        try:
            self._people.apply([], log_offset=self._position)
            self._writer.check()
        except Exception:
            return False
        return True

    def _park(self, unreadable: Unreadable) -> None:
        """Put a record aside and go on behind it."""
        record, reason = unreadable
        self._parking.park(record, reason)
        _PARKED.inc()
        _logger.error("a log record was parked", offset=record.offset, reason=reason)
        self._write(Prepared((), (), record), time.monotonic())
