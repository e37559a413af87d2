"""Waiting until what was acknowledged is stored: for whatever is computed once, from events.

A request that sent events has its answer as soon as they are in the event log. Somebody who then asks for a cohort,
a job or a sample expects them to count, though ingestion may not have stored them yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from hoglab.storage.event_log import Acknowledged, Acknowledging

REQUEST_PATIENCE_S = 10.0
"""Time for which a request waits for events that were acknowledged before it."""
POLL_S = 0.02


class NotCaughtUpError(Exception):
    """Events that were acknowledged before a request are not stored yet. It may be asked again."""


class Ingested(Protocol):
    """Source of the position up to which events are stored."""

    def position(self) -> int:
        """Return the offset of the log up to which everything is stored."""
        ...


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Distance of storing events behind accepting them."""

    log: Acknowledging
    store: Ingested

    def acknowledged(self, project_id: int) -> Acknowledged:
        """Return records of a project that were acknowledged by now."""
        return self.log.acknowledged(project_id)

    def settled(self, acknowledged: Acknowledged) -> Acknowledged:
        """Return the same by its offset alone, once all of it is in the log: then it is cheap to compare."""
        if acknowledged.deferred_until is None:
            return acknowledged
        offset = self.log.offset_of(acknowledged)
        return acknowledged if offset is None else Acknowledged(acknowledged.owner, offset)

    def has_stored(self, settled: Acknowledged) -> bool:
        """Return whether all of it is stored."""
        return settled.deferred_until is None and self.store.position() >= settled.offset

    def wait(self, project_id: int, timeout_s: float | None = None) -> bool:
        """Return block until everything that is acknowledged now is stored, or the time is over; whether it is stored.

        Without a time `REQUEST_PATIENCE_S`. Not to be called inside of a transaction: ingestion has to write.
        """
        acknowledged = self.acknowledged(project_id)
        deadline = time.monotonic() + (REQUEST_PATIENCE_S if timeout_s is None else timeout_s)
        while not self.has_stored(acknowledged := self.settled(acknowledged)):
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        return True

    def require(self, project_id: int) -> None:
        """As `wait`. Raises `NotCaughtUpError` when the time is over."""
        if not self.wait(project_id):
            raise NotCaughtUpError


WorkT = TypeVar("WorkT", bound=Hashable)


class Awaiting(Generic[WorkT]):
    """Work of a background service that waits for the events that were acknowledged before it was asked for.

    Used from one thread. Without a ``catch_up`` everything is ready.
    """

    def __init__(self, catch_up: CatchUp | None, project_of: Callable[[WorkT], int]) -> None:
        self._catch_up = catch_up
        self._project_of = project_of
        self._before: dict[WorkT, Acknowledged] = {}

    def ready(self, work: Sequence[WorkT]) -> list[WorkT]:
        """Return the work that can be done now, in order; work that is not named is forgotten."""
        if self._catch_up is None:
            return list(work)
        known, catch_up = self._before, self._catch_up
        self._before = {
            each: catch_up.settled(known.get(each) or catch_up.acknowledged(self._project_of(each)))
            for each in work
        }
        return [each for each in work if catch_up.has_stored(self._before[each])]

    def __bool__(self) -> bool:
        """Return whether there was work when it was last asked."""
        return bool(self._before)
