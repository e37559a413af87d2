"""Locks of writers: one for each database file, handed over in the order of asking.

SQLite admits one writer per file and lets others poll with growing pauses. Writers of one process take
turns here instead, so that a request that waits for its commit is never behind a busy loop that came later.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from hoglab.storage.database.errors import DatabaseBusyError, NestedWriteError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WRITE_TIMEOUT_S = 30.0
"""Time for which a writer waits for its turn in this process before `DatabaseBusyError`."""


class WriteLock:
    """First come, first served. `threading.Lock` lets a thread that releases and asks again overtake all."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._mutex = threading.Lock()
        self._held = False
        self._owner: int | None = None  # ident of the thread inside
        self._gates: deque[threading.Lock] = deque()  # one closed gate for each waiting thread

    @contextmanager
    def turn(self, timeout_s: float | None = None) -> Iterator[None]:
        """Hold the lock for a block. Raises `DatabaseBusyError` and `NestedWriteError`."""
        patience_s = WRITE_TIMEOUT_S if timeout_s is None else timeout_s
        if self._owner == threading.get_ident():
            raise NestedWriteError("this thread is writing already: hand its transaction to the inner code")
        if not self._acquire(patience_s):
            raise DatabaseBusyError(f"{self._name} was kept locked by another thread for {patience_s:g} s")
        self._owner = threading.get_ident()
        try:
            yield
        finally:
            self._owner = None
            self._release()

    def _acquire(self, timeout_s: float) -> bool:
        with self._mutex:
            if not self._held:
                self._held = True
                return True
            gate = threading.Lock()
            gate.acquire()
            self._gates.append(gate)
        if gate.acquire(timeout=timeout_s):
            return True
        with self._mutex:
            if gate in self._gates:
                self._gates.remove(gate)
                return False
        return True  # it was handed over at the last moment

    def _release(self) -> None:
        with self._mutex:
            if self._gates:
                self._gates.popleft().release()  # stays held, by the next one
            else:
                self._held = False


_locks: WeakValueDictionary[str, WriteLock] = WeakValueDictionary()
_locks_mutex = threading.Lock()


def write_lock(path: Path) -> WriteLock:
    """Return the lock of a database file, the same for everybody in this process who opens that file."""
    name = str(path.resolve())
    with _locks_mutex:
        lock = _locks.get(name)
        if lock is None:
            lock = _locks[name] = WriteLock(name)
        return lock
