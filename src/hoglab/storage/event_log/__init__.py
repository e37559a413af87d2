"""The durable event log: what stands between an accepted request and everything that happens later.

One record is one accepted request (a batch of events), opaque to the log. ``append`` returns only when
the record is on disk; a reader sees records in offset order, from a position of its own. Where one owner sends
very much, its records get their offsets later: see `hoglab.storage.event_log.deferral`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NewType, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


Offset = NewType("Offset", int)
"""The place of a record in its partition of a log: they rise from 1, and 0 is before the first."""

SequenceNumber = NewType("SequenceNumber", int)
"""The number of a record in the one count that all partitions of a log share; effects of the record are known by it.

Everything up to a number is done, or is not. Where a log has one partition, numbers are offsets (`numbered`).
"""


def numbered(offset: Offset, sequence_offset: int = 0) -> SequenceNumber:
    """Return the sequence number of an offset; the difference is that of its batch, 0 where a log has one partition."""
    return SequenceNumber(offset + sequence_offset)


class EventLogFullError(Exception):
    """The log (or the disk below it) cannot take more now. Callers answer 503 with ``Retry-After``.

    ``retry_after_s`` is a whole number of seconds.
    """

    def __init__(self, reason: str, retry_after_s: int) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class LogRecord:
    offset: Offset
    appended_at: datetime
    payload: bytes


@dataclass(frozen=True, slots=True)
class LogStats:
    first_offset: Offset
    last_offset: Offset
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ReadToken:
    """Records of an owner that were accepted up to a moment.

    Everything up to the number ``offset``; with ``deferred_until`` (microseconds since the epoch) that, and what has
    waited for an offset since before.
    """

    owner: int
    offset: SequenceNumber
    deferred_until: int | None = None


class ReadTokens(Protocol):
    """Source of the position up to which records have to be ingested for all that were accepted by now to count."""

    def read_token(self, owner: int) -> ReadToken:
        """Return records of an owner that were accepted by now; cheap."""
        ...

    def resolve(self, token: ReadToken) -> SequenceNumber | None:
        """Return the number up to which all of it is in the log; None while a part is deferred."""
        ...


class EventLog(ReadTokens, Protocol):
    """An append-only log with consumers' positions.

    ``append`` may be awaited by many tasks at once: what waits together is committed together
    (group commit). All other methods are called from worker threads and block.
    """

    async def append(
        self, payload: bytes, *, insist: bool = False, owner: int | None = None, alone: bool = False
    ) -> Offset:
        """Store one record durably and return its offset, 0 while it is deferred. Raises `EventLogFullError`.

        ``insist``: take it however much waits for a consumer. ``owner``: who neither fills the log alone nor delays
        others by what was sent before, None for nobody; ``alone``: there are no others.
        """
        ...

    def read(self, after: Offset, *, max_records: int, max_bytes: int) -> Sequence[LogRecord]:
        """Return records with an offset above ``after``, in order; at least one when any exists, else empty."""
        ...

    def wait(self, after: Offset, timeout_s: float) -> bool:
        """Wait until a record above ``after`` exists or the time is over, and return whether one exists."""
        ...

    def wake(self) -> None:
        """End the wait of the waiting consumer, or else the next wait: for a consumer that is to stop."""
        ...

    def position(self, consumer: str) -> Offset:
        """Return the last offset that this consumer has finished, 0 when it never committed."""
        ...

    def commit(self, consumer: str, offset: Offset) -> None:
        """Mark everything up to and including ``offset`` as finished by this consumer."""
        ...

    def advance_sequence(self, number: SequenceNumber) -> None:
        """Give out only offsets above ``number`` from now on; nothing changes when that is so already.

        For a log that was lost or replaced beside stores that remember offsets of the old one.
        """
        ...

    def trim(self, up_to: SequenceNumber) -> int:
        """Delete records up to and including ``up_to``, and return how many bytes became free."""
        ...

    def last_offset(self) -> Offset:
        """Return the newest offset that was given out, 0 at first; cheap."""
        ...

    def accepted(self) -> int:
        """Return the number of accepted records up to a constant: for differences; cheap."""
        ...

    def oldest_after(self, position: Offset) -> datetime | None:
        """Return acceptance time of the oldest record that a consumer at ``position`` has not finished.

        The result is None for none.
        """
        ...

    def pending_bytes(self) -> int:
        """Return bytes of records that some consumer has not finished; cheap."""
        ...

    def deferred_bytes(self) -> int:
        """Return bytes of those among them that wait for an offset; cheap."""
        ...

    def stats(self) -> LogStats: ...

    def close(self) -> None: ...
