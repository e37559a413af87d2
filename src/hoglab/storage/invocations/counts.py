"""How much waits in the invocation queue, and the waits for more of it."""

from __future__ import annotations

import threading
from collections import Counter as Counts
from typing import TYPE_CHECKING

from hoglab.storage.database.types import from_micros, to_micros
from hoglab.storage.invocations.invocation import QueueStats

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from datetime import datetime

    from hoglab.storage.invocations.tables import QueueTables


class Arrivals:
    """Work that may have become available in the queue. Consumers sleep until there is some."""

    def __init__(self) -> None:
        self._came = threading.Condition()
        self._number = 0  # how often work may have become available
        self._thread = threading.local()  # arrivals that this thread has looked for already

    def wait(self, timeout_s: float) -> bool:
        """Sleep until work may have come since this thread's last claim, at most ``timeout_s``."""
        seen = getattr(self._thread, "seen", self._number)
        with self._came:
            came = self._came.wait_for(lambda: self._number != seen, timeout_s)
            self._thread.seen = self._number
        return came

    def wake(self) -> None:
        """End all waits: who looks for work may find some, perhaps what it had to leave before."""
        with self._came:
            self._number += 1
            self._came.notify_all()

    def look(self) -> None:
        """Note that this thread now looks for all work that has arrived."""
        self._thread.seen = self._number


class QueueCounts:
    """Numbers of invocations, for those who watch a queue.

    Numbers of unfinished ones are in memory. The queue says what its transactions did, after their commits. Of an
    invocation that another thread or process enqueued, the end may be noted first: counts are below zero until its
    beginning is. The other numbers are read from the tables, and raise `DatabaseError`.
    """

    def __init__(self, tables: QueueTables, now: Callable[[], datetime]) -> None:
        self._tables = tables
        self._now = now
        self._lock = threading.Lock()  # guards the counts
        self._unfinished: Counts[str] = Counts()  # of each function that has any
        self._backlog = 0

    def backlog(self) -> int:
        """Return the number of unfinished invocations, of other processes as of the last count; costs nothing."""
        return max(0, self._backlog)

    def backlog_of(self, function_id: str) -> int:
        """Return the number of unfinished invocations of one function; costs nothing, either."""
        return max(0, self._unfinished[function_id])

    def backlogs(self) -> dict[str, int]:
        """Return numbers of unfinished invocations by function, of those that have any."""
        with self._lock:
            return dict(+self._unfinished)

    def next_due(self, *, apart_from: Collection[str] = ()) -> datetime | None:
        """Return the time when the next available invocation is due, ``apart_from`` those of some functions.

        None when there is none.
        """
        first = self._tables.first_scheduled(apart_from)
        return None if first is None else from_micros(first)

    def due(
        self,
        until: datetime,
        *,
        most: int,
        most_of_project: int | None = None,
        apart_from: Collection[str] = (),
    ) -> int:
        """Return the number of available invocations due at a time, ``apart_from`` those of some functions.

        Counted up to ``most``, which is what it costs, and of one project (in each queue and priority) up to
        ``most_of_project``.
        """
        return self._tables.count_due(to_micros(until), apart_from, most, most_of_project or most)

    def stats(self) -> QueueStats:
        """Return counts, and since when the oldest due invocation waits."""
        first = self.next_due()
        is_due = first is not None and first <= self._now()
        running = self._tables.count_running()
        waiting = max(0, self.backlog() - running)
        return QueueStats(waiting, running, first if is_due else None, self._tables.count_dead())

    # -- for the queue ------------------------------------------------------------------------------

    def note(self, added: Mapping[str, int], over: Mapping[str, int]) -> None:
        """Count what a commit has ``added``, and what is ``over`` with it, by function."""
        with self._lock:
            for function_id, number in added.items():
                self._unfinished[function_id] += number
                self._backlog += number
            for function_id, number in over.items():
                self._unfinished[function_id] -= number
                self._backlog -= number
                if not self._unfinished[function_id]:
                    del self._unfinished[function_id]

    def replace(self, counts: Iterable[tuple[str, int]]) -> bool:
        """Take the counts of a database, and return whether any is larger than what was known.

        No transaction of this process is between its commit and its `note` meanwhile.
        """
        unfinished: Counts[str] = Counts()
        for function_id, number in counts:
            unfinished[function_id] += number
        with self._lock:
            grown = unfinished - self._unfinished
            self._unfinished = unfinished
            self._backlog = unfinished.total()
        return bool(grown)
