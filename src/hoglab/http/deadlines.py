"""Deadlines of many short waits, watched by one timer.

A timer for each request is the dearest part of reading its body: starting and stopping one takes the event loop
longer than everything else that reading does. Deadlines here are many seconds away and hardly ever reached, so one
look at all of them every second does as well.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar
from weakref import WeakKeyDictionary

SWEEP_S = 1.0
"""How often deadlines are looked at: how late a wait may be ended at most."""


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
        """Those of the running loop."""
        loop = asyncio.get_running_loop()
        known = cls._latest  # a server has one loop, and weak references are slow to look up
        if known is None or known.loop is not loop:
            known = _by_loop.get(loop)
            if known is None:
                known = _by_loop[loop] = cls(loop)
            cls._latest = known
        return known

    def begin(self, task: asyncio.Task[object], timeout_s: float) -> None:
        """Cancel a task unless it says within ``timeout_s`` that it has `ended` to wait."""
        self._until[task] = self.loop.time() + timeout_s
        if not self._is_watching:
            self._is_watching = True
            self.loop.call_later(min(timeout_s, SWEEP_S), self._sweep)

    def end(self, task: asyncio.Task[object]) -> bool:
        """The wait is over, one way or the other; whether the deadline had passed and cancelled the task."""
        self._until.pop(task, None)
        if task in self._expired:
            self._expired.discard(task)
            return True
        return False

    def _sweep(self) -> None:
        now = self.loop.time()
        for task, until in list(self._until.items()):
            if until <= now:
                del self._until[task]
                self._expired.add(task)
                task.cancel()
        self._is_watching = bool(self._until)
        if self._is_watching:
            soonest = max(0.0, min(self._until.values()) - now)
            self.loop.call_later(min(soonest, SWEEP_S), self._sweep)


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Deadlines] = WeakKeyDictionary()
