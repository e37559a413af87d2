"""The service that a loop of ingestion is: a thread that tries again, and what is said of its health.

What fails is tried again, for nothing is lost by that: the position has not moved. Meanwhile the loop stands still, and
says so.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import structlog
from prometheus_client import Counter, Gauge

from hoglab.ingestion.quarantine import QuarantineFullError
from hoglab.ingestion.steps import RETRIES
from hoglab.storage.database import DatabaseError
from hoglab.storage.event_log import EventLogFullError
from hoglab.storage.event_store import EventStoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Executor

    from hoglab.ingestion.steps import BatchSteps

REPLAY_EVERY_S = 1.0
"""Interval at which records are looked for that are to go back from quarantine into the log."""

_REPLAYED = Counter(
    "hoglab_ingestion_replayed_records", "Log records that went from quarantine back into the log."
)
_STANDS_STILL = Gauge("hoglab_ingestion_stands_still", "Whether a fault of the server stops ingestion.")

_logger = structlog.get_logger(__name__)


class Ingestion(ABC):
    """A background service that ingests. `start` once, `stop` once."""

    def __init__(self, steps: BatchSteps) -> None:
        self._steps = steps
        self._limits = steps.limits
        self._stopping = steps.stopping
        self._thread: threading.Thread | None = None
        self._fault: str | None = None
        self._replayed_at = -REPLAY_EVERY_S

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="ingestion", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Finish the batch at hand, end the thread, and return whether it ended in time."""
        self._stopping.set()
        thread = self._thread
        if thread is None:
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def is_alive(self) -> bool:
        """Return whether the loop runs, for health checks."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def fault(self) -> str | None:
        """Reason for which the loop stands still, and its remedy; None while it runs."""
        return self._fault

    @abstractmethod
    def _turn(self, decoder: Executor) -> None:
        """Ingest some of what there is, or wait for it. What it raises is tried again."""

    def _failed(self) -> None:  # noqa: B027 - for some there is nothing to do
        """Note that a turn has failed."""

    def _run(self) -> None:
        with ThreadPoolExecutor(1, thread_name_prefix="ingestion-decoder") as decoder:
            retry_s = self._limits.retry_s
            while not self._stopping.is_set():
                try:
                    self._turn(decoder)
                    retry_s = self._limits.retry_s
                    self._note_fault(None)
                except Exception as error:
                    RETRIES.inc()
                    _logger.exception("ingestion failed and tries again", retry_s=retry_s)
                    self._note_fault(error)
                    self._failed()
                    self._stopping.wait(retry_s)
                    retry_s = min(retry_s * 2, self._limits.max_retry_s)
            self._steps.flush()

    def _note_fault(self, error: Exception | None) -> None:
        before = self._fault
        self._fault = None if error is None else f"stands still, and loses nothing: {error}; {_remedy(error)}"
        if (before is None) != (error is None):
            _STANDS_STILL.set(error is not None)

    def _has_capacity(self) -> bool:
        """Return whether delivery takes more; waits a moment where not."""
        dispatcher = self._steps.dispatcher
        if dispatcher is None or dispatcher.has_capacity():
            return True
        self._stopping.wait(self._limits.room_poll_s)
        return False

    def _replay(self, append: Callable[[bytes], Awaitable[Any]]) -> None:
        """Put records from quarantine back into the log. Whatever of them is stored already is not stored again."""
        now = time.monotonic()
        if now < self._replayed_at + REPLAY_EVERY_S:
            return
        self._replayed_at = now
        quarantine = self._steps.quarantine
        for offset, payload in quarantine.replaying():
            try:
                asyncio.run(_awaited(append, payload))
            except EventLogFullError as error:
                _logger.warning("replay_waits", reason=str(error))
                return
            quarantine.discard([offset])
            _REPLAYED.inc()
            _logger.info("record_replayed", offset=offset)


async def _awaited(append: Callable[[bytes], Awaitable[Any]], payload: bytes) -> None:
    await append(payload)


def _remedy(error: Exception) -> str:
    """Return the remedy for an error that stops the loop, for an operator."""
    if isinstance(error, QuarantineFullError):
        return "then it goes on by itself"
    if isinstance(error, MemoryError):
        return "give the server more memory"
    if isinstance(error, DatabaseError | EventStoreUnavailableError | OSError):
        return "check the disk, and run `hoglab check`; it goes on by itself once that is mended"
    return "the server's log has more about it"
