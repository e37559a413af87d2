"""How much slow programs may take of one batch of events, before they are given up for the rest of it.

A single evaluation has the limits of the language, a second of computing. What reaches them on every event would hold
up all other events for hours.
"""

from __future__ import annotations

from collections.abc import Hashable

SLOW_RUN_S = 0.05
"""What a run computes beyond this is counted."""
BATCH_SLOW_S = 3.0
"""Given up is what came to more than this, so counted, in one batch."""
GIVEN_UP = "It took too long on other events of the same batch and was given up."


class Patience:
    """What is slow in one batch, by any key: a filter, a program of inputs."""

    __slots__ = ("_slow_s",)

    def __init__(self) -> None:
        self._slow_s: dict[Hashable, float] = {}

    def is_over(self, key: Hashable) -> bool:
        return bool(self._slow_s) and self._slow_s.get(key, 0.0) > BATCH_SLOW_S

    def note(self, key: Hashable, used_s: float) -> None:
        """Take stock of a run that computed so long."""
        if used_s > SLOW_RUN_S:
            self._slow_s[key] = self._slow_s.get(key, 0.0) + used_s - SLOW_RUN_S
