# ruff: noqa: S608 - statements are put together of constants
"""Processes that work on the queue: each renews a row of its own. What a dead one was running, others run again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from hoglab.storage.database.postgres.session import NOW_US

if TYPE_CHECKING:
    import psycopg

WORKER_BEAT_EVERY_S = 2.0
WORKER_DEAD_AFTER_S = 10.0
"""Time without renewal of its row after which a worker counts as dead."""
SERVER_UP_FOR_S = WORKER_DEAD_AFTER_S
"""Nobody is taken for dead before the server runs for so long: while it was down, nobody could renew anything."""
WORKER_FORGOTTEN_AFTER_S = 3_600.0

_ID_LENGTH = 18
"""Number of characters of a lock token that name the worker: 64 bits."""
_BEAT = (
    f"INSERT INTO queue_worker (id, heartbeat_at) VALUES (%s, {NOW_US}) "
    "ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at"
)
_FORGET = f"DELETE FROM queue_worker WHERE heartbeat_at < {NOW_US} - %s"
_LEAVE = "DELETE FROM queue_worker WHERE id = %s"
_RELEASE = f"""
WITH living AS (
    SELECT id FROM queue_worker WHERE id <> %(own)s AND heartbeat_at > {NOW_US} - %(dead_after)s
), lost AS MATERIALIZED (
    SELECT id FROM invocation WHERE status = 'running' AND left(lock_token, {_ID_LENGTH}) NOT IN (SELECT id FROM living)
        AND (
            left(lock_token, {_ID_LENGTH}) = %(own)s
            OR NOT EXISTS (SELECT 1 FROM queue_worker WHERE queue_worker.id = left(lock_token, {_ID_LENGTH}))
            OR extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000000 > %(up_for)s
        )
    FOR UPDATE SKIP LOCKED
)
UPDATE invocation SET status = 'available', scheduled_at = %(now)s, lock_token = NULL, heartbeat_at = NULL
WHERE id IN (SELECT id FROM lost)
"""


class WorkerLease:
    """This process as the others see it."""

    def __init__(self) -> None:
        self._id = str(uuid4())[:_ID_LENGTH]

    def new_token(self) -> str:
        """Return a lock token that tells whose it is."""
        return self._id + str(uuid4())[_ID_LENGTH:]

    def beat(self, connection: psycopg.Connection[Any]) -> None:
        """Note in the database that this process lives."""
        connection.execute(_BEAT.encode(), (self._id,))
        connection.execute(_FORGET.encode(), (int(WORKER_FORGOTTEN_AFTER_S * 1e6),))

    def leave(self, connection: psycopg.Connection[Any]) -> None:
        """Note in the database that this process ends."""
        connection.execute(_LEAVE, (self._id,))

    def release(self, connection: psycopg.Connection[Any], now: int, *, own: bool) -> int:
        """Make due what dead workers were running, and (``own``) what this one was, and return how many invocations."""
        parameters = {
            "own": self._id if own else "",
            "dead_after": int(WORKER_DEAD_AFTER_S * 1e6),
            "up_for": int(SERVER_UP_FOR_S * 1e6),
            "now": now,
        }
        return connection.execute(_RELEASE.encode(), parameters).rowcount
