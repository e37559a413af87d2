"""Runs that are held after a restore: the original server had them, too, and has gone on with them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from hoglab.storage.database.tables import (
    backfill,
    consumer_position,
    internal_event,
    invocation,
    queue_installation,
)
from hoglab.storage.event_log.extent import append_deferred, last_offset

if TYPE_CHECKING:
    from hoglab.storage.database import Database

PAUSED = "paused"
"""The status of an invocation that nobody may take."""
DISPATCHING = "dispatch"
"""The consumer of the event log that hands events to functions."""


class Held(NamedTuple):
    """Work that is held. ``events``: records of the log that were not dispatched yet."""

    runs: int
    events: int
    backfills: int


def hold_all(database: Database, queue: Database, now: datetime) -> Held:
    """Hold every run that waits, and everything that would become one: for a server that does not run."""
    with queue.write() as tx:
        # Deferred records are delivered by the original, too, so they go before the position where ours begins.
        append_deferred(tx.connection)
        waiting = sa.update(invocation).where(invocation.c.status.in_(["available", "running"]))
        runs = tx.execute(waiting.values(status=PAUSED, lock_token=None, heartbeat_at=None)).rowcount
        offset = last_offset(tx.connection)
        ours = consumer_position.c.consumer == DISPATCHING
        done = tx.connection.scalar(sa.select(consumer_position.c.offset).where(ours)) or 0
        if done:
            tx.execute(sa.update(consumer_position).where(ours).values(offset=offset))
        else:
            tx.execute(
                sa.insert(consumer_position).values(consumer=DISPATCHING, offset=offset, updated_at=now)
            )
        jobs = tx.execute(
            sa.update(backfill)
            .where(backfill.c.status == "running")
            .values(status="cancelled", error="restored from a backup", finished_at=now)
        ).rowcount
        tx.execute(sa.update(queue_installation).values(held_at=now if runs else None))
    with database.write() as tx:
        tx.execute(sa.delete(internal_event))
    return Held(runs, max(0, offset - done), jobs)


def held_runs(queue: Database) -> int:
    """Return the number of runs that are held."""
    with queue.read() as connection:
        if connection.scalar(sa.select(queue_installation.c.held_at)) is None:
            return 0
        paused = sa.select(sa.func.count()).select_from(invocation).where(invocation.c.status == PAUSED)
        return connection.scalar(paused) or 0


def release(queue: Database) -> int:
    """Release the held runs, and return how many. To be called before the queue is opened for work."""
    with queue.write() as tx:
        free = sa.update(invocation).where(invocation.c.status == PAUSED).values(status="available")
        runs = int(tx.execute(free).rowcount)
        tx.execute(sa.update(queue_installation).values(held_at=None))
    return runs
