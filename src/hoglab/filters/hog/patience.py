"""How much slow programs may take of one batch of events, before they are given up for the rest of it.

A single evaluation has the limits of the language, a second of computing. What reaches them on every event would hold
up all other events for hours.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from time import thread_time
from typing import TypeVar

T = TypeVar("T")

SLOW_RUN_S = 0.05
"""What a run computes beyond this is counted as slow."""
BATCH_SLOW_S = 3.0
"""Given up is what came to more than this, so counted, in one batch."""
HURRIED_SLOW_S = 0.5
"""The same for what was slow for long in other batches."""
BATCH_S = 30.0
"""Given up is also what computed longer than this in one batch, however quick each run of it was."""
GIVEN_UP = "It took too long on other events of the same batch and was given up."


class Patience:
    """What is slow in one batch, by any key: a filter, a function."""

    __slots__ = ("_hurried", "_over", "_slow_s", "_used_s")

    def __init__(self) -> None:
        self._used_s: dict[Hashable, float] = {}
        self._slow_s: dict[Hashable, float] = {}
        self._hurried: set[Hashable] = set()
        self._over: set[Hashable] = set()

    def hurry(self, key: Hashable) -> None:
        """Give it up earlier: it was slow for long in other batches."""
        self._hurried.add(key)

    def refuse(self, key: Hashable) -> None:
        """Give it up from the start."""
        self._over.add(key)

    def is_over(self, key: Hashable) -> bool:
        return key in self._over

    def run(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Compute something and take stock of it."""
        started = thread_time()
        try:
            return compute()
        finally:
            self.note(key, thread_time() - started)

    def note(self, key: Hashable, used_s: float) -> None:
        """Take stock of a run that computed so long."""
        used = self._used_s[key] = self._used_s.get(key, 0.0) + used_s
        if used_s > SLOW_RUN_S:
            slow = self._slow_s[key] = self._slow_s.get(key, 0.0) + used_s - SLOW_RUN_S
            if slow > (HURRIED_SLOW_S if key in self._hurried else BATCH_SLOW_S):
                self._over.add(key)
        if used > BATCH_S:
            self._over.add(key)

    def used_s(self, key: Hashable) -> float:
        """What it computed in all."""
        return self._used_s.get(key, 0.0)

    def was_tried(self) -> bool:
        """Whether anything was slow or given up."""
        return bool(self._slow_s or self._over)

    def excess_s(self, key: Hashable) -> float:
        """How much of a batch it took that it should not have: its slow runs beyond what each may take, or all of
        its time when that alone is too much."""
        used = self._used_s.get(key, 0.0)
        return used if used > BATCH_S else self._slow_s.get(key, 0.0)
