"""The quarantine: log records that cannot be processed, kept for people to look at, to replay or to discard.

Nothing leaves it but by somebody's decision. When it is full, ingestion waits for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson
import sqlalchemy as sa
from prometheus_client import Gauge

from hoglab.capture.records import RecordError, decode_record, read_header
from hoglab.http.fields.dates import utc_now
from hoglab.storage.database.tables import quarantined_record

if TYPE_CHECKING:
    from hoglab.storage.database import Database
    from hoglab.storage.event_log import LogRecord

MAX_BYTES = 256 * 1024 * 1024
"""What quarantined records may have together; one that does not fit makes ingestion wait."""
MAX_REASON_CHARS = 2_000
REPLAYED_AT_ONCE = 100

_RECORDS = Gauge("hoglab_ingestion_quarantine_records", "Log records that are in quarantine.")
_BYTES = Gauge("hoglab_ingestion_quarantine_bytes", "Size of the log records that are in quarantine.")

_row = quarantined_record.c


class QuarantineFullError(Exception):
    """There is no room for one more record. The text says what to do."""


@dataclass(frozen=True, slots=True)
class QuarantinedRecord:
    """A record that was put aside. ``offset`` is where it was in the event log, and its name from then on.

    ``project_id`` is None when that could not be read; ``is_replaying`` when it is about to go back to the log.
    """

    offset: int
    project_id: int | None
    reason: str
    size: int
    quarantined_at: datetime
    is_replaying: bool

    @classmethod
    def of(cls, row: Any) -> QuarantinedRecord:
        return cls(row.offset, row.project_id, row.reason, row.size, row.quarantined_at, row.is_replaying)


@dataclass(frozen=True, slots=True)
class QuarantineState:
    """How much is in quarantine."""

    records: int
    bytes: int


_SHOWN = (_row.offset, _row.project_id, _row.reason, _row.size, _row.quarantined_at, _row.is_replaying)


class Quarantine:
    """That of the queue database. Records are named by their offsets; ``project_id`` limits what is looked at."""

    def __init__(
        self, queue: Database, *, max_bytes: int = MAX_BYTES, now: Callable[[], datetime] = utc_now
    ) -> None:
        self._queue = queue
        self.max_bytes = max_bytes
        self._now = now

    # --- ingestion's side

    def put(self, record: LogRecord, reason: str) -> None:
        """Keep a record, durably; putting one again replaces it. Raises `QuarantineFullError`."""
        with self._queue.write() as tx:
            tx.execute(sa.delete(quarantined_record).where(_row.offset == record.offset))
            state = _state(tx.connection)
            # One alone may be larger than all, or its only way out would be a setting.
            if state.records and state.bytes + len(record.payload) > self.max_bytes:
                raise QuarantineFullError(
                    f"the quarantine holds {state.records} records ({state.bytes} bytes) and takes no more: replay or "
                    "discard them with `hoglab ingestion quarantine`, or raise HOGLAB_QUARANTINE_MAX_BYTES"
                )
            tx.execute(
                sa.insert(quarantined_record),
                {
                    "offset": record.offset,
                    "project_id": _project_of(record.payload),
                    "reason": reason[:MAX_REASON_CHARS],
                    "size": len(record.payload),
                    "payload": record.payload,
                    "quarantined_at": self._now(),
                    "is_replaying": False,
                },
            )
        self.state()

    def state(self) -> QuarantineState:
        """How much there is now; metrics follow."""
        with self._queue.read() as connection:
            state = _state(connection)
        _RECORDS.set(state.records)
        _BYTES.set(state.bytes)
        return state

    def replaying(self) -> list[tuple[int, bytes]]:
        """Offsets and payloads of some of the records that are to go back to the log, in order."""
        query = sa.select(_row.offset, _row.payload).where(_row.is_replaying).order_by(_row.offset)
        with self._queue.read() as connection:
            return [
                (offset, payload) for offset, payload in connection.execute(query.limit(REPLAYED_AT_ONCE))
            ]

    # --- the operator's side

    def records(
        self, project_id: int | None = None, *, limit: int | None = None, offset: int = 0
    ) -> list[QuarantinedRecord]:
        """A page of records, oldest first."""
        query = sa.select(*_SHOWN).where(*_of(project_id)).order_by(_row.offset).limit(limit).offset(offset)
        with self._queue.read() as connection:
            return [QuarantinedRecord.of(row) for row in connection.execute(query)]

    def count(self, project_id: int | None = None) -> int:
        query = sa.select(sa.func.count()).select_from(quarantined_record).where(*_of(project_id))
        with self._queue.read() as connection:
            return connection.scalar(query) or 0

    def get(self, offset: int, project_id: int | None = None) -> tuple[QuarantinedRecord, bytes] | None:
        """A record with its payload."""
        query = sa.select(*_SHOWN, _row.payload).where(_row.offset == offset, *_of(project_id))
        with self._queue.read() as connection:
            row = connection.execute(query).first()
        return None if row is None else (QuarantinedRecord.of(row), row.payload)

    def replay(self, offsets: Sequence[int] | None = None, project_id: int | None = None) -> int:
        """Have records (None: all) ingested again, by the server or its next start; how many.

        They leave the quarantine when they are in the event log again, and come back when they fail again. Events
        that were stored meanwhile are not stored twice.
        """
        change = sa.update(quarantined_record).where(*_named(offsets), *_of(project_id))
        with self._queue.write() as tx:
            return int(tx.execute(change.values(is_replaying=True)).rowcount)

    def discard(self, offsets: Sequence[int] | None = None, project_id: int | None = None) -> int:
        """Delete records (None: all) for good; how many."""
        with self._queue.write() as tx:
            done = tx.execute(sa.delete(quarantined_record).where(*_named(offsets), *_of(project_id)))
        self.state()
        return int(done.rowcount)


def events_in(payload: bytes) -> list[dict[str, Any]] | None:
    """The events of a record as they were sent; None when they cannot be read."""
    try:
        events = decode_record(payload).envelope.events
        return [
            {
                "uuid": event.uuid,
                "event": event.event,
                "distinct_id": event.distinct_id,
                "timestamp": event.timestamp,
                "properties": orjson.loads(bytes(event.properties) or b"{}"),
            }
            for event in events
        ]
    except (RecordError, ValueError):
        return None


def _project_of(payload: bytes) -> int | None:
    try:
        return read_header(payload)[0].project_id
    except RecordError:
        return None


def _state(connection: sa.Connection) -> QuarantineState:
    query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(_row.size), 0))
    records, size = connection.execute(query.select_from(quarantined_record)).one()
    return QuarantineState(records, size)


def _of(project_id: int | None) -> tuple[sa.ColumnElement[bool], ...]:
    return () if project_id is None else (_row.project_id == project_id,)


def _named(offsets: Sequence[int] | None) -> tuple[sa.ColumnElement[bool], ...]:
    return () if offsets is None else (_row.offset.in_(list(offsets)),)
