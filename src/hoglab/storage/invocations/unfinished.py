"""In-memory counts of unfinished invocations, and the waits for new ones: those of all engines."""

from __future__ import annotations

import threading
from collections import Counter as Counts
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class UnfinishedCounts:
    """Base class of queues, which tells how much is not finished without asking the database.

    A queue says with `_note` what its transactions did, after their commits. Of an invocation that another thread or
    process enqueued, the end may be noted first: counts are below zero until its beginning is.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards the counts
        self._arrivals = 0  # how often work may have become available
        self._unfinished: Counts[str] = Counts()  # of each function that has any
        self._backlog = 0
        self._thread = threading.local()  # arrivals that this thread has looked for already

    # -- for everybody ------------------------------------------------------------------------------

    def wait(self, timeout_s: float) -> bool:
        """Sleep until work may have come since this thread's last `claim`, at most ``timeout_s``."""
        seen = getattr(self._thread, "seen", self._arrivals)
        with self._changed:
            came = self._changed.wait_for(lambda: self._arrivals != seen, timeout_s)
            self._thread.seen = self._arrivals
        return came

    def wake(self) -> None:
        """End all waits: who looks for work may find some that it had to leave."""
        self._note(arrivals=1)

    def backlog(self) -> int:
        """Return the number of unfinished invocations, of other processes as of the last count; costs nothing."""
        return max(0, self._backlog)

    def backlog_of(self, function_id: str) -> int:
        """Return the number of unfinished invocations of one function; costs nothing, either."""
        return max(0, self._unfinished[function_id])

    def backlogs(self) -> dict[str, int]:
        """Return numbers of unfinished invocations by function, of those that have any."""
        with self._changed:
            return dict(+self._unfinished)

    # -- for the queue ------------------------------------------------------------------------------

    def _begin_claim(self) -> None:
        """Note that this thread now looks for all work that has arrived."""
        self._thread.seen = self._arrivals

    def _note(
        self, *, arrivals: int, added: Mapping[str, int] | None = None, over: Mapping[str, int] | None = None
    ) -> None:
        """Count the changes of a commit, and wake the workers when there is something for them."""
        with self._changed:
            for function_id, number in (added or {}).items():
                self._unfinished[function_id] += number
                self._backlog += number
            for function_id, number in (over or {}).items():
                self._unfinished[function_id] -= number
                self._backlog -= number
                if not self._unfinished[function_id]:
                    del self._unfinished[function_id]
            if arrivals:
                self._wake_all()

    def _recount(self, counts: Iterable[tuple[str, int]]) -> None:
        """Take the counts of a database, while no transaction of this process is between its commit and its `_note`."""
        unfinished: Counts[str] = Counts()
        for function_id, number in counts:
            unfinished[function_id] += number
        with self._changed:
            grown = unfinished - self._unfinished
            self._unfinished = unfinished
            self._backlog = unfinished.total()
            if grown:  # somebody enqueued, and nothing told of it
                self._wake_all()

    def _wake_all(self) -> None:
        self._arrivals += 1
        self._changed.notify_all()
