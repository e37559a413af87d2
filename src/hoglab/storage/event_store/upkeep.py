"""The thread that looks after stored events.

It seals them: what must be done while others come in, and the rest while nobody uses the store. Other chores of a
server that are done by and by run on it, too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import structlog

from hoglab.background import BackgroundService
from hoglab.storage.event_store import (
    EventStoreUnavailableError,
    QueryCancelledError,
    QueryError,
    QueryMemoryError,
    QueryTimeoutError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hoglab.storage.event_store.sealed.sealing import SealingLimits

LOOK_EVERY_S = 2.0
"""Interval at which events to seal are looked for."""
IDLE_LOOKS = 3
"""After so many looks since which nothing came in and nobody read anything, the store counts as idle."""
PATIENT_LOOKS = 150
"""After so many looks at which the store was not idle, what waits for that is gone on with all the same, by a step."""
FAILED_S = 60.0
"""Pause after a failure."""

FAILURES: tuple[type[Exception], ...] = (
    EventStoreUnavailableError, QueryCancelledError, QueryError, QueryMemoryError, QueryTimeoutError,
)  # fmt: skip

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Chore:
    """Other work of the thread: every so many seconds, and again as soon as it says that there was something to do."""

    name: str
    every_s: float
    work: Callable[[], object]
    failures: tuple[type[Exception], ...] = ()
    due: float = 0.0

    def run(self) -> None:
        """Do it when its time has come; a failure of an engine is logged, and tried again later."""
        if time.monotonic() < self.due:
            return
        self.due = time.monotonic() + self.every_s
        try:
            self.work()
        except FAILURES + self.failures as error:
            _log.warning("chore_failed", chore=self.name, reason=str(error))


class SealableStore(Protocol):
    """A store whose events are sealed: see `hoglab.storage.event_store.duckdb.DuckDbEventStore`."""

    @property
    def uses(self) -> int: ...

    def position(self) -> int: ...

    def seal(self, limits: SealingLimits | None = None, *, is_idle: bool) -> int: ...

    def interrupt_sealing(self) -> None: ...

    def checkpoint(self) -> None: ...


class Upkeep(BackgroundService):
    """Background service that seals events, where an engine needs that, and does the chores."""

    NAME = "event-store-upkeep"

    def __init__(
        self,
        store: SealableStore | None,
        *,
        chores: Sequence[Chore] = (),
        limits: SealingLimits | None = None,
    ) -> None:
        super().__init__()
        self._store = store
        self._chores = chores
        self._limits = limits
        self._seen = (-1, -1)
        """Position and uses of the store at the last look."""
        self._quiet_looks = self._restless_looks = 0

    def interrupt(self) -> None:
        """Leave what is being sealed as it was."""
        if self._store is not None:
            self._store.interrupt_sealing()

    def round(self) -> float:
        wait_s = LOOK_EVERY_S if self._store is None else self._look(self._store)
        for chore in self._chores:
            if not self.is_stopping:
                chore.run()
        return wait_s

    def _look(self, store: SealableStore) -> float:
        """Seal what is to be sealed now; seconds until the next look."""
        before, self._seen = self._seen, (store.position(), store.uses)
        is_quiet = before == self._seen
        self._quiet_looks = self._quiet_looks + 1 if is_quiet else 0
        self._restless_looks = 0 if is_quiet else self._restless_looks + 1
        is_idle = self._quiet_looks == IDLE_LOOKS or self._restless_looks == PATIENT_LOOKS
        if is_idle:
            self._restless_looks = 0
        if not is_idle and self._seen[0] == before[0]:
            return LOOK_EVERY_S
        started = time.monotonic()
        try:
            while _seal(store, self._limits, is_idle=is_idle) and is_quiet and not self.is_stopping:
                if store.uses != self._seen[1]:
                    break
        except FAILURES as error:
            if not self.is_stopping:
                _log.warning("events_not_sealed", reason=str(error))
            return FAILED_S
        return max(LOOK_EVERY_S, time.monotonic() - started)  # at most half of the time


def _seal(store: SealableStore, limits: SealingLimits | None, *, is_idle: bool) -> bool:
    if not store.seal(limits, is_idle=is_idle):
        return False
    store.checkpoint()  # makes free what the events took
    return True
