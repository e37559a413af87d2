"""One timer for many waits of the same length, which is cheaper than one for each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType


class SharedTimeout:
    """Shared timer of many waits. Created and used on one event loop. `close` it there, when nothing waits any more."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        # In the order in which they began, which is that of their deadlines.
        self._waits: dict[_Wait, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def limit(self) -> _Wait:
        """Return a context that limits a ``with`` block.

        As with `asyncio.timeout`, a block that takes too long is cancelled and raises `TimeoutError`.
        """
        task = asyncio.current_task(self._loop)
        assert task is not None  # noqa: S101 - who awaits is in a task
        wait = _Wait(self._waits, task, self._loop.time() + self._limit_s)
        if self._timer is None:
            self._timer = self._loop.call_at(wait.at, self._look)
        return wait

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """Cancel late waits, and set the timer for the next deadline."""
        self._timer = None
        now = self._loop.time()
        for wait in self._waits:
            if wait.at > now:
                self._timer = self._loop.call_at(wait.at, self._look)
                return
            wait.give_up()


class _Wait:
    """One wait. ``at`` is its deadline, by the clock of the loop."""

    __slots__ = ("_cancelling", "_is_late", "_task", "_waits", "at")

    def __init__(self, waits: dict[_Wait, None], task: asyncio.Task[Any], at: float) -> None:
        self.at = at
        self._waits = waits
        self._task = task
        self._cancelling = task.cancelling()
        self._is_late = False

    def __enter__(self) -> None:
        self._waits[self] = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._waits[self]
        if self._is_late and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def give_up(self) -> None:
        if not self._is_late:
            self._is_late = True
            self._task.cancel()
