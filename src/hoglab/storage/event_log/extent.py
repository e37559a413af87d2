"""The extent of an event log by its tables, for who looks at it from outside: backups, moves, checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from hoglab.storage.database.counters import counters
from hoglab.storage.database.tables import deferred_record, event_log_head, event_log_record
from hoglab.storage.event_log import LogStats, Offset

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

READ_RECORDS = 200
"""Records that are in memory at the same time while all are read."""
_BYTES = sa.func.coalesce(sa.func.sum(sa.func.length(event_log_record.c.payload)), 0)


def last_offset(connection: Connection) -> Offset:
    """Return the last offset that was given out, whether its record is still there or not; 0 for none."""
    given = counters(connection).last_number(connection, "event_log_record", "offset")
    return Offset(max(given, connection.scalar(sa.select(event_log_head.c.last_offset)) or 0))


def log_stats(connection: Connection) -> LogStats:
    """Return the extent of the log: first and last offset, records and bytes."""
    first, count, size = connection.execute(
        sa.select(sa.func.min(event_log_record.c.offset), sa.func.count(), _BYTES)
    ).one()
    return LogStats(Offset(first or 0), last_offset(connection), count, size)


def unread_records(connection: Connection, is_record: Callable[[bytes], bool]) -> list[Offset]:
    """Return offsets of the records that cannot be read, in order; ``is_record``: whether a payload can."""
    query = sa.select(event_log_record.c.offset, event_log_record.c.payload)
    rows = connection.execution_options(yield_per=READ_RECORDS).execute(
        query.order_by(event_log_record.c.offset)
    )
    return [offset for offset, payload in rows if not is_record(payload)]


def append_deferred(connection: Connection) -> None:
    """Give all deferred records their offsets, in a transaction while nobody else appends."""
    last = last_offset(connection)
    number = last + sa.func.row_number().over(order_by=deferred_record.c.id)
    names = ["owner", "appended_at", "payload"]
    rows = sa.select(number, *(deferred_record.c[name] for name in names)).order_by(deferred_record.c.id)
    added = connection.execute(sa.select(sa.func.count()).select_from(deferred_record)).scalar_one()
    connection.execute(sa.insert(event_log_record).from_select(["offset", *names], rows))
    connection.execute(sa.delete(deferred_record))
    head = event_log_head.c
    connection.execute(
        sa.update(event_log_head).values(last_offset=last + added, deferrals=head.deferrals + 1)
    )
