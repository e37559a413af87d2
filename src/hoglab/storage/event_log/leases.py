"""Leases of the partitions of an event log, and up to where these are done: rows of the queue's PostgreSQL database.

A lease lasts so long after it was renewed. Each process has its share of the partitions: it takes what is free up to
that, and is told what is above it, to be given up when the batch at hand is done. Whoever writes what comes of a
partition locks its row by the epoch that the lease was given with. So a process that was paused, and whose partition
another one took meanwhile, finds no row and writes nothing.

A batch is begun before anything comes of it: its end, and the numbers of its records, are in the row. Who takes the
partition over ends the same batch, so that what two processes may have written of it is the same. Commits do not wait
for the disk: whatever comes of a batch is committed behind its beginning, and one that is ended again adds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import sqlalchemy as sa

from hoglab.storage.database.errors import DatabaseError
from hoglab.storage.database.postgres.session import NOW_US, PostgresSession
from hoglab.storage.database.tables import queue_metadata
from hoglab.storage.event_log.partitions import (
    BegunBatch,
    LeaseLostError,
    LeaseRound,
    PartitionDone,
    PartitionLease,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from hoglab.storage.database.postgres.session import Connect

LEASE_S = 10.0
"""Time after its last renewal at which a lease ends."""

_MAKE = (
    "INSERT INTO log_lease (partition, epoch, expires_at, position) "
    "SELECT partition, 0, 0, 0 FROM generate_series(0, %s - 1) AS partition ON CONFLICT (partition) DO NOTHING"
)
_POSITIONS = "SELECT partition, position FROM log_lease"
_PRESENT = (
    f"INSERT INTO log_reader (id, expires_at) VALUES (%(me)s, {NOW_US} + %(lease)s) "  # noqa: S608 - constants
    "ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at"
)
_FORGET = f"DELETE FROM log_reader WHERE expires_at < {NOW_US}"  # noqa: S608
_READERS = "SELECT id FROM log_reader"
_RENEW = (
    f"UPDATE log_lease SET expires_at = {NOW_US} + %(lease)s WHERE owner = %(me)s "  # noqa: S608
    "RETURNING partition, epoch"
)
_TAKE = f"""
UPDATE log_lease SET owner = %(me)s, epoch = epoch + 1, expires_at = {NOW_US} + %(lease)s
WHERE partition IN (
    SELECT partition FROM log_lease WHERE owner IS NULL OR (owner <> %(me)s AND expires_at < {NOW_US})
    ORDER BY partition LIMIT %(count)s FOR UPDATE SKIP LOCKED
) RETURNING partition, epoch
"""  # noqa: S608
_GIVE_UP = "UPDATE log_lease SET owner = NULL, epoch = epoch + 1 WHERE owner = %s AND partition = ANY(%s)"
_LEAVE = "DELETE FROM log_reader WHERE id = %s"
_MINE = "partition = %(partition)s AND epoch = %(epoch)s"
_BEGUN = f"SELECT begun_last, begun_shift FROM log_lease WHERE {_MINE} AND begun_last IS NOT NULL"  # noqa: S608
# The count is locked for as long as this one statement takes, so numbers are known in the order in which they rise.
_BEGIN = f"""
WITH mine AS (
    SELECT position, greatest(%(last)s::bigint - position, %(events)s::bigint) AS count
    FROM log_lease WHERE {_MINE} FOR UPDATE
), numbered AS (
    UPDATE event_log_head SET last_offset = last_offset + mine.count FROM mine WHERE id = 1
    RETURNING last_offset - mine.count - mine.position AS shift
)
UPDATE log_lease SET begun_last = %(last)s, begun_shift = numbered.shift FROM numbered WHERE {_MINE}
RETURNING begun_shift
"""  # noqa: S608
_FINISH = f"""
UPDATE log_lease SET position = %(offset)s,
    begun_shift = CASE WHEN begun_last > %(offset)s THEN begun_shift END,
    begun_last = CASE WHEN begun_last > %(offset)s THEN begun_last END
