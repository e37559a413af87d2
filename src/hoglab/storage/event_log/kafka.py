"""The event log in a topic of Kafka, in partitions that are numbered by us.

In each process one thread appends for all requests that wait, in one transaction, so that they share its cost. Who
reads sees committed records only. A transaction that was not acknowledged in time has its requests refused, and the
next group begins with a new producer of the same name, which ends what the former one had begun.

What was acknowledged is there, each record once. Of a request that was refused for want of an acknowledgement all of
it may be there, the records of some partitions, or nothing. Some, because of this: a broker that is started after a
crash aborts transactions that ran out meanwhile (`TRANSACTION_S`) before it knows who leads the partitions, writes no
mark of it into them, and the next commit of the producer counts for these records, too (seen with one node of Apache
Kafka 4.3 that looks for them twice a second; not in 20 crashes of one that does so every ten seconds, as is its
default). After a producer of another name they would stay open, and nobody could read beyond them. Events that are
sent again with the uuids of their SDK are stored once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from prometheus_client import Gauge

from hoglab.storage.database import DatabaseError
from hoglab.storage.event_log import EventLogFullError, Offset
from hoglab.storage.event_log.group_commit import wake
from hoglab.storage.event_log.kafka_partition import KafkaPartition
from hoglab.storage.event_log.kafka_topic import KafkaAddress, prepared, reason
from hoglab.storage.event_log.log import (
    MAX_GROUP_BYTES,
    MAX_GROUP_RECORDS,
    MAX_WAITING_BYTES,
    RETRY_BACKLOG_S,
    RETRY_CLOSED_S,
    RETRY_WAITING_S,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ACKNOWLEDGED_WITHIN_S = 5.0
"""Time for which a group waits for the brokers before its requests are refused."""

TRANSACTION_S = 10.0
"""Time for which a process that was killed keeps readers from what others wrote behind its records."""

RETRY_AWAY_S = 5
"""Value of ``Retry-After`` while the brokers do not acknowledge."""

AWAY_S = 1.0
"""Time for which requests are refused at once after that, before the brokers are asked again."""

MEASURE_EVERY_S = 2.0
"""Interval at which the size of what waits for ingestion is measured."""

MOMENTS = 512
"""Number of ends of a partition that are remembered while they wait."""

_FIRST_GUESS_BYTES = 1024
"""Estimate of the size of an offset, before any record was seen."""

_STALE = (
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_log = structlog.get_logger(__name__)


_WAITING = Gauge(
    "hoglab_event_log_partition_waiting", "Offsets of a partition that wait for ingestion.", ["partition"]
)
_LAG = Gauge(
    "hoglab_event_log_partition_lag_seconds",
    "How long records of a partition have waited for ingestion, as far as this process has seen.",
    ["partition"],
)


@dataclass(slots=True, eq=False)
class _Append:
    """The records of a request, each with its partition, that wait for the commit of their group."""

    records: Sequence[tuple[int, bytes]]
    size: int
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Offset]


class KafkaEventLog:
    """See `LogWriter`. `append_all` may be awaited in any number of event loops, in any threads."""

    def __init__(
        self,
        address: KafkaAddress,
        *,
        finished: Callable[[], Mapping[int, Offset]],
        max_backlog_bytes: int,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
    ) -> None:
        """Connect to a topic. ``finished`` returns up to which offset each partition is done, 0 at first.

        ``max_backlog_bytes`` and ``max_waiting_bytes``: what may wait for a consumer and for the brokers. Raises
        `DatabaseError`.
        """
        self._address = address
        self._finished = finished
        self._max_backlog_bytes = max_backlog_bytes
        self._max_waiting_bytes = max_waiting_bytes
        self.partitions = address.partitions
        self.max_record_bytes = prepared(address)
        self._transactional_id = f"hoglab-{uuid4()}"
        self._admin = AdminClient(address.settings())
        self._producer: Producer | None = None  # of the writer thread alone
        self._work = threading.Condition()  # guards what follows
        self._waiting: deque[_Append] = deque()
        self._waiting_bytes = 0
        self._backlog_bytes = 0.0
        self._waiting_offsets = 0
        self._away_until = 0.0
        self._mean_bytes: float = _FIRST_GUESS_BYTES
        self._failing = False
        self._unanswered: str | None = None  # why nothing was heard of the brokers when they were asked last
        # Of each partition: ends that are not done with, and when they were first seen.
        self._seen: dict[int, deque[tuple[int, float]]] = {}
        self._closed = threading.Event()
        self._try_to_measure()
        self._threads = [
            threading.Thread(target=self._write_until_closed, name="event-log", daemon=True),
            threading.Thread(target=self._measure_until_closed, name="event-log-backlog", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    # -- appending ----------------------------------------------------------------------------------

    async def append_all(
        self,
        records: Sequence[tuple[int, bytes]],
        *,
        insist: bool = False,
        owner: int | None = None,  # noqa: ARG002 - nobody has a share of their own
        alone: bool = False,  # noqa: ARG002
    ) -> None:
        """Store records of ``(partition, payload)`` together, once the brokers have them.

        Raises `EventLogFullError` when too much waits for a consumer (unless ``insist``) or for the brokers, when these
        do not acknowledge in time, and when the log is closed; `ValueError` above ``max_record_bytes``. What was
        refused because nobody acknowledged may be stored nevertheless, in whole or in part.
        """
        largest = max(len(payload) for _, payload in records)
        if largest > self.max_record_bytes:
            raise ValueError(f"a record of {largest} bytes is larger than {self.max_record_bytes}")
        size = sum(len(payload) for _, payload in records)
        loop = asyncio.get_running_loop()
        waiter = _Append(records, size, loop, loop.create_future())
        with self._work:
            self._admit(size, insist=insist)
            self._waiting.append(waiter)
            self._waiting_bytes += size
            if len(self._waiting) == 1:
                self._work.notify()
        await waiter.future

    def _admit(self, size: int, *, insist: bool) -> None:
        """Refuse records that there is no room for."""
        if self._closed.is_set():
            raise EventLogFullError("the event log is closed", RETRY_CLOSED_S)
        if time.monotonic() < self._away_until:
            raise EventLogFullError(f"{self._address.name} does not acknowledge", RETRY_AWAY_S)
        if self._waiting and self._waiting_bytes + size > self._max_waiting_bytes:
            raise EventLogFullError("too many events wait for the brokers", RETRY_WAITING_S)
        if not insist and self._backlog_bytes + self._waiting_bytes + size > self._max_backlog_bytes:
            raise EventLogFullError("too many events wait for ingestion", RETRY_BACKLOG_S)

    def _write_until_closed(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: self._waiting or self._closed.is_set())
                if not self._waiting:
                    return
                group = self._take_group()
            error: Exception | None = None
            try:
                self._store(group)
            except Exception as caught:
                error = caught
            self._note(group, error)
            wake([(Offset(0), append) for append in group], error)

    def _take_group(self) -> list[_Append]:
        group: list[_Append] = []
        size = 0
        while (
            self._waiting
            and len(group) < MAX_GROUP_RECORDS
            and (not group or size + self._waiting[0].size <= MAX_GROUP_BYTES)
        ):
            size += self._waiting[0].size
            group.append(self._waiting.popleft())
        return group

    def _note(self, group: Sequence[_Append], error: Exception | None) -> None:
        """Count the outcome of a group, and log when storing begins to fail and when it works again."""
        size, offsets = sum(append.size for append in group), sum(len(append.records) for append in group)
        if self._address.transactions:  # a commit takes an offset of each partition
            offsets += len({partition for append in group for partition, _ in append.records})
        with self._work:
            self._waiting_bytes -= size
            if error is None:
                self._mean_bytes += (size / offsets - self._mean_bytes) / 8
                self._backlog_bytes += size  # until it is measured again
            else:
                self._away_until = time.monotonic() + AWAY_S
        if error is not None and not self._failing:
            _log.error("event_log_cannot_write", log=self._address.name, reason=str(error))
        elif error is None and self._failing:
            _log.warning("event_log_writes_again", log=self._address.name)
        self._failing = error is not None

    def _store(self, group: Sequence[_Append]) -> None:
        """Send records and wait until the brokers acknowledge them. Raises `EventLogFullError`."""
        deadline = time.monotonic() + ACKNOWLEDGED_WITHIN_S
        try:
            producer = self._connected()
            refused: list[KafkaError] = []

            def note(error: KafkaError | None, _: object) -> None:
                if error is not None:
                    refused.append(error)

            keywords: dict[str, Any] = {} if self._address.transactions else {"on_delivery": note}
            if self._address.transactions:
                producer.begin_transaction()
            for append in group:
                for partition, payload in append.records:
                    producer.produce(self._address.topic, payload, partition=partition, **keywords)
            if self._address.transactions:
                _commit(producer, deadline)
            else:
                _flush(producer, refused)
        except (KafkaException, BufferError) as error:
            self._give_up()
            why = reason(error) if isinstance(error, KafkaException) else str(error)
            raise EventLogFullError(
                f"{self._address.name} does not acknowledge: {why}", RETRY_AWAY_S
            ) from error

    def _connected(self) -> Producer:
        """Return the producer, which has ended what a former one of its name had begun."""
        if self._producer is None:
            timeout_ms = int(ACKNOWLEDGED_WITHIN_S * 1000)
            settings = self._address.settings(
                acks="all",
                enable_idempotence=True,
                linger_ms=0,  # what waits together is a group already
                compression_type="lz4",
                message_max_bytes=self.max_record_bytes,
                batch_size=min(1_000_000, self.max_record_bytes),
                message_timeout_ms=timeout_ms,
            )
            if self._address.transactions:
                settings |= {
                    "transactional.id": self._transactional_id,
                    "transaction.timeout.ms": int(TRANSACTION_S * 1000),
                }
            producer = Producer(settings)
            if self._address.transactions:
                producer.init_transactions(ACKNOWLEDGED_WITHIN_S)
            self._producer = producer
        return self._producer

    def _give_up(self) -> None:
        """Drop the producer, with the records that it has not sent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(KafkaException):
                producer.purge()

    # -- how much waits -----------------------------------------------------------------------------

    def _measure_until_closed(self) -> None:
        while not self._closed.wait(MEASURE_EVERY_S):
            self._try_to_measure()

    def _try_to_measure(self) -> None:
        """Estimate what waits: offsets, times what this process appended on average with each."""
        try:
            ends = self.ends()
        except DatabaseError as error:
            self._unanswered = str(error)
            return
        self._unanswered = None
        try:
            finished = self._finished()
        except DatabaseError as error:
            _log.warning("event_log_backlog_unknown", log=self._address.name, reason=str(error))
            return
        waiting = {number: max(0, end - finished.get(number, 0)) for number, end in ends.items()}
        with self._work:
            self._waiting_offsets = sum(waiting.values())
            self._backlog_bytes = self._waiting_offsets * self._mean_bytes
            self._note_lag(ends, finished)
        for number, offsets in waiting.items():
            _WAITING.labels(number).set(offsets)

    def _note_lag(self, ends: Mapping[int, Offset], finished: Mapping[int, Offset]) -> None:
        """Remember since when each partition has waited, as far as this process has seen."""
        now = time.monotonic()
        for number, end in ends.items():
            seen = self._seen.setdefault(number, deque(maxlen=MOMENTS))
            if not seen or end > seen[-1][0]:
                seen.append((end, now))
            while seen and seen[0][0] <= finished.get(number, 0):
                seen.popleft()
            _LAG.labels(number).set(now - seen[0][1] if seen else 0.0)

    def lag_s(self) -> float:
        """Return seconds for which something has waited for ingestion at least; cheap."""
        now = time.monotonic()
        with self._work:
            return max((now - seen[0][1] for seen in self._seen.values() if seen), default=0.0)

    def ends(self) -> dict[int, Offset]:
        """Return the newest offset of each partition, 0 for an empty one. Raises `DatabaseError`."""
        with answering(self._address):
            try:
                return self._ends()
            except KafkaException:
                # The client remembers who led the partitions before a broker was away, until it is asked about them.
                self._admin.list_topics(self._address.topic, timeout=ACKNOWLEDGED_WITHIN_S)
                return self._ends()

    def _ends(self) -> dict[int, Offset]:
        wanted = {TopicPartition(self._address.topic, number): _LATEST for number in range(self.partitions)}
        answers = self._admin.list_offsets(wanted, request_timeout=ACKNOWLEDGED_WITHIN_S)
        return {place.partition: Offset(answer.result().offset) for place, answer in answers.items()}

    def pending_offsets(self) -> int:
        """Return the number of offsets that waited for ingestion at the last look; cheap."""
        with self._work:
            return self._waiting_offsets

    def pending_bytes(self) -> int:
        """Return approximate size of the records that wait for ingestion; cheap."""
        with self._work:
            return int(self._backlog_bytes) + self._waiting_bytes

    def check(self) -> None:
        """Raise the `EventLogFullError` that a small record would meet now, for health checks."""
        with self._work:
            self._admit(0, insist=False)
        if self._unanswered is not None:
            raise EventLogFullError(self._unanswered, RETRY_AWAY_S)

    # -- reading and ending -------------------------------------------------------------------------

    def partition(self, number: int) -> KafkaPartition:
        """Return a reader of a partition, which the caller closes."""
        return KafkaPartition(self._address, number)

    def close(self) -> None:
        """Store what waits, refuse what comes, stop. Calling it again does nothing."""
        with self._work:
            if self._closed.is_set():
                return
            self._closed.set()
            self._work.notify_all()
        for thread in self._threads:
            thread.join()
        self._give_up()


def _flush(producer: Producer, refused: Sequence[KafkaError]) -> None:
    """Wait until everything was acknowledged, or the client says of what it was not."""
    left = producer.flush(ACKNOWLEDGED_WITHIN_S)
    if refused:
        raise KafkaException(refused[0])
    if left:
        raise BufferError(f"{left} records were not acknowledged in time")


def _commit(producer: Producer, deadline: float) -> None:
    """Commit a transaction; repeat it until it is known that it was done."""
    while True:
        try:
            producer.commit_transaction(max(0.1, deadline - time.monotonic()))
        except KafkaException as error:
            failure = error.args[0]
            if not failure.retriable() or time.monotonic() >= deadline:
                raise
        else:
            return


@contextmanager
def answering(address: KafkaAddress) -> Iterator[None]:
    """Provide a block in which brokers are asked. Raises `DatabaseError` for what Kafka raises."""
    try:
        yield
    except KafkaException as error:
        raise DatabaseError(f"{address.name} does not answer: {reason(error)}") from error
