"""Single flight: requests for the same work wait for the one that does it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextlib import suppress


class SingleFlight:
    """Single flight with a bound on the number of different works at the same time."""

    def __init__(self, limit: int) -> None:
        self._slots = threading.BoundedSemaphore(limit)
        self._lock = threading.Lock()
        self._running: dict[Hashable, threading.Event] = {}

    def run(self, key: Hashable, work: Callable[[], None], *, wait_s: float) -> bool:
        """Do ``work`` unless the same key is being worked on; then wait for that.

        Return False when the work was neither finished nor begun within ``wait_s``. Exceptions of ``work`` are
        raised in the thread that does it.
        """
        with self._lock:
            other = self._running.get(key)
            if other is None:
                done = self._running[key] = threading.Event()
        if other is not None:
            return other.wait(wait_s)
        try:
            if not self._slots.acquire(timeout=wait_s):
                return False
            try:
                work()
            finally:
                self._slots.release()
        finally:
            with self._lock, suppress(KeyError):
                del self._running[key]
            done.set()
        return True
