"""Looking SQLite files through in the background, since they have no checksums and damage is met late, or never."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import structlog

from hoglab.background import BackgroundService
from hoglab.storage.database.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hoglab.storage.database.engine import Database

CHECK_EVERY_S = 24 * 3600.0
"""How often the structure and the rows of the files are looked through; first when a server starts."""
RECHECK_EVERY_S = 10.0
"""How often while something is damaged, so that it is known when it was mended; not more than a tenth of the time."""

_log = structlog.get_logger(__name__)


class IntegrityWatch(BackgroundService):
    """Background service that looks for damage. A check that runs when it stops ends with the process."""

    NAME = "integrity-watch"

    def __init__(self, databases: Mapping[str, Database]) -> None:
        """``databases`` by the names of their files."""
        super().__init__()
        self._databases = databases
        self._found: dict[str, str] = {}
        self.looked = threading.Event()
        """Set when all files were looked through once."""

    def damages(self) -> dict[str, str]:
        """What is damaged, by file."""
        return dict(self._found)

    def round(self) -> float:
        began = time.monotonic()
        for name, database in self._databases.items():
            if not self.is_stopping:
                self._look(name, database)
        self.looked.set()
        return max(RECHECK_EVERY_S, 10 * (time.monotonic() - began)) if self._found else CHECK_EVERY_S

    def _look(self, name: str, database: Database) -> None:
        try:
            problem = database.quick_check()
            if problem is None and (names := database.damaged_tables()):
                problem = f"rows of {', '.join(names)} are not what was written"
        except DatabaseError as error:
            problem = str(error)
        if problem is None:
            self._found.pop(name, None)
            return
        if name not in self._found:
            _log.error("database_damaged", file=name, problem=problem)
        self._found[name] = problem
