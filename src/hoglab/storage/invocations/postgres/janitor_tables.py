# ruff: noqa: S608 - statements are put together of constants
"""Rows swept by the janitor, beside the janitors of other processes: what another one holds is passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hoglab.storage.database.locks import tried_again
from hoglab.storage.invocations.claims import COLUMNS, claimed_of
from hoglab.storage.invocations.traces import expiry

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import psycopg

    from hoglab.storage.invocations import ClaimedInvocation

_LATEST = """
SELECT greatest(
    (SELECT max(updated_at) FROM consumer_position),
    (SELECT max(finished_at) FROM invocation WHERE finished_at IS NOT NULL),
    (SELECT max(heartbeat_at) FROM invocation WHERE status = 'running'),
    0
)
"""
_MOVE_HEARTBEATS = "UPDATE invocation SET heartbeat_at = heartbeat_at + %s WHERE status = 'running'"
_MOVE_WAITS = (
    "UPDATE invocation SET scheduled_at = scheduled_at + %s WHERE status = 'available' AND scheduled_at > %s"
)
_MOVE_WINDOWS = "UPDATE masking_counter SET expires_at = expires_at + %s WHERE expires_at > %s"
_STALLED = (
    "SELECT id, reset_count FROM invocation WHERE status = 'running' AND heartbeat_at < %s AND reset_count < %s "
    "ORDER BY heartbeat_at LIMIT %s FOR UPDATE SKIP LOCKED"
)
_RESET = (
    "UPDATE invocation SET status = 'available', scheduled_at = reset.due, reset_count = reset.count, "
    "lock_token = NULL, heartbeat_at = NULL FROM unnest(%s::text[], %s::bigint[], %s::smallint[]) "
    "AS reset (id, due, count) WHERE invocation.id = reset.id"
)
_POISONED = f"""
WITH poisoned AS MATERIALIZED (
    SELECT id FROM invocation WHERE status = 'running' AND heartbeat_at < %s AND reset_count >= %s
    LIMIT %s FOR UPDATE SKIP LOCKED
)
UPDATE invocation SET lock_token = %s, heartbeat_at = %s WHERE id IN (SELECT id FROM poisoned) RETURNING {COLUMNS}
"""
_DELETE_FINISHED = """
DELETE FROM invocation WHERE id IN (
    SELECT id FROM invocation WHERE finished_at IS NOT NULL AND finished_at < %s
        AND coalesce(log_offset, 0) <= coalesce((SELECT min("offset") FROM consumer_position), 9223372036854775807)
    ORDER BY finished_at LIMIT %s FOR UPDATE SKIP LOCKED
)
"""


class PostgresJanitorTables:
    """See `JanitorTables`."""

    def __init__(
        self,
        transaction: Callable[[], AbstractContextManager[psycopg.Connection[Any]]],
        new_token: Callable[[], str],
    ) -> None:
        self._transaction = transaction
        self._new_token = new_token

    def latest(self) -> int:
        """Return the latest moment that was noted of what is over or at work."""
        with self._transaction() as connection:
            row = connection.execute(_LATEST).fetchone()
            return 0 if row is None else int(row[0])

    @tried_again
    def move(self, jump: int, before: int) -> None:
        """Move heartbeats, and what waits or is open beyond a moment."""
        with self._transaction() as connection:
            connection.execute(_MOVE_HEARTBEATS, (jump,))
            connection.execute(_MOVE_WAITS, (jump, before))
            connection.execute(_MOVE_WINDOWS, (jump, before))

    def reset(self, beat_before: int, max_resets: int, most: int, due: Callable[[int], int]) -> int:
        """Make invocations without a heartbeat since a moment due again, and return how many."""
        with self._transaction() as connection:
            rows = connection.execute(_STALLED, (beat_before, max_resets, most)).fetchall()
            ids, counts = [id_ for id_, _ in rows], [count for _, count in rows]
            if rows:
                connection.execute(_RESET, (ids, list(map(due, counts)), [count + 1 for count in counts]))
        return len(rows)

    def take_poisoned(
        self, beat_before: int, max_resets: int, most: int, now: int
    ) -> list[ClaimedInvocation]:
        """Lock what has no heartbeat since and was reset so often."""
        parameters = (beat_before, max_resets, most, self._new_token(), now)
        with self._transaction() as connection:
            return list(map(claimed_of, connection.execute(_POISONED.encode(), parameters).fetchall()))

    def delete_finished(self, before: int, most: int) -> int:
        """Delete what was finished before, as far as every consumer of the event log is past its record."""
        with self._transaction() as connection:
            return connection.execute(_DELETE_FINISHED, (before, most)).rowcount

    def delete_expired(self, now: int, most: int, trace_days: int) -> int:
        """Delete what is past its time, up to ``most`` rows of each table."""
        deleted = 0
        for table, (column, kept) in expiry(trace_days).items():
            statement = (
                f"DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table} WHERE {column} < %s "
                f"ORDER BY {column} LIMIT %s FOR UPDATE SKIP LOCKED))"
            )
            with self._transaction() as connection:
                deleted += connection.execute(statement.encode(), (now - kept, most)).rowcount
        return deleted
