"""Locks of the runs that a worker has claimed: whether they are surely still its own (spec: hog-runtime 4.9).

A process that stood still for a while (it was stopped, or the machine slept) finds its runs taken over by another one,
which took it for dead. Before it sends anything for a run it must know that the run is still its own.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple

import structlog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hoglab.storage.invocations import ClaimedInvocation

_logger = structlog.get_logger(__name__)

SURE_FOR_S = 5.0
"""Time in seconds for which a lock surely lasts after it was claimed or renewed.

Other processes take one for dead no earlier than 8 s after that: 10 s after it last said that it lives, which it does
every 2 s.
"""


class ClockReading(NamedTuple):
    """A moment, read from a clock that cannot be set and from one that goes on while a machine sleeps, in seconds."""

    monotonic_s: float
    wall_s: float

    @staticmethod
    def now() -> ClockReading:
        """Return the present moment."""
        return ClockReading(time.monotonic(), time.time())

    def until_s(self, later: ClockReading) -> float:
        """Return the time to a later moment, by the clock that says more."""
        return max(later.monotonic_s - self.monotonic_s, later.wall_s - self.wall_s)


class Locks:
    """Locks of the runs in flight, for one event loop."""

    def __init__(
        self,
        renew: Callable[[dict[str, str]], Awaitable[frozenset[str]]],
        lost: Callable[[str], None],
        *,
        retry_s: float = 0.5,
        now: Callable[[], ClockReading] | None = None,
    ) -> None:
        """Create the locks of a worker that holds none yet.

        ``renew`` renews locks in the queue (token by id of the run) and returns the ids that are still held. ``lost``
        is called with the id of a run that another process has taken over. ``retry_s`` is the pause after a failure.
        """
        self.now = now or ClockReading.now
        self._renew = renew
        self._lost = lost
        self._retry_s = retry_s
        self._held: dict[str, tuple[str, ClockReading]] = {}
        self._renewal: asyncio.Task[None] | None = None

    def take(self, claimed: ClaimedInvocation, since: ClockReading) -> None:
        """Note the lock of a run that was claimed after ``since``."""
        self._held[claimed.id] = claimed.lock_token, since

    def drop(self, claimed: ClaimedInvocation) -> None:
        """Forget the lock of a run that is over."""
        if self._holds(claimed.id, claimed.lock_token):
            del self._held[claimed.id]

    async def ensure(self, claimed: ClaimedInvocation) -> None:
        """Return when the run is surely the worker's own; the queue is asked when too much time has passed.

        Raises `asyncio.CancelledError` when the run is lost.
        """
        while not self._is_sure(claimed):
            await self.renew()
            if not self._holds(claimed.id, claimed.lock_token):
                raise asyncio.CancelledError

    async def renew(self) -> None:
        """Renew all locks, once for all who ask at the same time."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew_all())
        await asyncio.shield(self._renewal)

    async def _renew_all(self) -> None:
        since = self.now()
        tokens = {run_id: token for run_id, (token, _) in self._held.items()}
        if not tokens:
            return
        try:
            kept = await self._renew(tokens)
        except Exception:  # nobody can be asked now, so that nobody may send
            _logger.exception("locks_not_renewed")
            await asyncio.sleep(self._retry_s)
            return
        for run_id, token in tokens.items():
            if not self._holds(run_id, token):
                continue  # the run ended meanwhile, and holds no lock any more
            if run_id in kept:
                self._held[run_id] = token, since
            else:
                del self._held[run_id]
                self._lost(run_id)

    def _holds(self, run_id: str, token: str) -> bool:
        return run_id in self._held and self._held[run_id][0] == token

    def _is_sure(self, claimed: ClaimedInvocation) -> bool:
        if not self._holds(claimed.id, claimed.lock_token):
            return False
        _, since = self._held[claimed.id]
        return since.until_s(self.now()) <= SURE_FOR_S
