"""A pool of bodies for one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from hoglab.delivery.bodies.child import Held
    from hoglab.delivery.bodies.pool import BodyPool, Done, Job

T = TypeVar("T")


class BodiesOnLoop:
    """Awaits jobs of a `BodyPool`. They go to it in groups, and so does what they come to, back to the loop: many
    small jobs stay cheap.

    Made on the loop that awaits `run`.
    """

    def __init__(self, pool: BodyPool) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._asked: list[tuple[Job[Any], Done, str, Held | None]] = []
        self._futures: list[asyncio.Future[Any]] = []
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

        if not self._asked:
            self._loop.call_soon(self._submit)
        self._asked.append((job, done, function_id, held))
        self._futures.append(future)
        return future

    def _submit(self) -> None:
        """Hand over what was asked for in one turn of the loop."""
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
        while self._ended:
            future, value, error = self._ended.popleft()
            if future.cancelled():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