WHERE {_MINE}
RETURNING partition
"""  # noqa: S608
_FENCE = sa.text(
    f"SELECT 1 FROM {queue_metadata.info['postgresql']['schema']}.log_lease "  # noqa: S608
    "WHERE partition = :partition AND epoch = :epoch FOR SHARE"
)
_FIRST = (
    "INSERT INTO event_log_head (id, last_offset, deferrals) VALUES (1, 0, 0) ON CONFLICT (id) DO NOTHING"
)
_STORED = """
SELECT coalesce((SELECT min(position + begun_shift) FROM log_lease WHERE begun_last IS NOT NULL), last_offset)
FROM event_log_head
"""
_LAST = "SELECT last_offset FROM event_log_head"
# Who counts starts is no reader of the log.
_READERS_OF_ONE = "consumer NOT LIKE 'dispatch-starts%%'"
_LEFT = f"""
SELECT (SELECT count(*) FROM deferred_record) + (
    SELECT count(*) FROM event_log_record
    WHERE "offset" > coalesce((SELECT min("offset") FROM consumer_position WHERE {_READERS_OF_ONE}), 0)
)
"""  # noqa: S608
_DROP_LOG = (
    "DELETE FROM event_log_record",
    f"DELETE FROM consumer_position WHERE {_READERS_OF_ONE}",  # noqa: S608
)
_GO_BEYOND = "UPDATE event_log_head SET last_offset = greatest(last_offset, %s)"


class LogInUseError(DatabaseError):
    """A log has records that nobody would read any more. The text says what to do."""


class LogLeases:
    """The partitions of one log, as one process knows them. Raises `DatabaseError`."""

    def __init__(self, connect: Connect, name: str, *, partitions: int, lease_s: float = LEASE_S) -> None:
        """``connect`` and ``name``: as for `PostgresSession`. The schema is there."""
        self._session = PostgresSession(connect, name, relaxed=True)
        # Of its own, for a renewal waits for what is being written of a partition.
        self._reader = PostgresSession(connect, name)
        self._me = str(uuid4())
        self._partitions = partitions
        self._lease_us = int(lease_s * 1e6)
        self._session.rows(_MAKE, (partitions,))
        self._session.rows(_FIRST)

    def positions(self) -> dict[int, int]:
        """Return the offset up to which each partition is done with, 0 at first."""
        return dict(self._reader.rows(_POSITIONS))

    def renew(self) -> LeaseRound:
        """Stay alive: renew what this process has, and take what is free up to its share."""
        values: dict[str, Any] = {"me": self._me, "lease": self._lease_us}
        self._session.rows(_PRESENT, values)
        self._session.rows(_FORGET)
        others = {name for (name,) in self._session.rows(_READERS)}
        readers = sorted(others | {self._me})  # another may just have found that we are late
        share = share_of(self._me, readers, self._partitions)
        held = {
            partition: PartitionLease(partition, epoch)
            for partition, epoch in self._session.rows(_RENEW, values)
        }
        if len(held) < share:
            taken = self._session.rows(_TAKE, {**values, "count": share - len(held)})
            held |= {partition: PartitionLease(partition, epoch) for partition, epoch in taken}
        return LeaseRound(held, sorted(held)[share:])

    def give_up(self, partitions: Sequence[int]) -> None:
        """Let others take partitions at once."""
        self._session.rows(_GIVE_UP, (self._me, list(partitions)))

    def leave(self) -> None:
        """Let others take everything at once, and have no share any more."""
        self.give_up(range(self._partitions))
        self._session.rows(_LEAVE, (self._me,))

    def begun(self, lease: PartitionLease) -> BegunBatch | None:
        """Return the batch of a partition that was begun, and is to be ended before anything else."""
        rows = self._session.rows(_BEGUN, lease._asdict())
        return BegunBatch(*rows[0]) if rows else None

    def begin(self, lease: PartitionLease, last: int, events: int) -> BegunBatch:
        """Begin a batch: what is not done up to an offset. Raises `LeaseLostError`."""
        shift = self._session.value(_BEGIN, {**lease._asdict(), "last": last, "events": events})
        if shift is None:
            raise lost(lease)
        return BegunBatch(last, shift)

    def finish(self, done: PartitionDone) -> None:
        """Note that a partition is done with up to an offset. Raises `LeaseLostError`."""
        with self._session.using() as connection:
            finish_within(connection, done)

    def fence(self, connection: sa.Connection, lease: PartitionLease) -> None:
        """Keep others from taking a partition until a transaction of the metadata is over. Raises `LeaseLostError`."""
        if connection.execute(_FENCE, lease._asdict()).first() is None:
            raise lost(lease)

    def stored(self) -> int:
        """Return the number up to which everything is done."""
        return int(self._reader.value(_STORED))

    def last_number(self) -> int:
        """Return the newest number that was given out, 0 at first."""
        return int(self._reader.value(_LAST))

    def replace_log(self) -> None:
        """End the log of one order that was in the database before. Raises `LogInUseError` while it has to be read."""
        with self._session.transaction() as connection:
            row = connection.execute(_LEFT.encode(), {}).fetchone()
            if row is not None and row[0]:
                raise LogInUseError(
                    f"{row[0]} records wait in the event log in PostgreSQL, from before there was one in Kafka: start "
                    "without HOGLAB_EVENT_LOG_URL, and with nobody sending events, until they are ingested"
                )
            for statement in _DROP_LOG:
                connection.execute(statement.encode(), {})

    def go_beyond(self, number: int) -> None:
        """Give out larger numbers only from now on."""
        self._session.rows(_GO_BEYOND, (number,))

    def close(self) -> None:
        """End the connections."""
        self._session.close()
        self._reader.close()


def finish_within(connection: psycopg.Connection[Any], done: PartitionDone) -> None:
    """Note in a transaction that a partition is done with up to an offset; until its end nobody takes the partition.

    Raises `LeaseLostError`.
    """
    parameters = {**done.lease._asdict(), "offset": done.offset}
    if connection.execute(_FINISH.encode(), parameters).fetchone() is None:
        raise lost(done.lease)


def lost(lease: PartitionLease) -> LeaseLostError:
    """Return the error of who has a lease no more."""
    return LeaseLostError(f"partition {lease.partition} of the event log is read by another process")


def share_of(reader: str, readers: Sequence[str], partitions: int) -> int:
    """Return the number of partitions of a reader when they are divided evenly: one more for the first readers."""
    each, more = divmod(partitions, len(readers))
    return each + (readers.index(reader) < more)
