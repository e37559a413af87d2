"""Log records that were put aside because they cannot be processed: rows of a table, on any engine."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hoglab.storage.database.tables import quarantined_record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from hoglab.storage.database import Database
    from hoglab.storage.event_log import SequenceNumber


@dataclass(frozen=True, slots=True)
class QuarantinedRecord:
    """A record that was put aside. ``offset`` is its number in the event log, and its name from then on.

    ``project_id`` is None when that could not be read; ``is_replaying`` when it is about to go back to the log.
    """

    offset: SequenceNumber
    project_id: int | None
    reason: str
    size: int
    quarantined_at: datetime
    is_replaying: bool


@dataclass(frozen=True, slots=True)
class QuarantineState:
    """Size of the quarantine."""

    records: int
    bytes: int


_column = quarantined_record.c
_RECORD = [_column[name] for name in QuarantinedRecord.__dataclass_fields__]


class QuarantineStore:
    """Store of quarantined records. Blocking methods, called from any thread; they raise `DatabaseError`.

    Where a project is given, records of others, and those of no known project, are not looked at.
    """

    def __init__(self, database: Database) -> None:
        """Use the database of the event log, which was opened with ``queue_metadata``."""
        self._database = database

    def put(self, record: QuarantinedRecord, payload: bytes, max_bytes: int) -> QuarantineState | None:
        """Keep a record, durably, in the place of what has its offset.

        Where it does not fit into ``max_bytes`` with what else there is, nothing changes, and what there is is
        returned. One alone may be larger, or its only way out would be a setting.
        """
        with self._database.write() as tx:
            state = _state(tx.connection, _column.offset != record.offset)
            if state.records and state.bytes + len(payload) > max_bytes:
                return state
            tx.execute(sa.delete(quarantined_record).where(_column.offset == record.offset))
            tx.execute(sa.insert(quarantined_record), {**asdict(record), "payload": payload})
        return None

    def state(self) -> QuarantineState:
        """Return number and size of all records."""
        with self._database.read() as connection:
            return _state(connection)

    def replaying(self, limit: int) -> list[tuple[SequenceNumber, bytes]]:
        """Return offsets and payloads of some of the records that are to go back to the log, in order."""
        query = sa.select(_column.offset, _column.payload).where(_column.is_replaying)
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(_column.offset).limit(limit))
            return [(offset, payload) for offset, payload in rows]

    def page(self, project_id: int | None, limit: int | None, offset: int) -> list[QuarantinedRecord]:
        """Return some of the records, oldest first."""
        query = sa.select(*_RECORD).where(*_of(project_id)).order_by(_column.offset)
        with self._database.read() as connection:
            return [QuarantinedRecord(*row) for row in connection.execute(query.limit(limit).offset(offset))]

    def count(self, project_id: int | None) -> int:
        """Return the number of records."""
        query = sa.select(sa.func.count()).select_from(quarantined_record).where(*_of(project_id))
        with self._database.read() as connection:
            return connection.scalar(query) or 0

    def get(self, offset: int, project_id: int | None) -> tuple[QuarantinedRecord, bytes] | None:
        """Return a record with its payload."""
        query = sa.select(*_RECORD, _column.payload).where(_column.offset == offset, *_of(project_id))
        with self._database.read() as connection:
            row = connection.execute(query).first()
        return None if row is None else (QuarantinedRecord(*row[:-1]), row.payload)

    def replay(self, offsets: Sequence[int] | None, project_id: int | None) -> int:
        """Let records (None: all) go back to the log, and return how many."""
        change = sa.update(quarantined_record).where(*_named(offsets), *_of(project_id))
        with self._database.write() as tx:
            return int(tx.execute(change.values(is_replaying=True)).rowcount)

    def discard(self, offsets: Sequence[int] | None, project_id: int | None) -> int:
        """Delete records (None: all) for good, and return how many."""
        with self._database.write() as tx:
            deletion = sa.delete(quarantined_record).where(*_named(offsets), *_of(project_id))
            return int(tx.execute(deletion).rowcount)


def _state(connection: sa.Connection, *clauses: sa.ColumnElement[bool]) -> QuarantineState:
    query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(_column.size), 0)).where(*clauses)
    records, size = connection.execute(query.select_from(quarantined_record)).one()
    return QuarantineState(records, int(size))


def _of(project_id: int | None) -> tuple[sa.ColumnElement[bool], ...]:
    return () if project_id is None else (_column.project_id == project_id,)


def _named(offsets: Sequence[int] | None) -> tuple[sa.ColumnElement[bool], ...]:
    return () if offsets is None else (_column.offset.in_(list(offsets)),)
