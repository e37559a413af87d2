"""An event log in partitions, which are read and stored independently of each other.

Order is kept inside of a partition. All events of a distinct id are in the same one, whatever keeps the log, so the
number of partitions is fixed when the log is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hoglab.storage.event_log import LogRecord

MAX_PARTITIONS = 1024


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
