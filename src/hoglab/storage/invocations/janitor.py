"""The janitor of the invocation queue.

What happens to runs that lost their worker, to those that are over, and to what is past its time. It also notices when
the clock was set.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from hoglab.storage.database.types import to_micros
from hoglab.storage.invocations.invocation import Sweep
from hoglab.storage.invocations.traces import expiry

if TYPE_CHECKING:
    from collections.abc import Callable

    from hoglab.storage.invocations.invocation import ClaimedInvocation
    from hoglab.storage.invocations.tables import QueueTables

# Spec: hog-runtime 4.9.
HEARTBEAT_EVERY_S = 10.0
"""Interval at which a worker should renew its locks."""
HEARTBEAT_LIMIT_S = 30.0
"""Without a heartbeat for this long, the worker is taken for dead."""
MAX_RESETS = 3
"""An invocation that lost its worker more often is a poison pill. A finished turn resets the count."""
RESET_BACKOFF_S = 60.0
MAX_RESET_BACKOFF_S = 600.0
"""A reset invocation waits a random time up to the first, doubled with each reset, never above the second."""
FINISHED_GRACE_S = 10.0
"""Minimum time for which a finished invocation stays. It stays until every consumer of the event log is past
the record that caused it, too, so that a record that is read again does not start it again."""

CLOCK_JUMP_S = 5.0
"""A clock that goes wrong by more than this was set."""

SWEEP_ROWS = 500
"""Most rows of one kind that one transaction of the janitor touches."""
RETENTION_EVERY = timedelta(minutes=1)
"""Interval at which logs, metrics and results past their retention are looked for."""

_logger = structlog.get_logger(__name__)


class Janitor:
    """Used by one thread at a time; the clock may be looked at by any."""

    def __init__(
        self,
        tables: QueueTables,
        now: Callable[[], datetime],
        steady: Callable[[], float] | None,
        jitter: Callable[[], float],
        trace_days: int,
    ) -> None:
        """Clean ``tables``. ``steady``: see `QueueTables`; None when the clock of ``now`` is never set."""
        self._tables = tables
        self._now = now
        self._steady = steady
        self._jitter = jitter
        self._trace_days = trace_days
        self._ahead_s = self._ahead()
        self._following = threading.Lock()
        self._retention_at = datetime.min.replace(tzinfo=UTC)

    def _ahead(self) -> float:
        """Return how many seconds the wall clock is ahead of the steady one."""
        return 0.0 if self._steady is None else self._now().timestamp() - self._steady()

    def clock_was_set(self) -> bool:
        """Return whether it was since the last look; costs nothing."""
        return abs(self._ahead() - self._ahead_s) >= CLOCK_JUMP_S

    def follow_clock(self) -> bool:
        """Move the times in the queue if the clock was set, and return whether it was.

        Waits stay as long as they were meant to be, what was due stays due, and no living worker is taken for dead.
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
        """Follow a clock that was set back since the queue was last open, and return whether it was.

        One that was set forward cannot be told from time that passed.
        """
        now = self._now()
        behind_us = to_micros(now) - self._tables.latest()
        if behind_us > -CLOCK_JUMP_S * 1e6:
            return False
        self._move(now, behind_us)
        return True

    def _move(self, now: datetime, jump_us: int) -> None:
        """Move times by ``jump_us``, by which the clock was set; ``now`` is after that."""
        before_us = to_micros(now) - jump_us
        _logger.warning("clock_was_set", by_s=jump_us / 1e6)
        # What was due before is due: of that, only what a clock set back would make wait has to be moved.
        self._tables.move(jump_us, min(before_us, to_micros(now)))

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
            step = self._tables.reset(
                limit, MAX_RESETS, SWEEP_ROWS, lambda resets: to_micros(now + self.backoff(resets))
            )
            reset += step
            if step < SWEEP_ROWS:
                return reset

    def backoff(self, resets: int) -> timedelta:
        """Return the backoff of an invocation that lost its worker again."""
        most_s: float = min(RESET_BACKOFF_S * 2.0**resets, MAX_RESET_BACKOFF_S)
        return timedelta(seconds=most_s * self._jitter())

    def _claim_poisoned(self, now: datetime) -> list[ClaimedInvocation]:
        limit = to_micros(now - timedelta(seconds=HEARTBEAT_LIMIT_S))
        return self._tables.take_poisoned(limit, MAX_RESETS, SWEEP_ROWS, to_micros(now))

    def _delete_finished(self, now: datetime) -> None:
        before = to_micros(now - timedelta(seconds=FINISHED_GRACE_S))
        while self._tables.delete_finished(before, SWEEP_ROWS) >= SWEEP_ROWS:
            pass

    def _delete_expired(self, now: datetime) -> bool:
        ages = expiry(self._trace_days).items()
        deleted = [
            self._tables.delete_expired(table, to_micros(now) - age, SWEEP_ROWS) for table, age in ages
        ]
        return any(deleted)
