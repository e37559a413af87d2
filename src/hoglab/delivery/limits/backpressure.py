"""Backpressure: whether the queue accepts more invocations (docs/delivery.md, "When much waits")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hoglab.delivery.limits.breakers import Breakers
    from hoglab.functions.runtime import FunctionRegistry
    from hoglab.storage.invocations import InvocationQueue

MAX_BACKLOG = 100_000
"""Number of due invocations above which ingestion waits for the worker; capture goes on until the event log is full.

Invocations that cannot begin yet do not count: those that sleep, wait for their next attempt, or for an earlier one
of their order key. Nor do functions that hold themselves back, by a rate limit, because they are slow or because
their destination is away: nothing waits for them.
"""
PROJECT_PART = 2
"""The part of `MAX_BACKLOG` (a half) up to which one project counts beside others.

So the events of the others go on, however many invocations of one are due.
"""
MAX_WAITING_OF_PROJECT = 2_000_000
"""Number of unfinished invocations of one project's functions above which further ones become failed runs at once."""
MAX_WAITING = 1_000_000
"""Number of unfinished invocations of one function above which further ones become failed runs, to be run again."""
COUNT_AGAIN_AFTER = timedelta(seconds=1)
"""Maximum age in seconds of the counts of projects."""
CAUGHT_UP = timedelta(seconds=5)
"""Number of due invocations at or below which the worker has caught up."""


class Backpressure:
    """Limit on how much more may be enqueued.

    May be used by any thread; its answers cost no look at the disk while little waits.
    """

    def __init__(
        self,
        queue: InvocationQueue,
        registry: FunctionRegistry,
        breakers: Breakers,
        now: Callable[[], datetime],
    ) -> None:
        self._queue = queue
        self._registry = registry
        self._breakers = breakers
        self.max_backlog = MAX_BACKLOG
        self.max_waiting = MAX_WAITING
        self.max_waiting_of_project = MAX_WAITING_OF_PROJECT
        self.now = now
        self._of_projects: Counter[int] = Counter()
        self._counted_at = datetime.min.replace(tzinfo=UTC)

    def for_any(self) -> bool:
        """Return whether anything may be enqueued."""
        if self._queue.counts.backlog() < self.max_backlog:
            return True
        apart = self._held_back()
        due = self._queue.counts.next_due(apart_from=apart)
        if due is None or due > self.now() - CAUGHT_UP:
            return True
        of_project = self.max_backlog // PROJECT_PART if self._registry.project_count() > 1 else None
        due_now = self._queue.counts.due(
            self.now(), most=self.max_backlog, most_of_project=of_project, apart_from=apart
        )
        return due_now < self.max_backlog

    def for_one(self, function_id: str) -> bool:
        """Return whether invocations of one function may be enqueued."""
        return self.left_to(function_id) > 0 and self.for_any()

    def left_to(self, function_id: str) -> int:
        """Return the number of further invocations that one function may enqueue, whatever other projects have.

        Not above 0 when it, or its project, has too many.
        """
        left = self.max_waiting - self._queue.counts.backlog_of(function_id)
        if self._queue.counts.backlog() < self.max_waiting_of_project:
            return left
        return min(left, self.max_waiting_of_project - self._waiting_beside(function_id))

    def _waiting_beside(self, function_id: str) -> int:
        """Return the number of unfinished invocations of the functions of the function's project."""
        known = self._registry.find(function_id)
        if known is None:
            return 0
        moment = self.now()
        if moment - self._counted_at > COUNT_AGAIN_AFTER:
            self._counted_at = moment
            waiting: Counter[int] = Counter()
            for identifier, count in self._queue.counts.backlogs().items():
                if (registered := self._registry.find(identifier)) is not None:
                    waiting[registered[0].id] += count
            self._of_projects = waiting
        return self._of_projects[known[0].id]

    def load(self, most: int) -> int:
        """Return the number of due invocations, without those of functions that hold themselves back.

        Counted up to ``most``.
        """
        if self._queue.counts.backlog() == 0:
            return 0
        return self._queue.counts.due(self.now(), most=most, apart_from=self._held_back())

    def _held_back(self) -> frozenset[str]:
        """Return the functions whose invocations are late because of the function itself."""
        return frozenset(
            function_id
            for function_id in self._queue.counts.backlogs()
            if self._holds_itself_back(function_id)
        )

    def _holds_itself_back(self, function_id: str) -> bool:
        if self._breakers.functions.is_degraded(function_id) or self._breakers.functions.is_disabled(
            function_id
        ):
            return True
        if self._breakers.destinations.is_open(function_id):
            return True
        known = self._registry.find(function_id)
        return known is not None and known[1].delivery.per_s is not None
