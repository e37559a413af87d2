"""Rate limits that functions set themselves: a token bucket for each (spec: hog-runtime 11).

Processes that run functions share the buckets: a claim takes tokens before it takes runs, and returns the rest.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from hoglab.fairness.token_bucket import TokenBucket

if TYPE_CHECKING:
    from hoglab.storage.invocations import RateLimits

BURST_S = 0.1
"""Maximum time in seconds for which the allowance of an idle function adds up; one run is always allowed at once."""
LOOK_AGAIN_S = 1.0
"""Maximum delay in seconds with which a changed limit of a function is noticed."""
MAX_KNOWN = 10_000
"""Number of functions above which all but those that are held back are looked up again when they have work."""


class RateLimiter:
    """Rate limits of all functions. Used by one thread.

    ``limit`` returns the runs a second that a function allows itself, None for any number; ``shared`` are the
    buckets, where other processes use them as well.
    """

    def __init__(
        self,
        limit: Callable[[str], float | None],
        clock: Callable[[], float] = time.monotonic,
        shared: RateLimits | None = None,
    ) -> None:
        self._limit = limit
        self._shared = shared
        self._taken: Counter[str] = Counter()  # tokens of the shared buckets, for runs that do not begin yet
        self._empty_until: dict[str, float] = {}
        self._clock = clock
        self._limits: dict[str, float | None] = {}
        self._unknown: set[str] = set()
        self._look_again_at = 0.0
        self._buckets: dict[str, TokenBucket] = {}
        self._held_back: set[str] = set()

    def look_up(self) -> None:
        """Look up the limits that are requested and unknown, and now and then all of them.

        `allowance` reads memory only, so that it may be called inside of a transaction.
        """
        now = self._clock()
        if now >= self._look_again_at:
            self._look_again_at = now + LOOK_AGAIN_S
            if len(self._limits) > MAX_KNOWN:
                self._limits.clear()
            self._unknown.update(self._limits)
            self._buckets = {
                function_id: bucket
                for function_id, bucket in self._buckets.items()
                if bucket.left(now) < bucket.size
            }
        for function_id in self._unknown:
            self._limits[function_id] = self._limit(function_id)
        self._unknown.clear()

    def allowance(self, function_id: str, wanted: int) -> int:
        """Return the number of ``wanted`` runs that a function may begin now: none while its limit is unknown."""
        if function_id not in self._limits:
            self._unknown.add(function_id)
            return 0
        per_s = self._limits[function_id]
        if per_s is None:
            return wanted
        now = self._clock()
        size = max(1.0, per_s * BURST_S)
        if self._shared is not None:
            return self._shared_allowance(self._shared, function_id, wanted, per_s, size)
        known = self._buckets.get(function_id)
        tokens, at = (1.0, now) if known is None else known[:2]
        bucket = TokenBucket(tokens, at, per_s, size).filled(now)
        self._buckets[function_id] = bucket
        allowed = min(wanted, int(bucket.tokens))
        if allowed < wanted:
            self._held_back.add(function_id)
        return allowed

    def _shared_allowance(
        self, shared: RateLimits, function_id: str, wanted: int, per_s: float, size: float
    ) -> int:
        missing = wanted - self._taken[function_id]
        if missing > 0 and self._clock() >= self._empty_until.get(function_id, -math.inf):
            granted = shared.take(function_id, missing, per_s=per_s, size=size)
            self._taken[function_id] += granted.number
            if granted.number < missing:
                self._empty_until[function_id] = self._clock() + granted.wait_s
        allowed = min(wanted, self._taken[function_id])
        if allowed < wanted:
            self._held_back.add(function_id)
        return allowed

    def settle(self) -> None:
        """Return the tokens that no run used. To be called after every claim."""
        taken, self._taken = self._taken, Counter()
        if self._shared is not None:
            for function_id, number in taken.items():
                if number > 0:
                    self._shared.give_back(function_id, number)

    def began(self, function_id: str, number: int) -> None:
        """Record that runs were begun."""
        self._taken[function_id] -= number
        bucket = self._buckets.get(function_id)
        if bucket is not None:
            self._buckets[function_id] = bucket.without(number)

    def wait_s(self) -> float | None:
        """Return the time until the first run of a function that was held back since the last call; None for none."""
        held, self._held_back = self._held_back, set()
        if self._unknown:
            return 0.0
        now = self._clock()
        if self._shared is not None:
            waits = (max(0.0, self._empty_until.get(function_id, now) - now) for function_id in held)
        else:
            waits = (self._buckets[function_id].filled(now).wait_s(1.0) for function_id in held)
        return min(waits, default=None)
