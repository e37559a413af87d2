"""Sliding-window throttles: per personal API key (spec: experiments-api 1.8), or by other keys."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Rate:
    """A limit: at most ``requests`` within any ``period_s`` seconds."""

    requests: int
    period_s: float


BURST = Rate(480, 60.0)
SUSTAINED = Rate(4800, 3600.0)


@dataclass(slots=True)
class Throttle:
    """Counts requests per key against every rate. Not thread-safe: it lives on the event loop.

    ``clock`` gives seconds that never go back.
    """

    rates: tuple[Rate, ...] = (BURST, SUSTAINED)
    clock: Callable[[], float] = time.monotonic
    _windows: dict[str, tuple[deque[float], ...]] = field(default_factory=dict)
    _swept_at: float = 0.0

    def admit(self, key: str) -> float | None:
        """Count the request and return None when it may pass; else return how many seconds to wait."""
        now = self.clock()
        self._sweep(now)
        windows = self._windows.get(key)
        if windows is None:
            windows = self._windows[key] = tuple(deque() for _ in self.rates)
        wait_s = 0.0
        for rate, window in zip(self.rates, windows, strict=True):
            while window and window[0] <= now - rate.period_s:
                window.popleft()
            if len(window) >= rate.requests:
                left = (rate.period_s - (now - window[0])) / (rate.requests - len(window) + 1)
                wait_s = max(wait_s, left)
        if wait_s > 0:
            return wait_s
        for window in windows:
            window.append(now)
        return None

    def _sweep(self, now: float) -> None:
        """Drop keys that have been silent for the longest period, once per such period."""
        longest = max(rate.period_s for rate in self.rates)
        if now - self._swept_at < longest:
            return
        self._swept_at = now
        silent = [
            key
            for key, windows in self._windows.items()
            if not windows[-1] or windows[-1][-1] <= now - longest
        ]
        for key in silent:
            del self._windows[key]
