"""Cancelling computations that nobody waits for any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_current: ContextVar[Cancellation | None] = ContextVar("cancellation", default=None)


class Cancellation:
    """Asks the statements of one computation to end. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._interrupts: list[Callable[[], None]] = []
        self.requested = False

    def request(self) -> None:
        """Cancel the computation: its running statement is interrupted, later ones are not begun."""
        with self._lock:
            self.requested = True
            for interrupt in self._interrupts:
                interrupt()

    @contextmanager
    def reaching(self, interrupt: Callable[[], None]) -> Iterator[bool]:
        """Have a request call ``interrupt`` during the block; yield whether a request came before."""
        with self._lock:
            self._interrupts.append(interrupt)
            requested = self.requested
        try:
            yield requested
        finally:
            with self._lock:
                self._interrupts.remove(interrupt)


@contextmanager
def cancellable(cancellation: Cancellation) -> Iterator[None]:
    """End the computations of the block, in this thread, when ``cancellation`` is requested."""
    token = _current.set(cancellation)
    try:
        yield
    finally:
        _current.reset(token)


def current_cancellation() -> Cancellation | None:
    """Return the cancellation that can end the computations of this thread; None without one."""
    return _current.get()
