"""How much of ingestion's time the transformations of one project may take while others wait for the same batches.

Every event pays for some computing. What its project's transformations take beyond that comes out of a bucket, which
fills with time; when it is empty, the rest of the batch passes untransformed. However many transformations a project
has, and however slow they are, ingestion keeps most of its time for others. A project that has the server to itself
takes what it likes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

EVENT_S = 0.002
"""What all transformations of a project together may compute on one event, however many events there are."""
BURST_S = 5.0
"""What they may compute beyond that at once; and the most that they can owe, for work is done in stretches."""
SHARE = 0.25
"""And how much of it comes back in a second, in seconds."""
NEIGHBOUR_S = 3_600.0
"""A project has the server to itself when no other had an event for so long."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """The rules; see the constants."""

    event_s: float = EVENT_S
    burst_s: float = BURST_S
    share: float = SHARE
    neighbour_s: float = NEIGHBOUR_S


class FairShares:
    """The buckets of all projects. Used by one thread. ``clock``: seconds that only ever rise."""

    def __init__(self, rules: Sharing | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rules = rules or Sharing()
        self._clock = clock
        self._left: dict[int, tuple[float, float]] = {}
        self._last: int | None = None
        self._last_at = self._others_at = -math.inf

    def allowed_s(self, project_id: int, events: int) -> float:
        """How long the transformations of a project may compute on so many events that have come: infinite when
        nobody else waits, below zero for a project that owes more than these events pay for."""
        now = self._clock()
        if project_id != self._last:
            self._last, self._others_at = project_id, self._last_at
        self._last_at = now
        if now - self._others_at > self._rules.neighbour_s:
            return math.inf
        return self._rules.event_s * events + self._filled(project_id, now)

    def spent(self, project_id: int, events: int, used_s: float) -> None:
        """Take what they computed on these events."""
        excess_s = used_s - self._rules.event_s * events
        if excess_s > 0:
            now = self._clock()
            left_s = max(-self._rules.burst_s, self._filled(project_id, now) - excess_s)
            self._left[project_id] = (left_s, now)

    def _filled(self, project_id: int, now: float) -> float:
        rules = self._rules
        left_s, at = self._left.get(project_id, (rules.burst_s, now))
        return min(rules.burst_s, left_s + (now - at) * rules.share)
