"""Leases of the partitions of an event log, and up to where these are done: rows of the queue's PostgreSQL database.

A lease lasts so long after it was renewed. Each process has its share of the partitions: it takes what is free up to
that, and is told what is above it, to be given up when the batch at hand is done. Whoever writes what comes of a
partition locks its row by the epoch that the lease was given with. So a process that was paused, and whose partition
another one took meanwhile, finds no row and writes nothing.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from hoglab.storage.database.postgres.session import NOW_US, PostgresSession

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import psycopg

    from hoglab.storage.database.postgres.session import Connect

LEASE_S = 10.0
"""How long after its last renewal a partition is another's."""

RENEW_EVERY_S = 1.0
"""How often leases are renewed, and free partitions taken."""

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
_LOCK = "SELECT position FROM log_lease WHERE partition = %s AND owner = %s AND epoch = %s FOR UPDATE"
_MOVE = "UPDATE log_lease SET position = %s WHERE partition = %s"


class LeaseLostError(Exception):
    """Another process reads the partition now. What was done of it here is to be forgotten."""


class PartitionLease(NamedTuple):
    """The right to write what comes of a partition, until somebody takes it."""

    partition: int
    epoch: int


class LeaseRound(NamedTuple):
    """What a process has after a renewal, and what of that is above its share."""

    held: Mapping[int, PartitionLease]
    surplus: Sequence[int]


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
    def writing(self, lease: PartitionLease) -> Iterator[psycopg.Connection[Any]]:
        """A transaction of the queue's database in which nobody else writes of the partition.

        Raises `LeaseLostError`, before anything is written.
        """
        with self._session.transaction() as connection:
            row = connection.execute(_LOCK.encode(), (lease.partition, self._me, lease.epoch)).fetchone()
            if row is None:
                raise LeaseLostError(
                    f"partition {lease.partition} of the event log is read by another process"
                )
            yield connection

    def finish(self, lease: PartitionLease, position: int) -> None:
        """Note that a partition is done with up to an offset. Raises `LeaseLostError`."""
        with self.writing(lease) as connection:
            connection.execute(_MOVE.encode(), (position, lease.partition))

    def close(self) -> None:
        """End the connection."""
        self._session.close()


def share_of(reader: str, readers: Sequence[str], partitions: int) -> int:
    """How many partitions a reader has when all have as many as can be: one more for the first of them."""
    each, more = divmod(partitions, len(readers))
    return each + (readers.index(reader) < more)
