"""Changes that other processes make in the metadata database: the commands of ``hoglab``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from hoglab.background import BackgroundService
from hoglab.storage.database import DatabaseError

if TYPE_CHECKING:
    from hoglab.storage.database import Database
    from hoglab.storage.identity import Witness

REFRESH_S = 0.5
"""How late a change by another process (``hoglab keys revoke``, say) may be noticed."""

_log = structlog.get_logger("hoglab")


class ChangeWatch(BackgroundService):
    """Background service that notices changes by other processes."""

    NAME = "change-watch"

    def __init__(self, database: Database, witness: Witness) -> None:
        super().__init__()
        self._database = database
        self._witness = witness

    def round(self) -> float:
        try:
            self._database.refresh_changes()
            self._witness.note()
        except DatabaseError as error:
            _log.warning("changes_not_read", error=str(error))
        return REFRESH_S
