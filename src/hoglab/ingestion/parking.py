"""Where log records end that cannot be processed: kept for people to look at, out of the way of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hoglab.http.dates import utc_now
from hoglab.storage.database.tables import dead_letter

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
    """The dead letters of the event log, in the queue database."""

    def __init__(self, queue: Database, now: Callable[[], datetime] = utc_now) -> None:
        self._queue = queue
        self._now = now

    def park(self, record: LogRecord, reason: str) -> None:
        """Keep a record; parking one again replaces it."""
        with self._queue.write(durable=True) as tx:
            tx.execute(sa.delete(dead_letter).where(dead_letter.c.offset == record.offset))
            tx.execute(
                sa.insert(dead_letter),
                {
                    "offset": record.offset,
                    "reason": reason[:MAX_REASON_CHARS],
                    "payload": record.payload,
                    "parked_at": self._now(),
                },
            )
            newest = sa.select(dead_letter.c.offset).order_by(dead_letter.c.offset.desc()).limit(MAX_PARKED)
            tx.execute(sa.delete(dead_letter).where(dead_letter.c.offset.not_in(newest)))

    def records(self) -> list[ParkedRecord]:
        """Every parked record, oldest first."""
        with self._queue.read() as connection:
            rows = connection.execute(sa.select(dead_letter).order_by(dead_letter.c.offset))
            return [ParkedRecord(row.offset, row.reason, row.payload, row.parked_at) for row in rows]
