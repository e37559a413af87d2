"""How often functions may run that limit it themselves: a token bucket for each (spec: hog-runtime 11)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

BURST_S = 0.1
"""How long the allowance of a function that does not run adds up, at most; one run is always allowed at once."""
LOOK_AGAIN_S = 1.0
"""How late it may be noticed that a function changed its limit."""
MAX_KNOWN = 10_000
"""With more functions, all but those that are held back are looked up anew when they have work."""


@dataclass(slots=True)
class _Bucket:
    per_s: float
    tokens: float
    at: float

    @property
    def size(self) -> float:
        return max(1.0, self.per_s * BURST_S)

    def refill(self, now: float) -> None:
        self.tokens = min(self.size, self.tokens + max(0.0, now - self.at) * self.per_s)
        self.at = now


class RateLimiter:
    """Used by one thread. ``limit``: runs a second that a function allows itself, None for any number."""

    def __init__(
        self, limit: Callable[[str], float | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit
        self._clock = clock
        self._limits: dict[str, float | None] = {}
        self._unknown: set[str] = set()
        self._look_again_at = 0.0
        self._buckets: dict[str, _Bucket] = {}
        self._held_back: set[str] = set()

    def look_up(self) -> None:
        """Ask for limits that are wanted and not known, and now and then for all.

        `allowance` asks nobody, so that it may be called inside of a transaction.
        """
        now = self._clock()
        if now >= self._look_again_at:
            self._look_again_at = now + LOOK_AGAIN_S
            if len(self._limits) > MAX_KNOWN:
                self._limits.clear()
            self._unknown.update(self._limits)
            self._buckets = {each: one for each, one in self._buckets.items() if not self._is_full(one, now)}
        for function_id in self._unknown:
            self._limits[function_id] = self._limit(function_id)
        self._unknown.clear()

    def allowance(self, function_id: str, wanted: int) -> int:
        """How many of ``wanted`` runs a function may begin now: none as long as nothing is known of it."""
        if function_id not in self._limits:
            self._unknown.add(function_id)
            return 0
        per_s = self._limits[function_id]
        if per_s is None:
            return wanted
        now = self._clock()
        bucket = self._buckets.get(function_id)
        if bucket is None:
            bucket = self._buckets[function_id] = _Bucket(per_s, 1.0, now)
        bucket.per_s = per_s
        bucket.refill(now)
        allowed = min(wanted, int(bucket.tokens))
        if allowed < wanted:
            self._held_back.add(function_id)
        return allowed

    def began(self, function_id: str, number: int) -> None:
        """Note that runs were begun."""
        bucket = self._buckets.get(function_id)
        if bucket is not None:
            bucket.tokens -= number

    def wait_s(self) -> float | None:
        """How long until one of those may run again that were held back since the last call; None when none was."""
        held, self._held_back = self._held_back, set()
        if self._unknown:
            return 0.0
        now = self._clock()
        waits = []
        for function_id in held:
            bucket = self._buckets[function_id]
            bucket.refill(now)
            waits.append(max(0.0, (1.0 - bucket.tokens) / bucket.per_s))
        return min(waits, default=None)

    @staticmethod
    def _is_full(bucket: _Bucket, now: float) -> bool:
        bucket.refill(now)
        return bucket.tokens >= bucket.size
