"""Writing what was collected in memory, off the request path."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import structlog

from hoglab.background import STOP_TIMEOUT_S, BackgroundService
from hoglab.storage.database import DatabaseError

_log = structlog.get_logger(__name__)


class CollectingWriter(BackgroundService):
    """Writer of what was collected in memory: every few seconds, and once more at its end.

    What cannot be written is lost: it is nothing that anybody waits for.
    """

    NOT_WRITTEN: ClassVar[str]
    """Event of the log that says that something was lost."""

    def __init__(self, write_every_s: float) -> None:
        super().__init__()
        self._write_every_s = write_every_s

    @abstractmethod
    def write(self) -> int:
        """Write what was collected, and return how much it was. Raises `DatabaseError`."""

    def round(self) -> float:
        self._try_to_write()
        return self._write_every_s

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End the thread, and write what is left."""
        super().stop(timeout_s)
        self._try_to_write()

    def _try_to_write(self) -> None:
        try:
            self.write()
        except DatabaseError as error:
            _log.warning(self.NOT_WRITTEN, reason=str(error))
