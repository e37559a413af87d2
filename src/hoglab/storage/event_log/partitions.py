"""An event log in partitions, which are read and stored independently of each other.

Order is kept inside of a partition. All events of a distinct id are in the same one in every kind of log, so the
number of partitions is fixed when the log is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from hoglab.storage.database.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from hoglab.storage.event_log import LogRecord, Offset, SequenceNumber

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
    partitions, and their offsets in the partition.
    """

    last: Offset
    sequence_offset: int


class LeaseRound(NamedTuple):
    """Partitions that a process owns after a renewal, and those of them above its share."""

    owned: Mapping[int, PartitionLease]
    surplus: Sequence[int]


@runtime_checkable
class PartitionedLog(Protocol):
    """An append-only log of several partitions, counted from 0."""

    @property
    def partitions(self) -> int: ...

    @property
    def max_record_bytes(self) -> int:
        """The largest record that it takes."""
        ...

    async def append_all(self, records: Sequence[tuple[int, bytes]], *, insist: bool = False) -> None:
        """Store records, each in its partition, durably. Raises `EventLogFullError`.

        ``insist``: take them however much waits for a consumer.
        """
        ...

    def ends(self) -> Mapping[int, Offset]:
        """Return the newest offset of each partition, 0 for an empty one. Raises `DatabaseError`."""
        ...

    def pending_offsets(self) -> int:
        """Return about how many offsets wait for ingestion; cheap."""
        ...

    def lag_s(self) -> float:
        """Return the seconds for which the oldest waiting record has waited, at least; cheap."""
        ...

    def partition(self, number: int) -> LogPartition:
        """Return a reader of a partition, which the caller closes."""
        ...


class LogPartition(Protocol):
    """The reader of one partition. Used by one thread at a time but for `wake`; its methods block.

    Offsets rise from 1, and some may belong to no record.
    """

    @property
    def reached(self) -> Offset:
        """The offset up to which it was read: all records up to there were returned.

        It may be passed as ``after``, and is above the last returned record where offsets without a record follow.
        """
        ...

    def read(self, after: Offset, *, max_records: int, max_bytes: int) -> Sequence[LogRecord]:
        """Return records with an offset above ``after`` that are there, in order; empty when there are none.

        At most ``max_records``, and at most ``max_bytes`` unless the first alone is larger.
        """
        ...

    def wait(self, after: Offset, timeout_s: float) -> bool:
        """Wait until a record above ``after`` exists or the time is over, and return whether one exists."""
        ...

    def wake(self) -> None:
        """End the current `wait`, or else the next one."""
        ...

    def close(self) -> None: ...


class Leases(Protocol):
    """The partitions of one log, as one process knows them. Raises `DatabaseError`.

    Records get sequence numbers, which all partitions share, when their batch is begun. The effects of a record are
    known by this one number, and one number says up to where everything is done.
    """

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

    def last_sequence(self) -> SequenceNumber:
        """Return the newest sequence number that was given out, 0 at first."""
        ...

    def replace_log(self) -> None:
        """Delete the former log of one order. Raises `DatabaseError` while it has records that are not ingested."""
        ...

    def advance_sequence(self, number: SequenceNumber) -> None:
        """Give out only sequence numbers above ``number`` from now on."""
        ...


@dataclass(frozen=True, slots=True)
class LeasedLog:
    """Log of partitions, with the leases of those who read them."""

    source: PartitionedLog
    leases: Leases
