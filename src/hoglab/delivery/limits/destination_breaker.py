"""A circuit breaker for each function whose requests all go to one destination: while that is away, attempts are few.

After `FAILURES` failures in a row, with no success between, its runs stay in the queue and one at a time is let
through as a probe, at intervals that double from `FIRST_S` up to `LONGEST_S`. The first success lets all of them go
on. So an outage costs a probe a minute, and neither uses up the attempts of the waiting runs nor their places.
Functions that send to several destinations have no breaker: an outage of one says nothing about the others.

Each process that runs functions has breakers of its own; `OutageWatch` tells other processes which are open.

A breaker that was open for as long as runs are retried lets everything through, so that runs that became too old
can fail.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from hoglab.background import BackgroundService
from hoglab.storage.database.errors import DatabaseError

if TYPE_CHECKING:
    from hoglab.storage.invocations import Outages

FAILURES = 10
"""Number of failed attempts in a row that open the breaker."""
FIRST_S, LONGEST_S = 1.0, 60.0
LEAST_WAIT_S = 0.05
"""Minimum wait in seconds after a due probe that found no run: all may wait for an earlier one of their order key."""
MAX_KNOWN = 100_000
"""Maximum number of functions whose destinations are remembered; beyond that all are forgotten."""
SEVERAL = ""
OUTAGES_EVERY_S = 1.0
"""Interval in seconds at which processes tell each other which destinations are away."""

_logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Failing:
    since: float
    count: int = 0
    patience_s: float = 0.0
    interval_s: float = FIRST_S
    next_probe: float | None = None  # None: closed
    is_probing: bool = False

    def is_open(self, now: float) -> bool:
        return self.next_probe is not None and now - self.since < self.patience_s


class DestinationBreakers:
    """The breakers of all functions. May be used by any thread."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._jitter = jitter
        self._destinations: dict[
            str, str
        ] = {}  # the destination of each function, `SEVERAL` if there are several
        self._failing: dict[str, _Failing] = {}
        self._held_back: set[str] = set()
        self._elsewhere: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def note(self, function_id: str, destination: str, patience_s: float, *, failed: bool) -> bool:
        """Record the result of an attempt. Return whether that lets runs go on.

        ``failed``: in a way in which a later attempt need not fail. ``patience_s``: for how long its runs are
        retried; 0 for so few attempts that saving them is useless.
        """
        with self._lock:
            if self._destinations.setdefault(function_id, destination) != destination:
                self._destinations[function_id] = SEVERAL
            if len(self._destinations) > MAX_KNOWN:
                self._destinations.clear()
            if not failed:
                ended = self._failing.pop(function_id, None)
                return ended is not None and ended.next_probe is not None
            self._fail(function_id, patience_s)
            return False

    def _fail(self, function_id: str, patience_s: float) -> None:
        now = self._clock()
        failing = self._failing.setdefault(function_id, _Failing(now))
        failing.count += 1
        failing.patience_s = patience_s
        if self._destinations.get(function_id) == SEVERAL:
            failing.next_probe = None
        elif failing.count >= FAILURES and (failing.next_probe is None or failing.is_probing):
            failing.is_probing = False
            failing.next_probe = now + failing.interval_s * (0.5 + self._jitter() / 2)
            failing.interval_s = min(2 * failing.interval_s, LONGEST_S)

    def allowed(self, function_id: str, wanted: int) -> int:
        """Return the number of ``wanted`` runs that may begin: while the breaker is open, one as a probe, or none."""
        with self._lock:
            failing = self._failing.get(function_id)
            now = self._clock()
            if failing is None or failing.next_probe is None or not failing.is_open(now):
                return wanted
            granted = min(wanted, 1 if now >= failing.next_probe else 0)
            if granted < wanted:
                self._held_back.add(function_id)
            return granted

    def began(self, function_id: str) -> None:
        """Record that runs were begun: while the breaker is open, that was the probe."""
        with self._lock:
            failing = self._failing.get(function_id)
            if failing is not None and failing.next_probe is not None:
                failing.is_probing = True
                failing.next_probe = self._clock() + failing.interval_s  # if the probe has no result

    def wait_s(self) -> float | None:
        """Return the time until the first probe of a breaker that held runs back since the last call; None for none."""
        with self._lock:
            held, self._held_back = self._held_back, set()
            now = self._clock()
            probes = [
                failing.next_probe
                for function_id in held
                if (failing := self._failing.get(function_id)) is not None and failing.next_probe is not None
            ]
        return max(LEAST_WAIT_S, min(probes) - now) if probes else None

    def is_open(self, function_id: str) -> bool:
        """Return whether the function's runs are held back."""
        with self._lock:
            failing = self._failing.get(function_id)
            return function_id in self._elsewhere or (failing is not None and failing.is_open(self._clock()))

    def open_here(self) -> list[str]:
        """Return the functions whose breakers are open in this process."""
        now = self._clock()
        with self._lock:
            return [function_id for function_id, failing in self._failing.items() if failing.is_open(now)]

    def open_anywhere(self) -> frozenset[str]:
        """Return the functions whose breakers are open in some process."""
        return self._elsewhere.union(self.open_here())

    def open_elsewhere(self, function_ids: frozenset[str]) -> None:
        """Set the functions whose runs are held back in other processes."""
        self._elsewhere = function_ids


class OutageWatch(BackgroundService):
    """Background service that shares the open breakers of processes with the same queue."""

    NAME = "outage-watch"

    def __init__(self, breakers: DestinationBreakers, outages: Outages) -> None:
        super().__init__()
        self._breakers = breakers
        self._outages = outages

    def round(self) -> float:
        """Write the breakers of this process and read the others', unless the database does not answer."""
        try:
            self._outages.tell(self._breakers.open_here())
            self._breakers.open_elsewhere(self._outages.told())
        except DatabaseError as error:
            _logger.warning("outages_not_shared", reason=str(error))
        return OUTAGES_EVERY_S
