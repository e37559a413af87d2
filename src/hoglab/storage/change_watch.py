"""Changes that other processes make in the metadata database: the commands of ``hoglab``."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog

from hoglab.storage.database import DatabaseError

if TYPE_CHECKING:
    from hoglab.storage.database import Database
    from hoglab.storage.identity import Witness

REFRESH_S = 0.5
"""How late a change by another process (``hoglab keys revoke``, say) may be noticed."""

_log = structlog.get_logger("hoglab")


class ChangeWatch:
    """A background service that notices them."""

    def __init__(self, database: Database, witness: Witness) -> None:
        self._database = database
        self._witness = witness
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="change-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        self._stopping.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopping.wait(REFRESH_S):
            try:
                self._database.refresh_changes()
                self._witness.note()
            except DatabaseError as error:
                _log.warning("changes_not_read", error=str(error))
