"""Progress of work: reported by threads, read by health checks."""

from __future__ import annotations

import time
from collections.abc import Callable

STILL_S = 60.0
"""Time in seconds without progress after which work counts as stopped.

A request, and the computing of one function on one event, end long before that.
"""


class Heartbeat:
    """Progress of one thread, which calls `beat` after each piece of work, and `rest` when nothing is left to do.

    May be read by any thread. ``clock`` returns seconds that only ever rise.
    """

    __slots__ = ("_clock", "_since_s", "_still_s")

    def __init__(self, still_s: float = STILL_S, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._still_s = still_s
        self._clock = clock
        self._since_s: float | None = None

    def beat(self) -> None:
        """Record progress; there may be more to do."""
        self._since_s = self._clock()

    def rest(self) -> None:
        """Record that nothing is left to do for now."""
        self._since_s = None

    def stands_still_s(self) -> float | None:
        """Return the time without progress though there is work; None while there is progress."""
        since_s = self._since_s
        if since_s is None:
            return None
        still_s = self._clock() - since_s
        return still_s if still_s > self._still_s else None
