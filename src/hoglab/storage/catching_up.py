"""Waiting until what was acknowledged is stored: for whatever is computed once, from events.

A request that sent events has its answer as soon as they are in the event log. Somebody who then asks for a cohort,
a job or a sample expects them to count, though ingestion may not have stored them yet.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from hoglab.storage.event_log import EventLog
    from hoglab.storage.event_store import EventStore

REQUEST_PATIENCE_S = 10.0
"""How long a request waits for events that were acknowledged before it."""
POLL_S = 0.02


class NotCaughtUpError(Exception):
    """Events that were acknowledged before a request are not stored yet. It may be asked again."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """How far storing events is behind accepting them."""

    log: EventLog
    store: EventStore

    def acknowledged(self) -> int:
        """The position in the log up to which events were acknowledged by now."""
        return self.log.last_offset()

    def has_stored(self, position: int) -> bool:
        """Whether everything up to a position of the log is stored."""
        return self.store.position() >= position

    def wait(
        self,
        timeout_s: float | None = None,
    ) -> bool:
        """Block until everything that is acknowledged now is stored, or the time is over; whether it is stored.

        Without a time `REQUEST_PATIENCE_S`. Not to be called inside of a transaction: ingestion has to write.
        """
        position = self.acknowledged()
        deadline = time.monotonic() + (REQUEST_PATIENCE_S if timeout_s is None else timeout_s)
        while not self.has_stored(position):
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        return True

    def require(self) -> None:
        """As `wait`. Raises `NotCaughtUpError` when the time is over."""
        if not self.wait():
            raise NotCaughtUpError


WorkT = TypeVar("WorkT", bound=Hashable)


class Awaiting(Generic[WorkT]):
    """Work of a background service that waits for the events that were acknowledged before it was asked for.

    Used from one thread. Without a ``catch_up`` everything is ready.
    """

    def __init__(self, catch_up: CatchUp | None) -> None:
        self._catch_up = catch_up
        self._positions: dict[WorkT, int] = {}

    def ready(self, work: Sequence[WorkT]) -> list[WorkT]:
        """What of the work that is to be done now can be done, in order. What is not named any more is forgotten."""
        if self._catch_up is None:
            return list(work)
        known, end = self._positions, self._catch_up.acknowledged()
        self._positions = {each: known.get(each, end) for each in work}
        return [each for each in work if self._catch_up.has_stored(self._positions[each])]

    def __bool__(self) -> bool:
        """Whether there was work when it was last asked."""
        return bool(self._positions)
