"""Back-pressure: whether the queue may get more invocations (docs/delivery.md, "When much waits")."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from hoglab.http.dates import utc_now

if TYPE_CHECKING:
    from hoglab.delivery.watcher import Watcher
    from hoglab.functions.registry import FunctionRegistry
    from hoglab.storage.invocations import InvocationQueue

MAX_BACKLOG = 100_000
"""With more invocations due, ingestion waits until the worker has caught up with them; capture goes on until the event
log is full. What nobody could begin yet does not count: what sleeps, waits for its next attempt, or for an earlier one
of its order key. Nor do functions that hold themselves back, by a rate limit or because they are slow: nobody waits for
them."""
MAX_WAITING = 1_000_000
"""With more invocations of one function unfinished, further ones become failed runs at once, to be run again."""
CAUGHT_UP = timedelta(seconds=5)
"""The worker has caught up when nothing is due for longer."""


class Room:
    """How much more may be enqueued. May be used by any thread; its answers cost no look at the disk while little
    waits."""

    def __init__(
        self,
        queue: InvocationQueue,
        registry: FunctionRegistry,
        watcher: Watcher,
        *,
        max_backlog: int = MAX_BACKLOG,
        max_waiting: int = MAX_WAITING,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._queue = queue
        self._registry = registry
        self._watcher = watcher
        self.max_backlog = max_backlog
        self.max_waiting = max_waiting
        self.now = now

    def for_any(self) -> bool:
        """Whether there is any."""
        if self._queue.backlog() < self.max_backlog:
            return True
        apart = self._held_back()
        due = self._queue.next_due(apart_from=apart)
        if due is None or due > self.now() - CAUGHT_UP:
            return True
        return self._queue.due(self.now(), most=self.max_backlog, apart_from=apart) < self.max_backlog

    def for_one(self, function_id: str) -> bool:
        """Whether there is any for invocations of one function."""
        return self.left_to(function_id) > 0 and self.for_any()

    def left_to(self, function_id: str) -> int:
        """How many more one function may have waiting, whatever the others have; not above 0 when it has too many."""
        return self.max_waiting - self._queue.backlog_of(function_id)

    def load(self, most: int) -> int:
        """How many invocations could be begun now, apart from those of functions that hold themselves back; counted
        up to ``most``."""
        if self._queue.backlog() == 0:
            return 0
        return self._queue.due(self.now(), most=most, apart_from=self._held_back())

    def _held_back(self) -> frozenset[str]:
        """The functions with invocations that come late because of the function itself."""
        return frozenset(each for each in self._queue.backlogs() if self._holds_itself_back(each))

    def _holds_itself_back(self, function_id: str) -> bool:
        if self._watcher.is_degraded(function_id) or self._watcher.is_disabled(function_id):
            return True
        known = self._registry.find(function_id)
        return known is not None and known[1].delivery.per_s is not None
