"""Threads that run the code of functions, off the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from hoglab.hog.stack import ensure_stack

T = TypeVar("T")

_Work = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class BodyPool:
    """A few threads for one event loop. Results go back in groups, so that many small jobs stay cheap.

    Made on the loop that awaits `run`.
    """

    def __init__(self, threads: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Work | None] = SimpleQueue()
        self._done: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._announced = False
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._work, name=f"hog-body-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Run a job in one of the threads; await what it returns."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((job, future))
        return future

    def close(self, timeout_s: float) -> None:
        """End the threads; one that is still busy after ``timeout_s`` is left to itself."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(timeout_s)

    def _work(self) -> None:
        ensure_stack()
        while (work := self._jobs.get()) is not None:
            job, future = work
            try:
                self._return(future, job(), None)
            except BaseException as error:
                self._return(future, None, error)

    def _return(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self._done.append((future, value, error))
        with self._lock:
            announce, self._announced = not self._announced, True
        if announce:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            self._announced = False
        while self._done:
            future, value, error = self._done.popleft()
            if future.cancelled():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
