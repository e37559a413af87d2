"""An event log in partitions, which are read and stored independently of each other.

Order is kept inside of a partition. All events of a distinct id are in the same one in every kind of log, so the
number of partitions is fixed when the log is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from hoglab.storage.database.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from hoglab.storage.event_log import Offset, SequenceNumber

MAX_PARTITIONS = 1024

RENEW_EVERY_S = 1.0
"""Interval at which leases of partitions are renewed, and free ones taken."""


class LeaseLostError(DatabaseError):
    """Another process reads the partition now; unwritten work on it is to be dropped."""


class PartitionLease(NamedTuple):
    """The right to write the effects of a partition's records, until another process takes it."""

    partition: int
    epoch: int


class PartitionDone(NamedTuple):
    """The note that a partition is done up to an offset; it counts while the lease is still owned."""

    lease: PartitionLease
    offset: Offset


class OpenBatch(NamedTuple):
    """A batch of a partition that was begun and not finished: its records up to ``last``.

    ``sequence_offset``: the difference between the sequence numbers of its records, which are unique across
    partitions, and their offsets in the partition. ``is_whole``: it has to be processed at once, as it was begun; else
    in any number of steps, none of which reaches beyond it.
    """

    last: Offset
    sequence_offset: int
    is_whole: bool = True


class LeaseRound(NamedTuple):
    """Partitions that a process owns after a renewal, and those of them above its share."""

    owned: Mapping[int, PartitionLease]
    surplus: Sequence[int]


class Ledger(Protocol):
    """Who reads which partition of a log, and up to where, as one process knows it. Raises `DatabaseError`.

    Records get sequence numbers, which all partitions share, when their batch is begun. The effects of a record are
    known by this one number, and one number says up to where everything is done.
    """

    @property
    def is_shared(self) -> bool:
        """Whether other processes may take a partition: then effects are written under its lease."""
        ...

    def positions(self) -> Mapping[int, Offset]:
        """Return the offset up to which each partition is done with, 0 at first."""
        ...

    def renew(self) -> LeaseRound:
        """Renew the leases of this process, and take free partitions up to its share."""
        ...

    def give_up(self, partitions: Sequence[int]) -> None:
        """Give up the leases of partitions, so that other processes take them at once."""
        ...

    def leave(self) -> None:
        """Give up all leases and the share of this process."""
        ...

    def open_batch(self, lease: PartitionLease) -> OpenBatch | None:
        """Return the batch that some process began, which is to be finished before anything else; None without one."""
        ...

    def begin(self, lease: PartitionLease, last: Offset, events: int) -> OpenBatch:
        """Begin a batch of all records up to the offset ``last`` that are not done. Raises `LeaseLostError`.

        As many sequence numbers are given out as there are offsets, or ``events`` if these are more: each event may
        have one.
        """
        ...

    def finish(self, done: PartitionDone) -> None:
        """Note that a partition is done with up to an offset. Raises `LeaseLostError`."""
        ...

    def fence(self, connection: Connection, lease: PartitionLease) -> None:
        """Keep other processes from taking a partition until a metadata transaction ends. Raises `LeaseLostError`."""
        ...

    def stored(self) -> SequenceNumber:
        """Return the sequence number up to which everything is done."""
        ...
