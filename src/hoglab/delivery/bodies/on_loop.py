"""A pool of bodies for one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from hoglab.fairness.fair_queue import FairQueue

if TYPE_CHECKING:
    from hoglab.delivery.bodies.child import SuspendedRun
    from hoglab.delivery.bodies.pool import BodyPool, Done, Job

T = TypeVar("T")

AT_A_TIME = 4
"""Number of runs that continue before the loop looks at its sockets again.

Their writes wait for that, and so do the runs after them.
"""

_Ended = tuple["asyncio.Future[Any]", Any, BaseException | None]


class BodiesOnLoop:
    """Awaits jobs of a `BodyPool`. Created on the loop that awaits `run`.

    Jobs go to the pool in groups, and their results come back with few wake-ups of the loop: many small jobs stay
    cheap. Waiting callers continue a few at a time, one function after the other.
    """

    def __init__(self, pool: BodyPool) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._asked: list[tuple[Job[Any], Done, str, SuspendedRun | None]] = []
        self._futures: list[asyncio.Future[Any]] = []
        self._ended: deque[tuple[str, _Ended]] = deque()
        self._line: FairQueue[_Ended] = FairQueue()
        self._announced = False
        self._lock = threading.Lock()

    def run(self, job: Job[T], function_id: str, suspended: SuspendedRun | None = None) -> asyncio.Future[T]:
        """Submit a job as `BodyPool.submit` does, and await its result."""
        future: asyncio.Future[T] = self._loop.create_future()

        def done(value: Any, error: BaseException | None) -> None:
            self._ended.append((function_id, (future, value, error)))
            with self._lock:
                announce, self._announced = not self._announced, True
            if announce:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._deliver)

        if not self._asked:
            self._loop.call_soon(self._submit)
        self._asked.append((job, done, function_id, suspended))
        self._futures.append(future)
        return future

    def _submit(self) -> None:
        """Submit the jobs of one turn of the loop."""
        asked, self._asked = self._asked, []
        futures, self._futures = self._futures, []
        try:
            self._pool.submit_all(asked)
        except RuntimeError as error:
            for future in futures:
                if not future.done():
                    future.set_exception(error)

    def _deliver(self) -> None:
        with self._lock:
            self._announced = False
        goes_on = bool(self._line)
        while self._ended:
            self._line.append(*self._ended.popleft())
        if not goes_on:
            self._release()

    def _release(self) -> None:
        """Let some callers continue, and the others in the next turn of the loop."""
        for _ in range(min(AT_A_TIME, len(self._line))):
            future, value, error = self._line.popleft()
            if future.cancelled():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
        if self._line:
            self._loop.call_soon(self._release)
