"""Leases of the partitions of an event log, and their progress: rows of the queue's PostgreSQL database.

A lease ends `LEASE_S` after its last renewal. Each process has a share of the partitions: it takes free ones up to its
share, and learns which ones are above it, to give these up after the current batch. A process that writes effects of a
partition's records locks the partition's row by the epoch of the lease. A process that was paused, and whose partition
another one took meanwhile, finds no row and writes nothing.

A batch is begun before it has any effect: its end, and the sequence numbers of its records, are in the row. A process
that takes the partition over finishes the same batch, so that both write the same. Commits do not wait for the disk:
the effects of a batch are committed after its beginning, and finishing it twice adds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import sqlalchemy as sa

from hoglab.storage.database.errors import DatabaseError
from hoglab.storage.database.postgres.session import NOW_US, PostgresSession
from hoglab.storage.database.postgres.stuck import end_stuck
from hoglab.storage.database.tables import queue_metadata
from hoglab.storage.event_log import SequenceNumber
from hoglab.storage.event_log.partitions import (
    LeaseLostError,
    LeaseRound,
    OpenBatch,
    PartitionDone,
    PartitionLease,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from hoglab.storage.database.postgres.session import Connect
    from hoglab.storage.event_log import Offset

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
_OPEN_BATCH = f"SELECT begun_last, begun_shift FROM log_lease WHERE {_MINE} AND begun_last IS NOT NULL"  # noqa: S608
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
_ADVANCE_SEQUENCE = "UPDATE event_log_head SET last_offset = greatest(last_offset, %s)"


class LogInUseError(DatabaseError):
    """A former log has records that would never be read. The text says what to do."""


class LogLeases:
    """See `Ledger`: that of the processes that share a log."""

    is_shared = True

    def __init__(self, connect: Connect, name: str, *, partitions: int, lease_s: float = LEASE_S) -> None:
        """Create the missing rows of partitions in an existing schema. ``connect``, ``name``: see `PostgresSession`."""
        self._session = PostgresSession(connect, name, relaxed=True)
        # Of its own, for a renewal waits for what is being written of a partition.
        self._reader = PostgresSession(connect, name)
        self._me = str(uuid4())
        self._partitions = partitions
        self._lease_us = int(lease_s * 1e6)
        self._session.rows(_MAKE, (partitions,))
        self._session.rows(_FIRST)

    def positions(self) -> dict[int, Offset]:
        """Return the offset up to which each partition is done with, 0 at first."""
        return dict(self._reader.rows(_POSITIONS))

    def renew(self) -> LeaseRound:
        """Renew the leases of this process, and take free partitions up to its share."""
        values: dict[str, Any] = {"me": self._me, "lease": self._lease_us}
        self._session.rows(_PRESENT, values)
        self._session.rows(_FORGET)
        others = {name for (name,) in self._session.rows(_READERS)}
        readers = sorted(others | {self._me})  # another may just have found that we are late
        share = share_of(self._me, readers, self._partitions)
        owned = {
            partition: PartitionLease(partition, epoch)
            for partition, epoch in self._session.rows(_RENEW, values)
        }
        if len(owned) < share:
            taken = self._session.rows(_TAKE, {**values, "count": share - len(owned)})
            owned |= {partition: PartitionLease(partition, epoch) for partition, epoch in taken}
        if len(owned) < share:  # others still use the rest, or have stopped while they hold its rows
            with self._session.using() as connection:
                end_stuck(connection)
        return LeaseRound(owned, sorted(owned)[share:])

    def give_up(self, partitions: Sequence[int]) -> None:
        """Give up the leases of partitions, so that other processes take them at once."""
        self._session.rows(_GIVE_UP, (self._me, list(partitions)))

    def leave(self) -> None:
        """Give up all leases and the share of this process."""
        self.give_up(range(self._partitions))
        self._session.rows(_LEAVE, (self._me,))

    def open_batch(self, lease: PartitionLease) -> OpenBatch | None:
        """See `Ledger.open_batch`."""
        rows = self._session.rows(_OPEN_BATCH, lease._asdict())
        return OpenBatch(*rows[0]) if rows else None

    def begin(self, lease: PartitionLease, last: Offset, events: int) -> OpenBatch:
        """See `Ledger.begin`."""
        sequence_offset = self._session.value(_BEGIN, {**lease._asdict(), "last": last, "events": events})
        if sequence_offset is None:
            raise lost(lease)
        return OpenBatch(last, sequence_offset)

    def finish(self, done: PartitionDone) -> None:
        """Note that a partition is done with up to an offset. Raises `LeaseLostError`."""
        with self._session.using() as connection:
            finish_within(connection, done)

    def fence(self, connection: sa.Connection, lease: PartitionLease) -> None:
        """Keep other processes from taking a partition until a metadata transaction ends. Raises `LeaseLostError`."""
        if connection.execute(_FENCE, lease._asdict()).first() is None:
            raise lost(lease)

    def stored(self) -> SequenceNumber:
        """Return the sequence number up to which everything is done."""
        return SequenceNumber(self._reader.value(_STORED))

    def last_sequence(self) -> SequenceNumber:
        """Return the newest sequence number that was given out, 0 at first."""
        return SequenceNumber(self._reader.value(_LAST))

    def replace_log(self) -> None:
        """Delete the former log of one order. Raises `LogInUseError` while it has records that are not ingested."""
        with self._session.transaction() as connection:
            row = connection.execute(_LEFT.encode(), {}).fetchone()
            if row is not None and row[0]:
                raise LogInUseError(
                    f"{row[0]} records wait in the event log in PostgreSQL, from before there was one in Kafka: start "
                    "without HOGLAB_EVENT_LOG_URL, and with nobody sending events, until they are ingested"
                )
            for statement in _DROP_LOG:
                connection.execute(statement.encode(), {})

    def advance_sequence(self, number: SequenceNumber) -> None:
        """Give out only sequence numbers above ``number`` from now on."""
        self._session.rows(_ADVANCE_SEQUENCE, (number,))

    def close(self) -> None:
        """End the connections."""
        self._session.close()
        self._reader.close()


def finish_within(connection: psycopg.Connection[Any], done: PartitionDone) -> None:
    """Note in a transaction that a partition is done up to an offset; no process takes the partition before its end.

    Raises `LeaseLostError`.
    """
    parameters = {**done.lease._asdict(), "offset": done.offset}
    if connection.execute(_FINISH.encode(), parameters).fetchone() is None:
        raise lost(done.lease)


def lost(lease: PartitionLease) -> LeaseLostError:
    """Return the error for a lease that another process took."""
    return LeaseLostError(f"partition {lease.partition} of the event log is read by another process")


def share_of(reader: str, readers: Sequence[str], partitions: int) -> int:
    """Return the number of partitions of a reader when they are divided evenly: one more for the first readers."""
    share, more = divmod(partitions, len(readers))
    return share + (readers.index(reader) < more)
