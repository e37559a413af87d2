"""The records of an event log that were accepted and not ingested yet, on their way into a log of another kind.

They get new offsets there, behind all earlier ones. No effect of a record depends on its offset: events without a uuid
derive theirs from an id that is in the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from hoglab.storage.database import tables
from hoglab.storage.event_log import EventLogFullError, Offset
from hoglab.storage.event_log.extent import READ_RECORDS
from hoglab.storage.moving.errors import MoveError
from hoglab.storage.moving.rows import batches

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Table

    from hoglab.storage.database import Database
    from hoglab.storage.event_log import LogRecord
    from hoglab.storage.event_log.kafka import KafkaEventLog

APPENDED_RECORDS, APPENDED_BYTES = 1_000, 4 * 1024 * 1024
"""Number and size of the records that are appended to a topic at once; at least one."""
WAIT_S = 0.1
"""Interval at which a partition is asked for the records that are known to be there."""

OF_A_LOG: frozenset[Table] = frozenset(
    {
        tables.event_log_record,
        tables.deferred_record,
        tables.consumer_position,
        tables.log_lease,
        tables.log_reader,
        tables.ingestion_progress,
    }
)
"""The tables that tell of one log alone."""

Finished = Mapping[int, Offset]
"""Offsets up to which partitions are ingested; 0 where that is not on_progress."""


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """Content of records, as far as a log has to know it."""

    divide: Callable[[bytes, int, int], Sequence[tuple[int, bytes]]]
    """Function of a request, a number of partitions and a limit in bytes: its records, each with its partition."""
    owner: Callable[[bytes], int | None]
    """The project that sent a record; None where it cannot be read."""


@dataclass(frozen=True, slots=True)
class TopicPlace:
    """Log in Kafka, open during the block of ``opened``."""

    name: str
    partitions: int
    opened: Callable[[], AbstractContextManager[KafkaEventLog]]


class Chain:
    """Number and digest of records in their order."""

    def __init__(self) -> None:
        self.records = 0
        self._hash = blake2b(digest_size=16)

    def add(self, payload: bytes) -> None:
        """Take the next record."""
        self.records += 1
        self._hash.update(len(payload).to_bytes(8) + payload)

    def same(self, other: Chain) -> bool:
        """Return whether the records of both were the same."""
        return self.records == other.records and self._hash.digest() == other._hash.digest()


def rest_in_tables(connection: Connection, after: int) -> Iterator[bytes]:
    """Yield records behind an offset, and then those that wait for one."""
    record, deferred = tables.event_log_record.c, tables.deferred_record.c
    streaming = connection.execution_options(stream_results=True, yield_per=READ_RECORDS)
    yield from streaming.scalars(
        sa.select(record.payload).where(record.offset > after).order_by(record.offset)
    )
    yield from streaming.scalars(sa.select(deferred.payload).order_by(deferred.id))


def rest_in_topic(log: KafkaEventLog, finished: Finished) -> Iterator[tuple[int, LogRecord]]:
    """Yield records of a topic behind what is finished, with their partitions, one partition after the other."""
    for number, end in sorted(log.ends().items()):
        after = finished.get(number, Offset(0))
        with closing(log.partition(number)) as partition:
            while after < end:
                if partition.wait(after, WAIT_S):
                    for record in partition.read(
                        after, max_records=APPENDED_RECORDS, max_bytes=APPENDED_BYTES
                    ):
                        after = record.offset
                        yield number, record
                after = max(after, partition.reached)


def into_topic(payloads: Iterable[bytes], log: KafkaEventLog, format_: RecordFormat) -> int:
    """Append records to a topic that has nothing else, but for those that are there from an attempt before.

    Return the number of records of the topic then. Raises `MoveError`.
    """
    there = _chains(log)
    chains = [Chain() for _ in range(log.partitions)]

    def missing() -> Iterator[tuple[int, bytes]]:
        for payload in payloads:
            for number, part in format_.divide(payload, log.partitions, log.max_record_bytes):
                chains[number].add(part)
                if chains[number].records > there[number].records:
                    yield number, part
                elif chains[number].records == there[number].records and not chains[number].same(
                    there[number]
                ):
                    raise MoveError(_NOT_EMPTY)

    for batch in batches(missing(), _size_of, most=APPENDED_RECORDS, most_bytes=APPENDED_BYTES):
        try:
            asyncio.run(log.append_all(batch, insist=True))
        except EventLogFullError as error:
            raise MoveError(str(error)) from error
    if not all(chain.same(stored) for chain, stored in zip(chains, _chains(log), strict=True)):
        raise MoveError(_NOT_EMPTY)
    return sum(chain.records for chain in chains)


_NOT_EMPTY = "the topic has other records than those that wait here: name an empty one"


def _size_of(record: tuple[int, bytes]) -> int:
    return len(record[1])


def _chains(log: KafkaEventLog) -> list[Chain]:
    """Return the digests of all records of a topic, by partition."""
    chains = [Chain() for _ in range(log.partitions)]
    for number, record in rest_in_topic(log, {}):
        chains[number].add(record.payload)
    return chains


def into_tables(
    log: KafkaEventLog, finished: Finished, queue: Database, after: int, format_: RecordFormat
) -> int:
    """Append the rest of a topic to a log in a database, behind an offset, all at once; the number of its records.

    What is there from an attempt before is compared only. Raises `MoveError`.
    """
    with queue.read() as connection:
        there = connection.scalar(sa.select(sa.func.count()).select_from(tables.event_log_record))
    if not there:
        with queue.write() as tx:
            for offset, (_, record) in enumerate(rest_in_topic(log, finished), after + 1):
                row: dict[str, Any] = {
                    "offset": offset,
                    "appended_at": record.appended_at,
                    "payload": record.payload,
                    "owner": format_.owner(record.payload),
                }
                tx.execute(sa.insert(tables.event_log_record).values(row))
    left, arrived = Chain(), Chain()
    for _, record in rest_in_topic(log, finished):
        left.add(record.payload)
    with queue.read() as connection:
        for payload in rest_in_tables(connection, after):
            arrived.add(payload)
    if not left.same(arrived):
        raise MoveError(f"the event log is not the same on both sides: {left.records} records wait here")
    return left.records
