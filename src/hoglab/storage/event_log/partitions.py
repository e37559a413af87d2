"""An event log in partitions, which are read and stored independently of each other.

Order is kept inside of a partition. All events of a distinct id are in the same one, whatever keeps the log, so the
number of partitions is fixed when the log is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from hoglab.storage.event_log import Acknowledging

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    import psycopg

    from hoglab.storage.event_log import LogRecord
    from hoglab.storage.event_log.deferral import Record

MAX_PARTITIONS = 1024

RENEW_EVERY_S = 1.0
"""Interval at which leases of partitions are renewed, and free ones taken."""


class LeaseLostError(Exception):
    """Another process reads the partition now. What was done of it here is to be forgotten."""


class PartitionLease(NamedTuple):
    """The right to write what comes of a partition, until somebody takes it."""

    partition: int
    epoch: int


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
        """The newest offset of each partition, 0 for an empty one. Raises `DatabaseError`."""
        ...

    def partition(self, number: int) -> LogPartition:
        """A reader of a partition, to be closed by whoever asks for it."""
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
        """Records with an offset above ``after`` that are there, in order; empty when there are none.

        At most ``max_records``, and at most ``max_bytes`` unless the first alone is larger.
        """
        ...

    def wait(self, after: int, timeout_s: float) -> bool:
        """Block until a record above ``after`` exists or the time is over; whether one exists."""
        ...

    def wake(self) -> None:
        """End the wait of whoever waits, or else the next one."""
        ...

    def close(self) -> None: ...


class Leases(Protocol):
    """The partitions of one log, as one process knows them. Raises `DatabaseError`."""

    def positions(self) -> Mapping[int, int]:
        """The offset up to which each partition is done with, 0 at first."""
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

    def moving(self, moved: Mapping[PartitionLease, int]) -> AbstractContextManager[psycopg.Connection[Any]]:
        """A transaction, at whose end partitions are done with up to these offsets.

        Nobody else writes of them meanwhile. Raises `LeaseLostError`, before anything is written.
        """
        ...


class LogBehind(Acknowledging, Protocol):
    """A log in one order that records of partitions are taken over into; see `EventLog`."""

    def append_within(self, connection: psycopg.Connection[Any], records: Sequence[Record]) -> None:
        """Store records in a transaction that `Leases.moving` gave. Raises `DatabaseError`."""
        ...

    def check(self) -> None:
        """Raises `EventLogFullError` while it takes no more."""
        ...

    def last_offset(self) -> int: ...

    def now_us(self) -> int:
        """The moment that records are stamped with, in microseconds."""
        ...

    def trim(self, up_to: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Relayed:
    """Source and target of the records that are taken over, and the leases of the processes that do so."""

    source: PartitionedLog
    leases: Leases
    target: LogBehind
