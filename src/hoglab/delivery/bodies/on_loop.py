"""A pool of bodies for one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from hoglab.delivery.bodies.child import Held
    from hoglab.delivery.bodies.pool import BodyPool, Job

T = TypeVar("T")


class BodiesOnLoop:
    """Awaits jobs of a `BodyPool`. What they come to goes to the loop in groups, so that many small jobs stay cheap.

    Made on the loop that awaits `run`.
    """

    def __init__(self, pool: BodyPool) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._ended: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._announced = False
        self._lock = threading.Lock()

    def run(self, job: Job[T], function_id: str, held: Held | None = None) -> asyncio.Future[T]:
        """`BodyPool.submit`; await what the job comes to."""
        future: asyncio.Future[T] = self._loop.create_future()

        def done(value: Any, error: BaseException | None) -> None:
            self._ended.append((future, value, error))
            with self._lock:
                announce, self._announced = not self._announced, True
            if announce:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._deliver)

        self._pool.submit(job, done, function_id=function_id, held=held)
        return future

    def _deliver(self) -> None:
        with self._lock:
            self._announced = False
        while self._ended:
            future, value, error = self._ended.popleft()
            if future.cancelled():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
