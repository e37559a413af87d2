"""A log of one partition, which one process reads: its reader, and the ledger of who has no others to agree with."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

from hoglab.storage.event_log import Offset, numbered
from hoglab.storage.event_log.partitions import LeaseRound, OpenBatch, PartitionLease

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection

    from hoglab.storage.event_log import LogRecord, SequenceNumber
    from hoglab.storage.event_log.log import GroupCommitLog
    from hoglab.storage.event_log.partitions import PartitionDone

CONSUMER = "ingestion"
"""Name of the position up to which ingestion has come: the log keeps what follows."""

_LEASE = PartitionLease(0, 0)

_log = structlog.get_logger(__name__)


class SoleReader:
    """See `LogReader`."""

    reached = Offset(0)
    """No offset is passed over for want of a record."""

    def __init__(self, log: GroupCommitLog) -> None:
        self._log = log

    def read(self, after: Offset, *, max_records: int, max_bytes: int) -> Sequence[LogRecord]:
        """See `LogReader.read`."""
        return self._log.read(after, max_records=max_records, max_bytes=max_bytes)

    def wait(self, after: Offset, timeout_s: float) -> bool:
        """See `LogReader.wait`."""
        return self._log.wait(after, timeout_s)

    def wake(self) -> None:
        """See `LogReader.wake`."""
        self._log.wake()

    def close(self) -> None:
        """Do nothing: the log is closed by those who opened it."""


class SoleLedger:
    """See `Ledger`: it always has the lease, and takes from those who do the work how far that has come.

    A crash may leave them one batch apart. What one of them lacks is processed again, in steps that do not reach beyond
    what the store has: that was stored as a whole.
    """

    is_shared = False

    def __init__(
        self,
        log: GroupCommitLog,
        *,
        stored: Callable[[], SequenceNumber],
        applied: Callable[[], SequenceNumber],
        dispatched: Callable[[], SequenceNumber],
    ) -> None:
        """Create the ledger; the functions return the record up to which the store, persons and dispatch have all."""
        self._log = log
        self._stored, self._applied, self._dispatched = stored, applied, dispatched
        self._done = Offset(0)

    def positions(self) -> Mapping[int, Offset]:
        """Return the offset up to which both the store and dispatch have everything."""
        self._done = Offset(min(self._stored(), self._dispatched()))
        return {_LEASE.partition: self._done}

    def renew(self) -> LeaseRound:
        """Return the one lease. Called once; a log that was replaced gives out offsets behind what was ingested."""
        last, ingested = numbered(self._log.last_offset()), max(self._stored(), self._applied())
        if last < ingested:
            # Its next offsets would look like events that are stored or applied already, and be lost.
            _log.warning(
                "the event log was replaced: it ends before what was ingested", log=last, ingested=ingested
            )
            self._log.advance_sequence(ingested)
        return LeaseRound({_LEASE.partition: _LEASE}, ())

    def give_up(self, partitions: Sequence[int]) -> None:
        """Do nothing: nobody else would take it."""

    def leave(self) -> None:
        """Do nothing: nobody else waits."""

    def open_batch(self, lease: PartitionLease) -> OpenBatch | None:  # noqa: ARG002 - there is only one
        """Return what the store has and dispatch lacks; None where there is nothing."""
        stored = Offset(self._stored())
        return OpenBatch(stored, 0, is_whole=False) if stored > self._dispatched() else None

    def begin(self, lease: PartitionLease, last: Offset, events: int) -> OpenBatch:  # noqa: ARG002
        """Return the batch up to an offset, whose records have their offsets as numbers."""
        return OpenBatch(last, 0, is_whole=False)

    def finish(self, done: PartitionDone) -> None:
        """Note that everything is done up to an offset, so that the log may delete the records before it."""
        self._log.commit(CONSUMER, done.offset)
        self._done = done.offset

    def fence(self, connection: Connection, lease: PartitionLease) -> None:
        """Allow writing: there are no others."""

    def lag_s(self) -> float:
        """Return the age of the oldest record that is not done, in seconds; 0 when all are."""
        oldest = self._log.oldest_after(self._done)
        return 0.0 if oldest is None else max(0.0, time.time() - oldest.timestamp())

    def stored(self) -> SequenceNumber:
        """Return the number of the record up to which everything is done."""
        return numbered(self._done)
