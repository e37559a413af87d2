"""Changes that other processes make in the metadata database: the commands of ``hoglab``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from hoglab.background import BackgroundService
from hoglab.storage.database import DatabaseError

if TYPE_CHECKING:
    from hoglab.storage.database import Database
    from hoglab.storage.identity import ChangeCounterMirror

REFRESH_S = 0.5
"""Delay with which a change by another process (``hoglab keys revoke``, say) may be noticed."""

TOLD_PAUSE_S = 0.02
"""Time for which notified changes are collected to be read together."""

_log = structlog.get_logger("hoglab")


class ChangeWatch(BackgroundService):
    """Background service that notices changes by other processes."""

    NAME = "change-watch"

    def __init__(self, database: Database, mirror: ChangeCounterMirror | None = None) -> None:
        """Watch a database; ``mirror`` is updated in the process that starts with the database."""
        super().__init__()
        self._database = database
        self._mirror = mirror

    def round(self) -> float:
        """Look for changes from time to time, or as soon as other processes announce them."""
        was_notified = False
        try:
            was_notified = self._database.await_change(REFRESH_S)
            self._database.refresh_changes()
            if self._mirror is not None:
                self._mirror.note()
        except DatabaseError as error:
            _log.warning("changes_not_read", error=str(error))
        return TOLD_PAUSE_S if was_notified else REFRESH_S
