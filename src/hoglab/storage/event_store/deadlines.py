"""Interrupt what runs too long: one thread for all deadlines of a process that are open."""

from __future__ import annotations

import heapq
import threading
import time
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Deadline:
    """``expired`` tells, after the block, whether the time ran out."""

    def __init__(self, at: float, interrupt: Callable[[], object]) -> None:
        self.at = at
        self.interrupt = interrupt
        self.expired = False
        self.open = True


class QueryDeadlines:
    """Starts its thread at the first deadline; the thread ends with the process or with `close`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, Deadline]] = []
        self._numbers = count()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextmanager
    def within(self, timeout_s: float, interrupt: Callable[[], object]) -> Iterator[Deadline]:
        """Call ``interrupt`` from another thread if the block takes longer; never after the block."""
        deadline = Deadline(time.monotonic() + timeout_s, interrupt)
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="deadlines", daemon=True)
                self._thread.start()
            heapq.heappush(self._heap, (deadline.at, next(self._numbers), deadline))
            if self._heap[0][2] is deadline:
                self._changed.notify()
        try:
            yield deadline
        finally:
            with self._changed:  # waits for an interrupt that is being delivered
                deadline.open = False
                while self._heap and not self._heap[0][2].open:
                    heapq.heappop(self._heap)

    def _watch(self) -> None:
        with self._changed:
            while not self._closed:
                if not self._heap:
                    self._changed.wait()
                    continue
                at, _, deadline = self._heap[0]
                left = at - time.monotonic()
                if left > 0 and deadline.open:
                    self._changed.wait(left)
                    continue
                heapq.heappop(self._heap)
                if deadline.open:
                    deadline.expired = True
                    deadline.interrupt()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
