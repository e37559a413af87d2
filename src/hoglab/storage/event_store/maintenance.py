"""The thread that maintains stored events, and runs the other periodic tasks of a server.

It seals events: some steps are due while new events come in, the rest waits until nobody uses the store.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

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

    from hoglab.storage.event_store import StoreFile

LOOK_EVERY_S = 2.0
"""Interval at which events to seal are looked for."""
IDLE_LOOKS = 3
"""Number of looks without new events and reads after which the store counts as idle."""
PATIENT_LOOKS = 150
"""Number of looks without idleness after which one step of the waiting work is done anyway."""
FAILED_S = 60.0
"""Pause after a failure."""

FAILURES: tuple[type[Exception], ...] = (
    EventStoreUnavailableError, QueryCancelledError, QueryError, QueryMemoryError, QueryTimeoutError,
)  # fmt: skip

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class PeriodicTask:
    """Work that the thread does every ``every_s`` seconds. ``failures`` are logged, and tried again later."""

    name: str
    every_s: float
    work: Callable[[], object]
    failures: tuple[type[Exception], ...] = ()
    due: float = 0.0

    def run(self) -> None:
        """Do the work if it is due; log a failure of an engine, and leave it for the next time."""
        if time.monotonic() < self.due:
            return
        self.due = time.monotonic() + self.every_s
        try:
            self.work()
        except FAILURES + self.failures as error:
            _log.warning("periodic_task_failed", task=self.name, reason=str(error))


class Maintenance(BackgroundService):
    """Background service that seals events, where an engine needs that, and runs periodic tasks."""

    NAME = "event-store-maintenance"

    def __init__(
        self,
        store: StoreFile | None,
        *,
        tasks: Sequence[PeriodicTask] = (),
    ) -> None:
        super().__init__()
        self._store = store
        self._periodic_tasks = tasks
        self._seen = (-1, -1)
        """Position and uses of the store at the last look."""
        self._quiet_looks = self._restless_looks = 0

    def interrupt(self) -> None:
        """End the current sealing, which leaves the events as they were."""
        if self._store is not None:
            self._store.interrupt_sealing()

    def round(self) -> float:
        wait_s = LOOK_EVERY_S if self._store is None else self._look(self._store)
        for task in self._periodic_tasks:
            if not self.is_stopping:
                task.run()
        return wait_s

    def _look(self, store: StoreFile) -> float:
        """Seal what is due, and return the seconds until the next look."""
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
            while _seal(store, is_idle=is_idle) and is_quiet and not self.is_stopping:
                if store.uses != self._seen[1]:
                    break
        except FAILURES as error:
            if not self.is_stopping:
                _log.warning("events_not_sealed", reason=str(error))
            return FAILED_S
        return max(LOOK_EVERY_S, time.monotonic() - started)  # at most half of the time


def _seal(store: StoreFile, *, is_idle: bool) -> bool:
    if not store.seal(is_idle=is_idle):
        return False
    store.checkpoint()  # makes free what the events took
    return True
