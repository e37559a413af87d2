"""Leases of the partitions of an event log, and up to where these are done: rows of the queue's PostgreSQL database.

A lease lasts so long after it was renewed. Each process has its share of the partitions: it takes what is free up to
that, and is told what is above it, to be given up when the batch at hand is done. Whoever writes what comes of a
partition locks its row by the epoch that the lease was given with. So a process that was paused, and whose partition
another one took meanwhile, finds no row and writes nothing.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from hoglab.storage.database.postgres.session import NOW_US, PostgresSession
from hoglab.storage.event_log.partitions import LeaseLostError, LeaseRound, PartitionLease

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
_GIVE_UP = "UPDATE log_lease SET owner = NULL WHERE owner = %s AND partition = ANY(%s)"
_LEAVE = "DELETE FROM log_reader WHERE id = %s"
_LOCK = """
SELECT partition FROM log_lease JOIN unnest(%s::integer[], %s::bigint[]) AS mine (partition, epoch)
USING (partition, epoch) WHERE owner = %s ORDER BY partition FOR UPDATE OF log_lease
"""
_MOVE = """
UPDATE log_lease SET position = moved.position FROM unnest(%s::integer[], %s::bigint[]) AS moved (partition, position)
WHERE log_lease.partition = moved.partition
"""


class LogLeases:
    """The partitions of one log, as one process knows them. Raises `DatabaseError`."""

    def __init__(self, connect: Connect, name: str, *, partitions: int, lease_s: float = LEASE_S) -> None:
        """``connect`` and ``name``: as for `PostgresSession`. The schema is there."""
        self._session = PostgresSession(connect, name)
        self._me = str(uuid4())
        self._partitions = partitions
        self._lease_us = int(lease_s * 1e6)
        self._session.rows(_MAKE, (partitions,))

    def positions(self) -> dict[int, int]:
        """The offset up to which each partition is done with, 0 at first."""
        return dict(self._session.rows(_POSITIONS))

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

    @contextmanager
    def moving(self, moved: Mapping[PartitionLease, int]) -> Iterator[psycopg.Connection[Any]]:
        """A transaction of the queue's database, at whose end partitions are done with up to these offsets.

        Nobody else writes of them meanwhile. Raises `LeaseLostError`, before anything is written.
        """
        partitions = [lease.partition for lease in moved]
        epochs = [lease.epoch for lease in moved]
        with self._session.transaction() as connection:
            found = connection.execute(_LOCK.encode(), (partitions, epochs, self._me)).fetchall()
            if lost := sorted(set(partitions) - {partition for (partition,) in found}):
                raise LeaseLostError(f"partition {lost[0]} of the event log is read by another process")
            yield connection
            connection.execute(_MOVE.encode(), (partitions, list(moved.values())))

    def close(self) -> None:
        """End the connection."""
        self._session.close()


def share_of(reader: str, readers: Sequence[str], partitions: int) -> int:
    """Number of partitions of a reader when they are divided evenly: one more for the first readers."""
    each, more = divmod(partitions, len(readers))
    return each + (readers.index(reader) < more)
