"""Looking SQLite files through in the background, since they have no checksums and damage is met late, or never."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from hoglab.background import BackgroundService
from hoglab.storage.database.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hoglab.storage.database.engine import Database

CHECK_EVERY_S = 24 * 3600.0
"""How often the structure of the files is looked through; first when a server starts."""

_log = structlog.get_logger(__name__)


class IntegrityWatch(BackgroundService):
    """Background service that looks for damage. A check that runs when it stops ends with the process."""

    NAME = "integrity-watch"

    def __init__(self, databases: Mapping[str, Database]) -> None:
        """``databases`` by the names of their files."""
        super().__init__()
        self._databases = databases
        self._found: dict[str, str] = {}

    def damages(self) -> dict[str, str]:
        """What is damaged, by file."""
        return dict(self._found)

    def round(self) -> float:
        for name, database in self._databases.items():
            if not self.is_stopping:
                self._look(name, database)
        return CHECK_EVERY_S

    def _look(self, name: str, database: Database) -> None:
        try:
            problem = database.quick_check()
        except DatabaseError as error:
            problem = str(error)
        if problem is None:
            self._found.pop(name, None)
            return
        if name not in self._found:
            _log.error("database_damaged", file=name, problem=problem)
        self._found[name] = problem
