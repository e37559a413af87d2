"""An event log in partitions, which are read and stored independently of each other.

Order is kept inside of a partition. All events of a distinct id are in the same one, whatever keeps the log, so the
number of partitions is fixed when the log is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from hoglab.storage.database.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from hoglab.storage.event_log import LogRecord

MAX_PARTITIONS = 1024

RENEW_EVERY_S = 1.0
"""Interval at which leases of partitions are renewed, and free ones taken."""


class LeaseLostError(DatabaseError):
    """Another process reads the partition now. What was done of it here is to be forgotten."""


class PartitionLease(NamedTuple):
    """The right to write what comes of a partition, until somebody takes it."""

    partition: int
    epoch: int


class PartitionDone(NamedTuple):
    """That a partition is done with up to an offset, as far as the lease is still held."""

    lease: PartitionLease
    offset: int


class BegunBatch(NamedTuple):
    """A batch of a partition that was begun: its records up to ``last``, whoever ends it.

    ``shift``: how much larger the numbers of records are, which all partitions share, than their offsets.
    """

    last: int
    shift: int


class LeaseRound(NamedTuple):
    """Partitions that a process has after a renewal, and those of them above its share."""

    held: Mapping[int, PartitionLease]
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

    def ends(self) -> Mapping[int, int]:
        """Return the newest offset of each partition, 0 for an empty one. Raises `DatabaseError`."""
        ...

    def pending_offsets(self) -> int:
        """Return the number of offsets that wait for ingestion, about; cheap."""
        ...

    def lag_s(self) -> float:
        """Return seconds for which something has waited for ingestion at least; cheap."""
        ...

    def partition(self, number: int) -> LogPartition:
        """Return a reader of a partition, to be closed by whoever asks for it."""
        ...


class LogPartition(Protocol):
    """The reader of one partition. Used by one thread at a time but for `wake`; its methods block.

    Offsets rise from 1, and some may belong to no record.
    """

    @property
    def reached(self) -> int:
        """The offset up to which it was read: everything was given out, or is no record.

        May be given for ``after``, and is above the last record that was given out where no other comes behind it.
        """
        ...

    def read(self, after: int, *, max_records: int, max_bytes: int) -> Sequence[LogRecord]:
        """Return records with an offset above ``after`` that are there, in order; empty when there are none.

        At most ``max_records``, and at most ``max_bytes`` unless the first alone is larger.
        """
        ...

    def wait(self, after: int, timeout_s: float) -> bool:
        """Return block until a record above ``after`` exists or the time is over; whether one exists."""
        ...

    def wake(self) -> None:
        """End the wait of whoever waits, or else the next one."""
        ...

    def close(self) -> None: ...


class Leases(Protocol):
    """The partitions of one log, as one process knows them. Raises `DatabaseError`.

    Records get numbers from one count for all partitions when the batch that they are in is begun. So whatever comes
    of a record is known by one number, and one number says up to where everything is done.
    """

    def positions(self) -> Mapping[int, int]:
        """Return the offset up to which each partition is done with, 0 at first."""
        ...

    def renew(self) -> LeaseRound:
        """Stay alive: renew what this process has, and take what is free up to its share."""
        ...

    def give_up(self, partitions: Sequence[int]) -> None:
        """Let others take partitions at once."""
        ...

    def leave(self) -> None:
        """Let others take everything at once, and have no share any more."""
        ...

    def begun(self, lease: PartitionLease) -> BegunBatch | None:
        """Batch of a partition that was begun, maybe by another process, and is to be ended before anything else."""
        ...

    def begin(self, lease: PartitionLease, last: int, events: int) -> BegunBatch:
        """Begin a batch: what is not done up to the offset ``last``, of so many events. Raises `LeaseLostError`.

        As many numbers are given out as there are offsets, or events if these are more: events may be counted by them.
        """
        ...

    def finish(self, done: PartitionDone) -> None:
        """Note that a partition is done with up to an offset. Raises `LeaseLostError`."""
        ...

    def fence(self, connection: Connection, lease: PartitionLease) -> None:
        """Keep others from taking a partition until a transaction of the metadata is over. Raises `LeaseLostError`."""
        ...

    def stored(self) -> int:
        """Return the number up to which everything is done."""
        ...

    def last_number(self) -> int:
        """Return the newest number that was given out, 0 at first."""
        ...

    def replace_log(self) -> None:
        """End the log of one order that was there before. Raises `DatabaseError` while it has to be read."""
        ...

    def go_beyond(self, number: int) -> None:
        """Give out larger numbers only from now on."""
        ...


@dataclass(frozen=True, slots=True)
class LeasedLog:
    """Log of partitions, with the leases of those who read them."""

    source: PartitionedLog
    leases: Leases
