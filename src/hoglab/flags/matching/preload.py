"""Loading the flags of all projects before they are requested, so that an outage does not keep them away."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hoglab.background import STOP_TIMEOUT_S, BackgroundService
from hoglab.http.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hoglab.flags.matching.registry import FlagRegistry
    from hoglab.http.identity import Project
    from hoglab.storage.database import Database
    from hoglab.storage.database.changes import Topic

RETRY_S = 1.0
"""Pause before flags that could not be read are read again."""
_TOPICS: tuple[Topic, ...] = ("project", "flags", "cohorts", "experiments", "group_types")


class FlagPreload(BackgroundService):
    """Background service that reads the flags of every project at the start, and again when they change."""

    NAME: ClassVar[str] = "flag-preload"

    def __init__(
        self, database: Database, registry: FlagRegistry, projects: Callable[[], Sequence[Project]]
    ) -> None:
        super().__init__()
        self._database = database
        self._registry = registry
        self._projects = projects
        self._unsubscribe: list[Callable[[], None]] = []
        self.is_done = False
        """Whether the flags of all projects that existed at the start have been in memory."""

    def start(self) -> None:
        """Start the thread. A second call does nothing."""
        self._unsubscribe = [
            self._database.changes.subscribe(topic, lambda _project: self.wake()) for topic in _TOPICS
        ]
        super().start()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop after the current project."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        super().stop(timeout_s)

    def round(self) -> float | None:
        """Read the flags that are not up to date in memory."""
        missing = 0
        for project in self._projects():
            if self.is_stopping:
                return None
            try:
                if self._registry.current(project) is None:
                    self._registry.load(project)
            except ApiError:  # logged: they cannot be read at present, and never could be
                missing += 1
        if not missing:
            self.is_done = True
        return RETRY_S if missing else None
