"""Background services: threads that work in rounds while a server runs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import ClassVar, Protocol

import structlog

RETRY_S = 1.0
"""Pause of a service after a round that failed for an unexpected reason."""
MAX_RETRY_S = 60.0
"""The rest doubles up to this while rounds fail one after the other."""
STOP_TIMEOUT_S = 5.0

_log = structlog.get_logger(__name__)


class Service(Protocol):
    """Service that a server starts, and stops in the reverse order."""

    def start(self) -> None:
        """Begin to work; called once."""

    def stop(self, timeout_s: float) -> object:
        """End the service, and wait up to ``timeout_s`` for that; called once, after `start`."""


class BackgroundService(ABC):
    """Background service with a thread of its own, which calls `round` until it is stopped.

    Services that others wake call `wake`; a round that goes on for long looks at `is_stopping` between its steps.
    """

    NAME: ClassVar[str]
    """Name of the thread, and of the service in the log."""

    def __init__(self) -> None:
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.NAME, daemon=True)

    @abstractmethod
    def round(self) -> float | None:
        """Do the work that is due, and return the seconds until the next round; None: not before a call of `wake`.

        What it raises is logged, and the next round comes after a while.
        """

    def start(self) -> None:
        """Start the thread; once."""
        self._thread.start()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End after the step at hand; waits for it so long."""
        self._stopping.set()
        self._woken.set()
        self.interrupt()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def interrupt(self) -> None:  # noqa: B027 - most have nothing to interrupt
        """End what a round may be waiting for. Called when no further step begins, before its end is waited for."""

    def wake(self) -> None:
        """Let the next round begin at once, or after the one that is under way. From any thread."""
        self._woken.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def _run(self) -> None:
        retry_s = RETRY_S
        while not self._stopping.is_set():
            self._woken.clear()
            try:
                wait_s = self.round()
            except Exception:
                _log.exception("background_service_failed", service=self.NAME, retry_s=retry_s)
                self._stopping.wait(retry_s)
                retry_s = min(retry_s * 2, MAX_RETRY_S)
            else:
                retry_s = RETRY_S
                self._woken.wait(wait_s)
