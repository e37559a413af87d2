"""Size of a claim: how many runs of one function are taken at a time, from the queue, and to a process for bodies.

Events of other functions wait for such a portion at each step. Small portions cost a transaction or a message for
each few runs, so they are taken only while other functions have work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

COMPANY_S = 10.0
"""Time in seconds for which a function that had work counts as one that may have more."""


class ClaimSizes:
    """Computes sizes of claims. Used by one thread.

    ``alone``: for a function that is the only one with work, ``shared``: else.
    """

    def __init__(self, alone: int, shared: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._alone = alone
        self._shared = shared
        self._clock = clock
        self._last = ""
        self._other_until: float | None = None

    def note(self, function_ids: Iterable[str]) -> None:
        """Record the functions whose runs were claimed."""
        for function_id in function_ids:
            if self._last not in (function_id, ""):
                self._other_until = self._clock() + COMPANY_S
            self._last = function_id

    def size(self) -> int:
        """Return the number of runs to claim now."""
        shared = self._other_until is not None and self._clock() < self._other_until
        return self._shared if shared else self._alone
