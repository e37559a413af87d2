"""Compute quota: how much slow programs may take of one batch of events before they are given up for the rest of it.

A single evaluation has the limits of the language, a second of computing. What reaches them on every event would hold
up all other events for hours.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from time import thread_time
from typing import TypeVar

from hoglab.hog import HogRuntimeError

T = TypeVar("T")

SLOW_RUN_S = 0.05
"""Computing time of a run beyond which it counts as slow."""
BATCH_SLOW_S = 3.0
"""Computing time of slow runs in one batch beyond which a key is given up."""
HURRIED_SLOW_S = 0.5
"""Computing time of slow runs in one batch beyond which a key is given up that was slow in other batches."""
BATCH_S = 30.0
"""Computing time of all runs in one batch beyond which a key is given up, however quick each run was."""
QUOTA_EXCEEDED = "It took too long on other events of the same batch and was given up."
QUICK_RUN_S = 0.001
"""Computing time of a run beyond which it is charged to the share of all together."""
SHARE_SPENT = (
    "The functions of the project took more than their share of the time that all projects wait for; what computes "
    "was given up for the rest of this batch of events."
)


class ComputeQuota:
    """Quota of computing time in one batch, by any key: a filter, a function.

    ``most_s``: how long all together may compute, what is quick not counted.
    """

    __slots__ = ("_hurried", "_most_s", "_over", "_slow_runs", "_slow_s", "_used_s", "shared_s")

    def __init__(self, most_s: float = math.inf) -> None:
        self._most_s = most_s
        self.shared_s = 0.0
        """Computing time of all together, without quick runs."""
        self._slow_runs: defaultdict[Hashable, list[float]] = defaultdict(list)
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

    def refusal(self, key: Hashable) -> str | None:
        """Return the reason for which it is not run any more in this batch, None when it is."""
        if key in self._over:
            return QUOTA_EXCEEDED
        return SHARE_SPENT if self.shared_s > self._most_s else None

    def attempt(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Compute something, unless it was given up: that raises `HogRuntimeError`."""
        refusal = self.refusal(key)
        if refusal is not None:
            raise HogRuntimeError(refusal)
        return self.run(key, compute)

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
        self.shared_s += max(0.0, used_s - QUICK_RUN_S)
        if used_s > SLOW_RUN_S:
            self._slow_runs[key].append(used_s)
            slow = self._slow_s[key] = self._slow_s.get(key, 0.0) + used_s - SLOW_RUN_S
            if slow > (HURRIED_SLOW_S if key in self._hurried else BATCH_SLOW_S):
                self._over.add(key)
        if used > BATCH_S:
            self._over.add(key)

    def used_s(self, key: Hashable) -> float:
        """Return the computing time of all runs of a key, in seconds."""
        return self._used_s.get(key, 0.0)

    def was_tried(self) -> bool:
        """Return whether anything was slow or given up."""
        return bool(self._slow_s or self._over)

    def slow_runs(self, key: Hashable) -> Sequence[float]:
        """Return the computing times of the slow runs of a key, in seconds."""
        return self._slow_runs.get(key, ())

    def excess_s(self, key: Hashable) -> float:
        """Return the computing time of a key in excess of its share of a batch, in seconds.

        These are its slow runs beyond what each may take, or all of its time when that alone is too much.
        """
        used = self._used_s.get(key, 0.0)
        return used if used > BATCH_S else self._slow_s.get(key, 0.0)
