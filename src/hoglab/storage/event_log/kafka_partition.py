"""Reading one partition of a topic of Kafka, from an offset that is kept elsewhere."""

from __future__ import annotations

import threading
import time
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from hoglab.storage.database import DatabaseError
from hoglab.storage.event_log import LogRecord, Offset
from hoglab.storage.event_log.kafka_topic import KafkaAddress, reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Message

_END = KafkaError._PARTITION_EOF  # noqa: SLF001 - a code of the client
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)  # noqa: SLF001 - codes of the client
_AWAY = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)  # noqa: SLF001 - it connects again by itself

_LOOK_UP_S = 0.1
"""Interval at which a wait looks whether it was woken."""
_AHEAD_KBYTES = 2 * 1024
"""Size of what the client fetches ahead of its reader."""


class KafkaPartition:
    """See `LogReader`. Offsets are Kafka's and one more: 0 is before the first."""

    def __init__(self, address: KafkaAddress, number: int) -> None:
        self._name = f"partition {number} of {address.name}"
        self._place = (address.topic, number)
        self._consumer = Consumer(
            address.settings(
                group_id="hoglab",  # the client asks for one; nothing is kept under it
                enable_auto_commit=False,
                isolation_level="read_committed",
                auto_offset_reset="error",
                fetch_message_max_bytes=1024 * 1024,
                queued_max_messages_kbytes=_AHEAD_KBYTES,
                enable_partition_eof=True,
            )
        )
        self._arrived: deque[LogRecord] = deque()
        self._is_assigned = False
        self._after = Offset(0)  # everything up to it was given out
        self._end = Offset(0)  # the partition ended there, when it was last read to its end
        self._woken = threading.Event()

    def read(self, after: Offset, *, max_records: int, max_bytes: int) -> Sequence[LogRecord]:
        """Return records with an offset above ``after`` that have arrived, in order.

        At most ``max_records``, and at most ``max_bytes`` unless the first alone is larger. Raises `DatabaseError` also
        when the next ones were deleted before they were read, or the topic ends before ``after``.
        """
        self._go_to(after)
        records: list[LogRecord] = []
        size = 0
        while len(records) < max_records and (self._arrived or self._fetch(0)):
            size += len(self._arrived[0].payload)
            if records and size > max_bytes:
                break
            records.append(self._arrived.popleft())
        if records:
            self._after = records[-1].offset
        return records

    def wait(self, after: Offset, timeout_s: float) -> bool:
        """Wait until a record above ``after`` has arrived or the time is over, and return whether one has."""
        self._go_to(after)
        deadline = time.monotonic() + timeout_s
        while not self._arrived and not self._woken.is_set():
            left = deadline - time.monotonic()
            if not self._fetch(max(0.0, min(left, _LOOK_UP_S))) and left <= 0:
                break
        self._woken.clear()
        return bool(self._arrived)

    @property
    def reached(self) -> Offset:
        """See `LogReader`: commits of transactions have offsets, and are no records."""
        return self._after if self._arrived else max(self._after, self._end)

    def wake(self) -> None:
        """End the wait of the waiting consumer, or else the next wait."""
        self._woken.set()

    def _go_to(self, after: Offset) -> None:
        """Move the consumer behind an offset, unless it is there already."""
        if self._is_assigned and after in (self._after, self.reached):
            self._after = after
            return
        self._arrived.clear()
        topic, number = self._place
        try:
            self._consumer.assign([TopicPartition(topic, number, after)])
        except KafkaException as error:
            raise DatabaseError(f"{self._name} does not answer: {reason(error)}") from error
        self._is_assigned = True
        self._after = self._end = after

    def _fetch(self, timeout_s: float) -> bool:
        """Receive the records that arrive within a time, and return whether there were any."""
        try:
            messages = self._consumer.consume(500, timeout_s) if self._arrived else self._first(timeout_s)
        except KafkaException as error:
            raise DatabaseError(f"{self._name} does not answer: {reason(error)}") from error
        for message in messages:
            failure = message.error()
            if failure is None:
                self._arrived.append(_record(message))
            elif failure.code() == _END:
                self._end = Offset(message.offset() or 0)
            elif failure.code() in _GONE:
                self._is_assigned = False
                raise DatabaseError(
                    f"{self._name} does not have what follows offset {self._after}: records were deleted before they "
                    "were ingested, or the topic was replaced"
                )
            elif not failure.retriable() and failure.code() not in _AWAY:
                self._is_assigned = False
                raise DatabaseError(f"{self._name} cannot be read: {failure.str()}")
        return bool(self._arrived)

    def _first(self, timeout_s: float) -> list[Message]:
        """Return a first message, as soon as there is one, and what has arrived behind it."""
        message = self._consumer.poll(timeout_s)
        return [] if message is None else [message, *self._consumer.consume(500, 0)]

    def close(self) -> None:
        """End the connections."""
        self._consumer.close()


def _record(message: Message) -> LogRecord:
    offset, (_, at) = message.offset(), message.timestamp()
    if offset is None:
        raise DatabaseError("a message of Kafka has no offset")
    return LogRecord(Offset(offset + 1), datetime.fromtimestamp(at / 1000, UTC), message.value() or b"")
