"""Waiting until acknowledged events are stored: for results that are computed once from events.

A request that sent events has its answer as soon as they are in the event log. Somebody who then asks for a cohort,
a job or a sample expects them to count, though ingestion may not have stored them yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from hoglab.storage.event_log import ReadToken, ReadTokens, SequenceNumber

REQUEST_PATIENCE_S = 10.0
"""Time for which a request waits for events that were acknowledged before it."""
POLL_S = 0.02


class NotCaughtUpError(Exception):
    """Events that were acknowledged before a request are not stored yet. It may be asked again."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Distance of storing events behind accepting them."""

    log: ReadTokens
    stored: Callable[[], SequenceNumber]
    """Returns the number of the record up to which everything is stored."""
    hurry: Callable[[], object] | None = None
    """Tells ingestion, where this process does it, that somebody waits."""

    def read_token(self, project_id: int) -> ReadToken:
        """Return a token for all records of a project that were acknowledged by now."""
        return self.log.read_token(project_id)

    def resolve(self, token: ReadToken) -> ReadToken:
        """Return the token with an offset alone once all of its records are in the log: it is then cheap to compare."""
        if token.deferred_until is None:
            return token
        offset = self.log.resolve(token)
        return token if offset is None else ReadToken(token.owner, offset)

    def has_stored(self, token: ReadToken) -> bool:
        """Return whether all records of a resolved token are stored; ingestion is told to hurry where not."""
        is_stored = token.deferred_until is None and self.stored() >= token.offset
        if not is_stored and self.hurry is not None:
            self.hurry()
        return is_stored

    def wait(self, project_id: int, timeout_s: float | None = None) -> bool:
        """Wait until everything that is acknowledged now is stored, and return whether it was stored in time.

        ``timeout_s`` is `REQUEST_PATIENCE_S` by default. Do not call it inside a transaction: ingestion has to write.
        """
        token = self.read_token(project_id)
        deadline = time.monotonic() + (REQUEST_PATIENCE_S if timeout_s is None else timeout_s)
        while not self.has_stored(token := self.resolve(token)):
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        return True

    def require(self, project_id: int) -> None:
        """Wait as `wait` does. Raises `NotCaughtUpError` when the time is over."""
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
        self._before: dict[WorkT, ReadToken] = {}

    def ready(self, work: Sequence[WorkT]) -> list[WorkT]:
        """Return the work that can be done now, in order; work that is not named is forgotten."""
        if self._catch_up is None:
            return list(work)
        tokens, catch_up = self._before, self._catch_up
        self._before = {
            item: catch_up.resolve(tokens.get(item) or catch_up.read_token(self._project_of(item)))
            for item in work
        }
        return [item for item in work if catch_up.has_stored(self._before[item])]

    def __bool__(self) -> bool:
        """Return whether there was work when it was last asked."""
        return bool(self._before)
