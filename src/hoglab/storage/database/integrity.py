"""Looking SQLite files through in the background, since they have no checksums and damage is met late, or never."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog

from hoglab.storage.database.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hoglab.storage.database.engine import Database

CHECK_EVERY_S = 24 * 3600.0
"""How often the structure of the files is looked through; first when a server starts."""

_log = structlog.get_logger(__name__)


class IntegrityWatch:
    """The background service of a server: `start` once, `stop` once."""

    def __init__(self, databases: Mapping[str, Database]) -> None:
        """``databases`` by the names of their files."""
        self._databases = databases
        self._found: dict[str, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="integrity-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End it; a check that runs is left alone and ends with the process."""
        self._stopping.set()
        self._thread.join(timeout_s)

    def damages(self) -> dict[str, str]:
        """What is damaged, by file."""
        return dict(self._found)

    def _run(self) -> None:
        while not self._stopping.is_set():
            for name, database in self._databases.items():
                if self._stopping.is_set():
                    return
                self._look(name, database)
            self._stopping.wait(CHECK_EVERY_S)

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
