"""The compiled flags of every requested project, kept up to date with the database."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import structlog

from hoglab.filters.evaluate import EvaluationContext
from hoglab.flags import store
from hoglab.flags.matching.definition import FlagSource
from hoglab.flags.matching.snapshot import ProjectData, ProjectFlags
from hoglab.flags.store import ExperimentLinks, FlagRow, LinkedExperiment, no_experiments
from hoglab.http.errors import unavailable
from hoglab.http.fields.dates import utc_now
from hoglab.people.cohorts import definitions
from hoglab.people.reading import list_group_types
from hoglab.storage.versioned_cache import VersionedCache

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime, tzinfo

    from hoglab.http.identity import Project
    from hoglab.storage.database import Database, Topic
    from hoglab.storage.versioned_cache import Kept

_log = structlog.get_logger(__name__)

RETRY_S = 1
"""Value of ``Retry-After`` while flags cannot be read."""

TOPICS: tuple[Topic, ...] = ("flags", "cohorts", "experiments", "group_types")
"""Topics that compiled flags depend on; besides, they depend on the time zone of their project."""


@dataclass(frozen=True)
class LoadedProject:
    """One state of a project's flags: rows for lists, compiled flags for matching."""

    rows: tuple[FlagRow, ...]
    linked: Mapping[int, list[LinkedExperiment]]
    flags: ProjectFlags
    notes: dict[str, Any]
    """Objects that others derive from this state and keep as long as it lasts."""


class FlagRegistry:
    """Loads a project's flags when they are first asked for and after every change; used from any thread.

    A change that was committed before a request is always seen by that request: `current` compares the
    change versions and answers None when what is in memory is old.
    """

    def __init__(
        self,
        database: Database,
        *,
        experiments: ExperimentLinks = no_experiments,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._database = database
        self._experiments = experiments
        self._now = now
        self._loaded: VersionedCache[LoadedProject] = VersionedCache(database, TOPICS)
        self._unreadable: set[int] = set()

    def current(self, project: Project) -> LoadedProject | None:
        """Return the flags in memory when they are up to date; cheap enough for every request."""
        loaded = self._loaded.current(project.id, project.timezone)
        return None if loaded is None else loaded.value

    async def get(self, project: Project, executor: Executor) -> LoadedProject:
        """Return the up-to-date flags; if they must be read, a thread of ``executor`` does so."""
        loaded = self.current(project)
        if loaded is None:
            loaded = await asyncio.get_running_loop().run_in_executor(executor, self.load, project)
        return loaded

    def load(self, project: Project) -> LoadedProject:
        """Return the up-to-date flags, read in this thread if necessary. One reader at a time per project.

        Raises 503 when they cannot be read and never were.
        """
        try:
            loaded = self._loaded.get(
                project.id, lambda _, before: self._read(project, before), project.timezone
            )
        except Exception as error:
            _log.exception("flags_unreadable", project_id=project.id)
            self._unreadable.add(project.id)
            known = self._loaded.last(project.id)
            if known is None:
                raise unavailable("Feature flags cannot be read at present.", RETRY_S) from error
            return known.value  # old flags beat none
        self._unreadable.discard(project.id)
        return loaded

    def problems(self) -> list[str]:
        """Return what does not work of the flags that were asked for, in words for the operator."""
        broken = sum(
            flag.active and flag.broken is not None
            for loaded in self._loaded.values()
            for flag in loaded.flags.flags.values()
        )
        texts = []
        if unreadable := len(self._unreadable):
            texts.append(f"those of {unreadable} projects cannot be read: the server's log says why")
        if broken:
            texts.append(f"{broken} active flags cannot be evaluated: answers and their pages say why")
        return texts

    def _read(self, project: Project, before: Kept[LoadedProject] | None) -> LoadedProject:
        with self._database.read() as connection:
            rows = tuple(store.flag_rows(connection, project.id))
            cohorts = definitions(connection, project.id)
            linked = self._experiments(connection, project.id, None)
            types = list_group_types(connection, project.id)
        data = ProjectData(
            tuple(flag_source(row, linked.get(row.id, ())) for row in rows),
            cohorts,
            {row.group_type_index: row.group_type for row in types},
            EvaluationContext(self._now, zone_of(project.timezone)),
        )
        flags = ProjectFlags(data, before.value.flags if before is not None else None)
        _log.debug("flags_loaded", project_id=project.id, flags=len(rows))
        return LoadedProject(rows, linked, flags, {})


def flag_source(row: FlagRow, linked: Sequence[LinkedExperiment]) -> FlagSource:
    """Return a stored flag as matching sees it."""
    live = [experiment.id for experiment in linked if not experiment.deleted]
    return FlagSource(
        id=row.id,
        key=row.key,
        filters=row.filters,
        active=row.active,
        version=row.version,
        ensure_experience_continuity=bool(row.ensure_experience_continuity),
        bucketing_identifier=row.bucketing_identifier,
        evaluation_runtime=row.evaluation_runtime,
        evaluation_contexts=tuple(row.evaluation_contexts or ()),
        has_encrypted_payloads=bool(row.has_encrypted_payloads),
        has_experiment=bool(live),
        experiment_id=live[0] if live else None,
    )


def zone_of(name: str) -> tzinfo:
    """Return the time zone of a project; UTC for a name that this machine does not know."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")
