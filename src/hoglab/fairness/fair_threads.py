"""A thread pool that its owners share fairly: nobody's slow work takes all of its threads.

The last free thread is for those who have nothing at work. So one that is alone leaves a thread free, and the first
work of somebody else begins at once, however much one has sent. Members of an owner (the keys of a project) leave
threads to each other: one has half of them at most. Those who wait take turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from hoglab.fairness.fair_semaphore import FairSemaphore, Holder, Place

T = TypeVar("T")

WAITING_FOR_EACH_THREAD = 16
"""Maximum number of waiting jobs of one owner for each thread of the pool; more are refused."""
MEMBER_PART = 2
"""Part of the threads that a member of an owner has at most: half of them."""
_KEY = ""


class FairThreads:
    """Threads that owners share fairly. Used on one event loop."""

    def __init__(self, threads: int, name: str, *, waiting: int | None = None) -> None:
        """Start up to ``threads`` when needed. ``waiting``: work of one owner that may wait; None: by the threads."""
        self._places = FairSemaphore(
            threads,
            kept_free=1,
            max_waiting=threads * WAITING_FOR_EACH_THREAD if waiting is None else waiting,
            member_part=MEMBER_PART,
        )
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, holder: Holder, work: Callable[[], T]) -> T:
        """Do some work of an owner, or of a member of it, in a thread. Raises `TooManyWaitingError`."""
        place = await self._places.enter(_KEY, holder)
        loop = asyncio.get_running_loop()
        try:
            done = self._pool.submit(work)
        except RuntimeError:  # the pool is closed
            self._places.leave(place)
            raise
        done.add_done_callback(partial(self._thread_is_free, loop, place))
        try:
            return await asyncio.wrap_future(done)
        finally:
            # An error has a traceback with this frame, and the future has the error. Without this, all that failing
            # work had in hand, such as the body of a request, would stay until a collection of cycles.
            del done

    def close(self, *, wait: bool = False) -> None:
        """Take no more work; ``wait`` for running work, else drop what has not begun."""
        self._pool.shutdown(wait=wait, cancel_futures=not wait)

    def _thread_is_free(self, loop: asyncio.AbstractEventLoop, place: Place, _: Future[Any]) -> None:
        """Give the place back, called in the thread, even when nobody waits for the result any more."""
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._places.leave, place)
