"""Rows of ``queue.db`` swept by the janitor."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from hoglab.storage.invocations.claims import CLAIMED, claimed_of
from hoglab.storage.invocations.traces import expiry

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from hoglab.storage.invocations import ClaimedInvocation

_LOWEST_POSITION = 'SELECT min("offset") FROM consumer_position'
_MOVE_HEARTBEATS = "UPDATE invocation SET heartbeat_at = heartbeat_at + ? WHERE status = 'running'"
_MOVE_WAITS = (
    "UPDATE invocation SET scheduled_at = scheduled_at + ? WHERE status = 'available' AND scheduled_at > ?"
)
_MOVE_WINDOWS = "UPDATE masking_counter SET expires_at = expires_at + ? WHERE expires_at > ?"
_LATEST = (
    "SELECT max(coalesce((SELECT max(updated_at) FROM consumer_position), 0), "
    "coalesce((SELECT max(finished_at) FROM invocation WHERE finished_at IS NOT NULL), 0), "
    "coalesce((SELECT max(heartbeat_at) FROM invocation WHERE status = 'running'), 0))"
)
_STALLED = (
    "SELECT id, reset_count FROM invocation WHERE status = 'running' AND heartbeat_at < ? "
    "AND reset_count < ? ORDER BY heartbeat_at LIMIT ?"
)
_RESET = (
    "UPDATE invocation SET status = 'available', scheduled_at = ?, reset_count = ?, lock_token = NULL, "
    "heartbeat_at = NULL WHERE id = ?"
)
_POISONED = (  # noqa: S608
    "UPDATE invocation SET lock_token = ?, heartbeat_at = ? WHERE rowid IN (SELECT rowid FROM invocation "
    "WHERE status = 'running' AND heartbeat_at < ? AND reset_count >= ? LIMIT ?) "
) + CLAIMED
_DELETE_FINISHED = (
    "DELETE FROM invocation WHERE rowid IN (SELECT rowid FROM invocation "
    "WHERE finished_at IS NOT NULL AND finished_at < ? AND coalesce(log_offset, 0) <= ? "
    "ORDER BY finished_at LIMIT ?)"
)
_FOREVER = 1 << 62


class SqliteJanitorTables:
    """See `JanitorTables`."""

    def __init__(self, transaction: Callable[[], AbstractContextManager[sqlite3.Connection]]) -> None:
        self._transaction = transaction

    def latest(self) -> int:
        """Return the latest moment that was noted of what is over or at work."""
        with self._transaction() as connection:
            return int(connection.execute(_LATEST).fetchone()[0])

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
            connection.executemany(_RESET, [(due(count), count + 1, rowid) for rowid, count in rows])
        return len(rows)

    def take_poisoned(
        self, beat_before: int, max_resets: int, most: int, now: int
    ) -> list[ClaimedInvocation]:
        """Lock what has no heartbeat since and was reset so often."""
        parameters = (str(uuid4()), now, beat_before, max_resets, most)
        with self._transaction() as connection:
            return list(map(claimed_of, connection.execute(_POISONED, parameters).fetchall()))

    def delete_finished(self, before: int, most: int) -> int:
        """Delete what was finished before, as far as every consumer of the event log is past its record."""
        with self._transaction() as connection:
            lowest = connection.execute(_LOWEST_POSITION).fetchone()[0]
            passed = _FOREVER if lowest is None else lowest
            return connection.execute(_DELETE_FINISHED, (before, passed, most)).rowcount

    def delete_expired(self, now: int, most: int, trace_days: int) -> int:
        """Delete what is past its time, up to ``most`` rows of each table."""
        deleted = 0
        with self._transaction() as connection:
            for table, (column, kept) in expiry(trace_days).items():
                statement = (
                    f"DELETE FROM {table} WHERE rowid IN "  # noqa: S608
                    f"(SELECT rowid FROM {table} WHERE {column} < ? ORDER BY {column} LIMIT ?)"
                )
                deleted += connection.execute(statement, (now - kept, most)).rowcount
        return deleted
