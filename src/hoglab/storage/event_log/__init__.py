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
    """The extent of what was accepted, by the numbers of records. Its methods block."""

    def last_offset(self) -> Offset:
        """Return the newest offset that was given out, 0 at first; of several partitions the newest number."""
        ...

    def stats(self) -> LogStats:
        """Return first and last offset, number and bytes of the records that are there."""
        ...

    def trim(self, up_to: SequenceNumber) -> int:
        """Delete finished records up to and including a number, and return how many bytes became free."""
        ...


class LogWriter(Protocol):
    """A durable log of one or several partitions, counted from 0, to which records are appended."""

    @property
    def partitions(self) -> int: ...

    @property
    def max_record_bytes(self) -> int:
        """The size of the largest record that it takes."""
        ...

    async def append_all(
        self,
        records: Sequence[tuple[int, bytes]],
        *,
        insist: bool = False,
        owner: int | None = None,
        alone: bool = False,
    ) -> None:
        """Store records, each with its partition, durably. Raises `EventLogFullError`.

        Many tasks may await it at once: what waits together is committed together (group commit). ``insist``: take
        records however much waits for a consumer. ``owner``: who neither fills the log alone nor delays others by what
        was sent before, None for nobody; ``alone``: there are no others.
        """
        ...

    def pending_bytes(self) -> int:
        """Return bytes of records that wait for ingestion; cheap."""
        ...

    def check(self) -> None:
        """Raise the `EventLogFullError` that a small record would meet now, for health checks."""
        ...


class LogReader(Protocol):
    """The reader of one partition. Used by one thread at a time but for `wake`; its methods block.

    Offsets rise from 1, and some may belong to no record.
    """

    @property
    def reached(self) -> Offset:
        """The offset up to which it was read: all records up to there were returned.

        It may be passed as ``after``, and is above the last returned record where offsets without a record follow; 0
        in a log where none does.
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
