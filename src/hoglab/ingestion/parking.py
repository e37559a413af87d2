"""Where log records end that cannot be processed: kept for people to look at, out of the way of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hoglab.http.dates import utc_now
from hoglab.storage.database.tables import parked_record

if TYPE_CHECKING:
    from hoglab.storage.database import Database
    from hoglab.storage.event_log import LogRecord

MAX_PARKED = 1_000
"""Parked records that are kept; the oldest go first."""
MAX_REASON_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class ParkedRecord:
    """A record that was put aside. ``offset`` is where it was in the log."""

    offset: int
    reason: str
    payload: bytes
    parked_at: datetime


class Parking:
    """The parked records of the event log, in the queue database."""

    def __init__(self, queue: Database, now: Callable[[], datetime] = utc_now) -> None:
        self._queue = queue
        self._now = now

    def park(self, record: LogRecord, reason: str) -> None:
        """Keep a record; parking one again replaces it."""
        with self._queue.write() as tx:
            tx.execute(sa.delete(parked_record).where(parked_record.c.offset == record.offset))
            tx.execute(
                sa.insert(parked_record),
                {
                    "offset": record.offset,
                    "reason": reason[:MAX_REASON_CHARS],
                    "payload": record.payload,
                    "parked_at": self._now(),
                },
            )
            newest = (
                sa.select(parked_record.c.offset).order_by(parked_record.c.offset.desc()).limit(MAX_PARKED)
            )
            tx.execute(sa.delete(parked_record).where(parked_record.c.offset.not_in(newest)))

    def records(self) -> list[ParkedRecord]:
        """Every parked record, oldest first."""
        with self._queue.read() as connection:
            rows = connection.execute(sa.select(parked_record).order_by(parked_record.c.offset))
            return [ParkedRecord(row.offset, row.reason, row.payload, row.parked_at) for row in rows]
