"""The thread that looks after stored events.

It seals them: what must be done while others come in, and the rest while nobody uses the store. Other chores of a
server that are done by and by run on it, too.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from hoglab.storage.event_store import (
    EventStoreUnavailableError,
    QueryCancelledError,
    QueryError,
    QueryMemoryError,
    QueryTimeoutError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hoglab.storage.event_store.duckdb import DuckDbEventStore
    from hoglab.storage.event_store.sealing import SealingLimits

LOOK_EVERY_S = 2.0
"""How often is looked whether there is something to seal."""
IDLE_LOOKS = 3
"""After so many looks since which nothing came in and nobody read anything, the store counts as idle."""
PATIENT_LOOKS = 150
"""After so many looks at which the store was not idle, what waits for that is gone on with all the same, by a step."""
FAILED_S = 60.0
"""How long is waited after a failure."""

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


class Upkeep:
    """A background service: `start` once, `stop` once."""

    def __init__(
        self, store: DuckDbEventStore, *, chores: Sequence[Chore] = (), limits: SealingLimits | None = None
    ) -> None:
        self._store = store
        self._chores = chores
        self._limits = limits
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="event-store-upkeep", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End the thread; what is being sealed is left as it was."""
        self._stopping.set()
        self._store.interrupt_sealing()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        seen, quiet, restless, wait_s = (-1, -1), 0, 0, LOOK_EVERY_S
        while not self._stopping.wait(wait_s):
            now = (self._store.position(), self._store.uses)
            quiet = quiet + 1 if now == seen else 0
            restless = 0 if quiet else restless + 1
            is_idle = quiet == IDLE_LOOKS or restless == PATIENT_LOOKS
            wait_s = LOOK_EVERY_S
            if is_idle or now[0] != seen[0]:
                started = time.monotonic()
                try:
                    while self._seal(is_idle=is_idle) and quiet and not self._stopping.is_set():
                        if self._store.uses != now[1]:
                            break
                except FAILURES as error:
                    if not self._stopping.is_set():
                        _log.warning("events_not_sealed", reason=str(error))
                    wait_s = FAILED_S
                wait_s = max(wait_s, time.monotonic() - started)  # at most half of the time
                restless = 0 if is_idle else restless
            for chore in self._chores:
                if not self._stopping.is_set():
                    chore.run()
            seen = now

    def _seal(self, *, is_idle: bool) -> bool:
        if not self._store.seal(self._limits, is_idle=is_idle):
            return False
        self._store.checkpoint()  # makes free what the events took
        return True
