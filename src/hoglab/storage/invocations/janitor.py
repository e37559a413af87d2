"""The janitor of the invocation queue.

What happens to runs that lost their worker, to those that are over, and to what is past its time. It also notices when
the clock was set.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import structlog

from hoglab.storage.database.types import to_micros
from hoglab.storage.invocations import Sweep
from hoglab.storage.invocations.claims import CLAIMED, claimed_of
from hoglab.storage.invocations.traces import delete_expired

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from hoglab.storage.invocations import ClaimedInvocation

# Spec: hog-runtime 4.9.
HEARTBEAT_EVERY_S = 10.0
"""How often a worker should renew its locks."""
HEARTBEAT_LIMIT_S = 30.0
"""Without a heartbeat for this long, the worker is taken for dead."""
MAX_RESETS = 3
"""An invocation that lost its worker more often is a poison pill. A finished turn starts the count anew."""
RESET_BACKOFF_S = 60.0
MAX_RESET_BACKOFF_S = 600.0
"""A reset invocation waits a random time up to the first, doubled with each reset, never above the second."""
FINISHED_GRACE_S = 10.0
"""How long a finished invocation stays, at least. It stays until every consumer of the event log is past
the record that caused it, too, so that a record that is read again does not start it again."""

CLOCK_JUMP_S = 5.0
"""A clock that goes wrong by more than this was set."""

SWEEP_ROWS = 500
"""Most rows of one kind that one transaction of the janitor touches."""
RETENTION_EVERY = timedelta(minutes=1)
"""How often logs, metrics and results past their retention are looked for."""

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

_logger = structlog.get_logger(__name__)


class Janitor:
    """Used by one thread at a time; the clock may be looked at by any."""

    def __init__(
        self,
        transaction: Callable[[], AbstractContextManager[sqlite3.Connection]],
        now: Callable[[], datetime],
        steady: Callable[[], float] | None,
        jitter: Callable[[], float],
        trace_days: int,
    ) -> None:
        """``steady``: as for `SqliteInvocationQueue`; None when the clock of ``now`` is never set."""
        self._transaction = transaction
        self._now = now
        self._steady = steady
        self._jitter = jitter
        self._trace_days = trace_days
        self._ahead_s = self._ahead()
        self._following = threading.Lock()
        self._retention_at = datetime.min.replace(tzinfo=UTC)

    def _ahead(self) -> float:
        """How far the clock is ahead of the steady one, in seconds."""
        return 0.0 if self._steady is None else self._now().timestamp() - self._steady()

    def clock_was_set(self) -> bool:
        """Whether it was since the last look; costs nothing."""
        return abs(self._ahead() - self._ahead_s) >= CLOCK_JUMP_S

    def follow_clock(self) -> bool:
        """When the clock was set, move what was reckoned by it.

        Waits stay as long as they were meant to be, what was due stays due, and no living worker is taken for dead.
        Whether it was.
        """
        with self._following:
            ahead_s = self._ahead()
            jump_s = ahead_s - self._ahead_s
            if abs(jump_s) < CLOCK_JUMP_S:
                return False
            self._move(self._now(), round(jump_s * 1e6))
            self._ahead_s = ahead_s
        return True

    def follow_clock_of_last_time(self) -> bool:
        """The same for a clock that was set back since the queue was last open. Whether it was.

        One that was set forward cannot be told from time that passed.
        """
        now = self._now()
        with self._transaction() as connection:
            behind_us = to_micros(now) - connection.execute(_LATEST).fetchone()[0]
        if behind_us > -CLOCK_JUMP_S * 1e6:
            return False
        self._move(now, behind_us)
        return True

    def _move(self, now: datetime, jump_us: int) -> None:
        """``now``: after the clock went on, or back, by ``jump_us``."""
        before_us = to_micros(now) - jump_us
        _logger.warning("clock_was_set", by_s=jump_us / 1e6)
        # What was due before is due: of that, only what a clock set back would make wait has to be moved.
        waiting = (jump_us, min(before_us, to_micros(now)))
        with self._transaction() as connection:
            connection.execute(_MOVE_HEARTBEATS, (jump_us,))
            connection.execute(_MOVE_WAITS, waiting)
            connection.execute(_MOVE_WINDOWS, waiting)

    def sweep(self) -> Sweep:
        """Reset what lost its worker, hand out poison pills, delete what is over."""
        now = self._now()
        reset = self._reset_stalled(now)
        poisoned = self._claim_poisoned(now)
        self._delete_finished(now)
        if abs(now - self._retention_at) >= RETENTION_EVERY:
            self._retention_at = now
            while self._delete_expired(now):
                pass
        return Sweep(reset, poisoned)

    def _reset_stalled(self, now: datetime) -> int:
        limit = to_micros(now - timedelta(seconds=HEARTBEAT_LIMIT_S))
        reset = 0
        while True:
            with self._transaction() as connection:
                rows = connection.execute(_STALLED, (limit, MAX_RESETS, SWEEP_ROWS)).fetchall()
                connection.executemany(
                    _RESET,
                    [(to_micros(now + self.backoff(count)), count + 1, each) for each, count in rows],
                )
            reset += len(rows)
            if len(rows) < SWEEP_ROWS:
                return reset

    def backoff(self, resets: int) -> timedelta:
        """How long an invocation waits that lost its worker again."""
        most_s: float = min(RESET_BACKOFF_S * 2.0**resets, MAX_RESET_BACKOFF_S)
        return timedelta(seconds=most_s * self._jitter())

    def _claim_poisoned(self, now: datetime) -> list[ClaimedInvocation]:
        limit = to_micros(now - timedelta(seconds=HEARTBEAT_LIMIT_S))
        parameters = (str(uuid4()), to_micros(now), limit, MAX_RESETS, SWEEP_ROWS)
        with self._transaction() as connection:
            return list(map(claimed_of, connection.execute(_POISONED, parameters).fetchall()))

    def _delete_finished(self, now: datetime) -> None:
        before = to_micros(now - timedelta(seconds=FINISHED_GRACE_S))
        deleted = SWEEP_ROWS
        while deleted >= SWEEP_ROWS:
            with self._transaction() as connection:
                lowest = connection.execute(_LOWEST_POSITION).fetchone()[0]
                passed = _FOREVER if lowest is None else lowest
                deleted = connection.execute(_DELETE_FINISHED, (before, passed, SWEEP_ROWS)).rowcount

    def _delete_expired(self, now: datetime) -> bool:
        with self._transaction() as connection:
            return delete_expired(connection, to_micros(now), SWEEP_ROWS, self._trace_days) > 0
