"""The functions of every project, compiled and in memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from hoglab.accounts import store as accounts
from hoglab.filters.hog import FilterContext
from hoglab.functions import store
from hoglab.functions.compile import CompiledFunction, FunctionSet, compile_function
from hoglab.functions.secrets import SecretsError
from hoglab.functions.site_functions import SITE_TYPES
from hoglab.hog.errors import HogSourceError
from hoglab.hog.rt.context import EXPRESSION_LIMITS, Limits
from hoglab.storage.database import DatabaseError, DatabaseUnreadableError

if TYPE_CHECKING:
    from hoglab.functions.environments import GeoIpLookup
    from hoglab.functions.secrets import SecretBox
    from hoglab.functions.store import Row
    from hoglab.http.identity import Project
    from hoglab.storage.database import Database
    from hoglab.storage.database.changes import Topic

TOPICS: tuple[Topic, ...] = ("functions", "actions", "project", "cohorts")
"""What a compiled function depends on."""

EVENTS = "events"
INTERNAL_SOURCES = frozenset({"events", "internal-events"})

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ProjectFunctions:
    """The enabled functions of one project, as they were at one moment."""

    project: Project
    by_id: Mapping[str, CompiledFunction]
    destinations: FunctionSet
    """Run after an event was stored."""
    internal_destinations: FunctionSet
    """Run on internal events."""
    transformations: FunctionSet
    """Change events before anything else sees them, in execution order."""
    unusable: frozenset[str] = frozenset()
    """Ids of those that are enabled and cannot be loaded, for their secrets cannot be read, say."""


_Key = tuple[str, int, str]


class FunctionRegistry:
    """Gives the runtime a project's functions, reading the database only after something changed."""

    def __init__(
        self,
        database: Database,
        box: SecretBox,
        *,
        geoip: GeoIpLookup | None = None,
        limits: Limits = EXPRESSION_LIMITS,
    ) -> None:
        """``limits``: what one evaluation of a filter, or of the inputs of a function, may use."""
        self.limits = limits
        self._database = database
        self._box = box
        self._geoip = geoip
        self._loaded: dict[int, tuple[tuple[int, ...], ProjectFunctions | None]] = {}
        self._compiled: dict[int, tuple[FilterContext, dict[str, tuple[object, CompiledFunction]]]] = {}
        self._projects: dict[
            str, int
        ] = {}  # of functions that were asked for by id; a function stays where it is
        self._lock = threading.Lock()

    def for_project(self, project_id: int) -> ProjectFunctions | None:
        """The enabled functions of a project, None when there is no such project.

        A change that was committed before the call is seen. Cheap while nothing changes. Raises `DatabaseError`.
        """
        versions = self._versions(project_id)
        known = self._loaded.get(project_id)
        if known is not None and known[0] == versions:
            return known[1]
        with self._lock:
            versions = self._versions(project_id)
            known = self._loaded.get(project_id)
            if known is None or known[0] != versions:
                known = (versions, self._load(project_id))
                self._loaded[project_id] = known
        return known[1]

    def find(self, function_id: str) -> tuple[Project, CompiledFunction] | None:
        """An enabled function by its id alone, with its project; None when there is none."""
        project_id = self._projects.get(function_id)
        if project_id is None:
            with self._database.read() as connection:
                row = store.by_id(connection, function_id)
            if row is None:
                return None
            project_id = self._projects[function_id] = row["project_id"]
        functions = self.for_project(project_id)
        found = None if functions is None else functions.by_id.get(function_id)
        return None if functions is None or found is None else (functions.project, found)

    def project_count(self) -> int:
        """How many projects have functions."""
        with self._database.read() as connection:
            return len(store.projects_with_functions(connection))

    def unusable(self) -> int:
        """How many enabled functions could not be loaded, of the projects that were asked for."""
        return sum(len(known.unusable) for _, known in list(self._loaded.values()) if known is not None)

    def _versions(self, project_id: int) -> tuple[int, ...]:
        version = self._database.changes.version
        return tuple(version(topic, project_id) for topic in TOPICS)

    def _load(self, project_id: int) -> ProjectFunctions | None:
        """Raises `DatabaseError` whatever goes wrong: no event is to blame for it."""
        try:
            return self._read(project_id)
        except (DatabaseError, MemoryError) as error:
            _logger.error("functions_not_loaded", project_id=project_id, reason=str(error))  # noqa: TRY400
            raise
        except Exception as error:
            raise DatabaseUnreadableError(
                f"the functions of project {project_id} cannot be loaded ({type(error).__name__}: {error})"
            ) from error

    def _read(self, project_id: int) -> ProjectFunctions | None:
        with self._database.read() as connection:
            projects = {project.id: project for project in accounts.projects(connection)}
            project = projects.get(project_id)
            if project is None:
                return None
            context = store.filter_context(connection, project)
            rows = [row for row in store.runnable(connection, project_id) if row["type"] not in SITE_TYPES]
        functions = self._compile(project_id, rows, context)
        kinds: dict[str, list[CompiledFunction]] = {}
        for one in functions:
            kinds.setdefault(one.type, []).append(one)
        internal = kinds.get("internal_destination", [])
        return ProjectFunctions(
            project=project,
            by_id={one.id: one for one in functions},
            destinations=FunctionSet([one for one in kinds.get("destination", []) if one.source == EVENTS]),
            internal_destinations=FunctionSet([one for one in internal if one.source in INTERNAL_SOURCES]),
            transformations=FunctionSet(kinds.get("transformation", [])),
            unusable=frozenset(row["id"] for row in rows) - {one.id for one in functions},
        )

    def _compile(self, project_id: int, rows: list[Row], context: FilterContext) -> list[CompiledFunction]:
        """The functions of some rows; those that are as they were last time are not compiled again."""
        before, known = self._compiled.get(project_id, (None, {}))
        if before != context:
            known = {}
        functions = []
        current: dict[str, tuple[object, CompiledFunction]] = {}
        for row in rows:
            state = (row["updated_at"], row["execution_order"])
            found = known.get(row["id"])
            if found is None or found[0] != state:
                compiled = self._compile_one(row, context)
                if compiled is None:
                    continue
                found = (state, compiled)
            current[row["id"]] = found
            functions.append(found[1])
        self._compiled[project_id] = (context, current)
        return functions

    def _compile_one(self, row: Row, context: FilterContext) -> CompiledFunction | None:
        """None for one that cannot be loaded: the others shall run."""
        try:
            return compile_function(row, self._box, context, self._geoip, self.limits)
        except (SecretsError, HogSourceError) as error:
            _logger.error("function_not_loaded", function_id=row["id"], reason=str(error))  # noqa: TRY400
            return None
        except Exception:
            _logger.exception("function_not_loaded", function_id=row["id"])
            return None
