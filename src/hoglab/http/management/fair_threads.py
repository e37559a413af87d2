"""A thread pool that those who use it share fairly: nobody's slow requests take all of its threads.

Who has more at work than there are free threads waits, and the last free thread is for those who have nothing at work.
So one that is alone leaves a thread free, and the first request of somebody else begins at once, however many one has
sent. Those who wait take turns.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from hoglab.http.errors import throttled

T = TypeVar("T")

WAITING_FOR_EACH_THREAD = 16
"""How much work of one owner may wait, for each thread of the pool; what comes beyond is refused."""
RETRY_AFTER_S = 5


class FairThreads:
    """Used on one event loop."""

    def __init__(self, threads: int, name: str, *, waiting: int | None = None) -> None:
        """``waiting``: how much work of one owner may wait, None for as much as befits the threads."""
        self._most = threads
        self._most_waiting = threads * WAITING_FOR_EACH_THREAD if waiting is None else waiting
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._working: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def run(self, owner: str, work: Callable[[], T]) -> T:
        """Do some work of an owner in a thread. Raises 429 when too much of his waits."""
        if self._may_begin(owner):
            self._working[owner] += 1
        else:
            await self._wait(owner)
        loop = asyncio.get_running_loop()
        try:
            done = self._pool.submit(work)
        except RuntimeError:  # the pool is closed
            self._ended(owner)
            raise
        done.add_done_callback(partial(self._thread_is_free, loop, owner))
        return await asyncio.wrap_future(done)

    def close(self, *, wait: bool = False) -> None:
        """Take no more work; ``wait`` for what is at work, else drop what has not begun."""
        self._pool.shutdown(wait=wait, cancel_futures=not wait)

    def _may_begin(self, owner: str) -> bool:
        free = self._most - self._working.total()
        has = self._working[owner]
        return free > 0 if not has else free > 1 and has <= free

    async def _wait(self, owner: str) -> None:
        """Until it is his turn, which then is taken."""
        line = self._waiting.setdefault(owner, deque())
        if len(line) >= self._most_waiting:
            raise throttled(RETRY_AFTER_S)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # his turn had come
                self._ended(owner)
            raise

    def _thread_is_free(self, loop: asyncio.AbstractEventLoop, owner: str, _: Future[Any]) -> None:
        """In the thread: also when nobody waits for its work any more."""
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._ended, owner)

    def _ended(self, owner: str) -> None:
        self._working[owner] -= 1
        if not self._working[owner]:
            del self._working[owner]
        self._hand_on()

    def _hand_on(self) -> None:
        """Let those begin who may, one of each owner after the other."""
        while (owner := next(filter(self._may_begin, self._waiting), None)) is not None:
            line = self._waiting.pop(owner)
            turn = line.popleft()
            if line:
                self._waiting[owner] = line  # to the end
            if not turn.done():  # else it was cancelled
                self._working[owner] += 1
                turn.set_result(None)
