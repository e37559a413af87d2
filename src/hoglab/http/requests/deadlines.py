"""Deadlines of many short waits, watched by one timer.

A timer for each request is the dearest part of reading its body: starting and stopping one takes the event loop
longer than everything else that reading does. Deadlines here are many seconds away and hardly ever reached, so one
look at all of them every second does as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import ClassVar, TypeVar
from weakref import WeakKeyDictionary

SWEEP_S = 1.0
"""Interval at which deadlines are looked at: the maximum delay with which a wait is ended."""


T = TypeVar("T")


class Deadlines:
    """The waits of one event loop. Not for other threads."""

    _latest: ClassVar[Deadlines | None] = None

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._until: dict[asyncio.Task[object], float] = {}
        self._expired: set[asyncio.Task[object]] = set()
        self._is_watching = False

    @classmethod
    def here(cls) -> Deadlines:
        """Return the deadlines of the running loop."""
        loop = asyncio.get_running_loop()
        known = cls._latest  # a server has one loop, and weak references are slow to look up
        if known is None or known.loop is not loop:
            known = _by_loop.get(loop)
            if known is None:
                known = _by_loop[loop] = cls(loop)
            cls._latest = known
        return known

    async def within(self, task: asyncio.Task[object], work: Awaitable[T], timeout_s: float) -> T:
        """Return the result of ``work``, awaited in ``task``, which is the current one. Raises `TimeoutError`.

        What `asyncio.timeout` does, at a fraction of its price.
        """
        cancelling = task.cancelling()
        self.begin(task, timeout_s)
        is_late = False
        try:
            return await work
        except asyncio.CancelledError:
            is_late = self.end(task)
            if is_late and task.uncancel() <= cancelling:
                raise TimeoutError from None
            raise
        finally:
            if not is_late:
                self.end(task)

    def expire(self, task: asyncio.Task[object]) -> None:
        """End a wait before its deadline, as if that had passed. A task that does not wait is left alone."""
        if self._until.pop(task, None) is not None:
            self._expired.add(task)
            task.cancel()

    def begin(self, task: asyncio.Task[object], timeout_s: float) -> None:
        """Cancel a task unless it says within ``timeout_s`` that it has `ended` to wait."""
        self._until[task] = self.loop.time() + timeout_s
        if not self._is_watching:
            self._is_watching = True
            self.loop.call_later(min(timeout_s, SWEEP_S), self._sweep)

    def end(self, task: asyncio.Task[object]) -> bool:
        """Record that the wait is over. Return whether the deadline had passed and cancelled the task."""
        self._until.pop(task, None)
        if task in self._expired:
            self._expired.discard(task)
            return True
        return False

    def _sweep(self) -> None:
        now = self.loop.time()
        for task, until in list(self._until.items()):
            if until <= now:
                self.expire(task)
        self._is_watching = bool(self._until)
        if self._is_watching:
            soonest = max(0.0, min(self._until.values()) - now)
            self.loop.call_later(min(soonest, SWEEP_S), self._sweep)


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Deadlines] = WeakKeyDictionary()
