"""Shares of ingestion's time that what it computes for one project may take while others wait for the same batches.

Every event pays for some computing by transformations. What its project's transformations, filters and inputs take
beyond that comes out of a token bucket, which fills with time; when it is empty, the rest of the batch passes
untransformed, and what computes is given up. However many functions a project has, and however slow they are, ingestion
keeps most of its time for others. A project that has the server to itself takes what it likes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

EVENT_S = 0.002
"""Computing time of all transformations of a project together on one event, however many events there are."""
BURST_S = 2.0
"""Computing time beyond that for all functions of a project at once."""
DEBT_S = 10.0
"""Computing time that the functions of a project can owe at most, because work is done in stretches."""
SHARE = 0.1
"""Computing time that a project gets back in a second, in seconds."""
SHARE_OF_ALL = 0.3
"""Computing time that all projects together get back in a second; so others always keep more than half."""
NEIGHBOUR_S = 3_600.0
"""A project has the server to itself when no other had an event for so long."""


@dataclass(frozen=True, slots=True)
class ShareRules:
    """The rules; see the constants."""

    event_s: float = EVENT_S
    burst_s: float = BURST_S
    debt_s: float = DEBT_S
    share: float = SHARE
    share_of_all: float = SHARE_OF_ALL
    neighbour_s: float = NEIGHBOUR_S


class ComputeShares:
    """The buckets of all projects. Used by one thread. ``clock``: seconds that only ever rise."""

    def __init__(
        self, rules: ShareRules | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rules = rules or ShareRules()
        self._clock = clock
        self._left: dict[int, float] = {}  # of projects whose buckets are not full
        self._filled_at = -math.inf
        self._last: int | None = None
        self._last_at = self._others_at = -math.inf

    def allowed_s(self, project_id: int, events: int = 0) -> float:
        """Return the computing time, in seconds, that the functions of a project may take on ``events`` events.

        The events pay for some of it. The time is infinite when nobody else waits, and below zero for a project that
        owes more than these events pay for.
        """
        now = self._clock()
        if project_id != self._last:
            self._last, self._others_at = project_id, self._last_at
        self._last_at = now
        if now - self._others_at > self._rules.neighbour_s:
            return math.inf
        return self._rules.event_s * events + self._filled(project_id, now)

    def spent(self, project_id: int, used_s: float, events: int = 0) -> None:
        """Charge the computing time that functions took on some events, which pay for a part of it."""
        excess_s = used_s - self._rules.event_s * events
        if excess_s > 0:
            left_s = self._filled(project_id, self._clock()) - excess_s
            self._left[project_id] = max(-self._rules.debt_s, left_s)

    def _filled(self, project_id: int, now: float) -> float:
        """Return contents of the bucket of a project, in seconds, after all were filled."""
        rules = self._rules
        if self._left:
            share = min(rules.share, rules.share_of_all / len(self._left))
            back_s = (now - self._filled_at) * share
            self._left = {
                project: left_s + back_s
                for project, left_s in self._left.items()
                if left_s + back_s < rules.burst_s
            }
        self._filled_at = now
        return self._left.get(project_id, rules.burst_s)
