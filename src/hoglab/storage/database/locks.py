"""Locks of writers, one for each database file, and the repetition of what was undone for the locks of others.

SQLite admits one writer per file and lets others poll with growing pauses. Writers of one process take turns here
instead, in the order of asking: a request that waits for its commit is never behind a busy loop that came later.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from prometheus_client import Counter

from hoglab.storage.database.errors import DatabaseBusyError, DatabaseConflictError, NestedWriteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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


# --- repeating what was undone because transactions waited for each other

ATTEMPTS = 5
"""Maximum attempts of work that the database undid, because its transaction and others waited for each other."""
RETRY_WITHIN_S = 0.05
"""Longest pause before the second attempt; each further one adds as much.

The pause is random, because the other transactions may be repeated, too."""

_CONFLICTS = Counter(
    "hoglab_database_conflicts",
    "Transactions that PostgreSQL undid because they waited for each other (deadlocks, serialization failures).",
)

P = ParamSpec("P")
T = TypeVar("T")


class _Effects(threading.local):
    count = 0


_effects = _Effects()


def took_effect() -> None:
    """Note that this thread has stored something, so that what it is doing cannot be repeated from the beginning."""
    _effects.count += 1


def tried_again(method: Callable[P, T]) -> Callable[P, T]:
    """Return a method that repeats its transaction, up to `ATTEMPTS` times in all, when the server undid it for others.

    Transactions lock shared rows in one order. This is for cases that this order does not cover.
    """

    @wraps(method)
    def again(*args: P.args, **kwargs: P.kwargs) -> T:
        return _repeated(partial(method, *args, **kwargs), lambda: True)

    return again


def repeat_conflicts(work: Callable[[], T]) -> T:
    """Return the result of work that may have several transactions, and is done again while none of them is stored.

    At most `ATTEMPTS` times in all. Raises `DatabaseConflictError` after the last, and where a part was stored.
    """
    before = _effects.count
    return _repeated(work, lambda: _effects.count == before)


def _repeated(work: Callable[[], T], is_repeatable: Callable[[], bool]) -> T:
    attempt = 1
    while True:
        try:
            return work()
        except DatabaseConflictError:
            _CONFLICTS.inc()
            if attempt == ATTEMPTS or not is_repeatable():
                raise
        time.sleep(random.uniform(0, attempt * RETRY_WITHIN_S))  # noqa: S311, nothing secret
        attempt += 1
