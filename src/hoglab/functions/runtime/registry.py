"""The functions of every project, compiled and in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from hoglab.accounts import store as accounts
from hoglab.filters.hog import FilterContext
from hoglab.functions import store
from hoglab.functions.runtime.compile import CompiledFunction, FunctionSet, compile_function
from hoglab.functions.secrets import SecretsError
from hoglab.functions.site import SITE_TYPES
from hoglab.hog import EXPRESSION_LIMITS, HogSourceError, Limits
from hoglab.storage.database import DatabaseError, DatabaseUnreadableError
from hoglab.storage.versioned_cache import VersionedCache

if TYPE_CHECKING:
    from hoglab.functions.environments import GeoIpLookup
    from hoglab.functions.secrets import SecretBox
    from hoglab.functions.store import Row
    from hoglab.http.identity import Project
    from hoglab.storage.database import Database, State, Topic
    from hoglab.storage.versioned_cache import Kept

TOPICS: tuple[Topic, ...] = ("functions", "actions", "project", "cohorts")
"""Topics that a compiled function depends on."""

EVENTS = "events"
INTERNAL_SOURCES = frozenset({"events", "internal-events"})

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ProjectFunctions:
    """The enabled functions of one project, as they were at one moment."""

    project: Project
    by_id: Mapping[str, CompiledFunction]
    destinations: FunctionSet
    """Functions that run after an event was stored."""
    internal_destinations: FunctionSet
    """Functions that run on internal events."""
    transformations: FunctionSet
    """Functions that change events before anything else sees them, in execution order."""
    unusable: frozenset[str] = frozenset()
    """Ids of the enabled functions that cannot be loaded, for example because their secrets cannot be read."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One function that may run.

    ``state`` is the part of its row that shows whether it changed; ``place`` is its place among the others (spec
    hog-runtime 0, step 5); ``compiled`` is None when it cannot be loaded.
    """

    state: tuple[object, ...]
    filters: object
    place: tuple[object, ...]
    compiled: CompiledFunction | None


@dataclass(frozen=True, slots=True)
class _Loaded:
    """Loaded functions of a project."""

    functions: ProjectFunctions | None
    context: FilterContext | None = None
    entries: Mapping[str, _Entry] = field(default_factory=dict)


class FunctionRegistry:
    """Gives the runtime a project's functions, reading the database only after a change."""

    def __init__(
        self,
        database: Database,
        box: SecretBox,
        *,
        geoip: GeoIpLookup | None = None,
        limits: Limits = EXPRESSION_LIMITS,
    ) -> None:
        """Create an empty registry.

        ``limits`` bound one evaluation of a filter, or of the inputs of a function.
        """
        self.limits = limits
        self._database = database
        self._box = box
        self._geoip = geoip
        self._loaded: VersionedCache[_Loaded] = VersionedCache(database, TOPICS)
        self._projects: dict[
            str, int
        ] = {}  # for functions that were requested by id; a function never moves to another project

    def for_project(self, project_id: int) -> ProjectFunctions | None:
        """Return the enabled functions of a project, None when there is no such project.

        A change that was committed before the call is seen. Cheap while nothing changes. Raises `DatabaseError`.
        """
        return self._loaded.get(project_id, partial(self._load, project_id)).functions

    def known_project(self, function_id: str) -> int | None:
        """Return the project of a function that was found before.

        Reads memory only, so that an event loop may call it.
        """
        return self._projects.get(function_id)

    def find(self, function_id: str) -> tuple[Project, CompiledFunction] | None:
        """Return an enabled function by its id alone, with its project; None when there is none."""
        project_id = self._projects.get(function_id)
        if project_id is None:
            with self._database.read() as connection:
                row = store.by_id(connection, function_id)
            if row is None:
                return None
            project_id = self._projects[function_id] = row["project_id"]
        functions = self.for_project(project_id)
        function = None if functions is None else functions.by_id.get(function_id)
        return None if functions is None or function is None else (functions.project, function)

    def project_count(self) -> int:
        """Return the number of projects with functions."""
        with self._database.read() as connection:
            return len(store.projects_with_functions(connection))

    def unusable(self) -> int:
        """Return the number of enabled functions that could not be loaded, in the projects that were requested."""
        loaded = [known.functions for known in self._loaded.values()]
        return sum(len(functions.unusable) for functions in loaded if functions is not None)

    def _load(self, project_id: int, versions: State, before: Kept[_Loaded] | None) -> _Loaded:
        """Return the present functions of a project.

        Raises `DatabaseError` for every failure: no event is to blame for it.
        """
        try:
            return self._read(project_id, versions, before)
        except (DatabaseError, MemoryError) as error:
            _logger.error("functions_not_loaded", project_id=project_id, reason=str(error))  # noqa: TRY400
            raise
        except Exception as error:
            raise DatabaseUnreadableError(
                f"the functions of project {project_id} cannot be loaded ({type(error).__name__}: {error})"
            ) from error

    def _read(self, project_id: int, versions: State, kept: Kept[_Loaded] | None) -> _Loaded:
        """Read the functions of a project.

        If only some functions changed, the others are taken over from the previous state.
        """
        changed = self._changed_since(project_id, kept, versions)
        before = None if kept is None else kept.value
        with self._database.read() as connection:
            if before is not None and before.functions is not None and changed is not None:
                project, context = before.functions.project, before.context
                rows = list(store.by_ids(connection, project_id, changed, full=True).values())
            else:
                changed = None
                projects = {project.id: project for project in accounts.projects(connection)}
                current_project = projects.get(project_id)
                if current_project is None:
                    return _Loaded(None)
                project, context = current_project, store.filter_context(connection, current_project)
                rows = store.runnable(connection, project_id)
        known = {} if before is None or before.context != context else before.entries
        entries = (
            {}
            if changed is None
            else {function_id: entry for function_id, entry in known.items() if function_id not in changed}
        )
        assert context is not None  # noqa: S101 - there is one with each project
        for row in rows:
            if row["enabled"] and not row["deleted"] and row["type"] not in SITE_TYPES:
                entries[row["id"]] = self._entry(row, context, known.get(row["id"]))
        functions = _in_order(project, entries, None if before is None else before.functions)
        return _Loaded(functions, context, entries)

    def _changed_since(
        self, project_id: int, before: Kept[_Loaded] | None, versions: State
    ) -> frozenset[str] | None:
        """Return the ids of the functions that changed or could not be loaded, if nothing else changed.

        None when anything may have changed.
        """
        if before is None or before.state[1:] != versions[1:]:
            return None
        changed = self._database.changes.items_between(TOPICS[0], project_id, before.state[0], versions[0])
        functions = before.value.functions
        return None if changed is None or functions is None else changed | functions.unusable

    def _entry(self, row: Row, context: FilterContext, known: _Entry | None) -> _Entry:
        """Return a function's entry; an unchanged function is not compiled again."""
        order = row["execution_order"]
        state = (row["updated_at"], order)
        if known is not None and known.state == state and known.compiled is not None:
            return known
        place = (order is None, order or 0, row["created_at"], row["id"])
        compiled = self._compile_one(row, context)
        if compiled is not None and known is not None and known.compiled and known.filters == row["filters"]:
            compiled = replace(compiled, filter=known.compiled.filter)  # so that it need not be fused again
        return _Entry(state, row["filters"], place, compiled)

    def _compile_one(self, row: Row, context: FilterContext) -> CompiledFunction | None:
        """Return a compiled function; None for one that cannot be loaded, so that the others run."""
        try:
            return compile_function(row, self._box, context, self._geoip, self.limits)
        except (SecretsError, HogSourceError) as error:
            _logger.error("function_not_loaded", function_id=row["id"], reason=str(error))  # noqa: TRY400
            return None
        except Exception:
            _logger.exception("function_not_loaded", function_id=row["id"])
            return None


def _in_order(
    project: Project, entries: Mapping[str, _Entry], before: ProjectFunctions | None
) -> ProjectFunctions:
    """Return the functions of a project by their purpose."""
    ordered = sorted(entries.values(), key=lambda entry: entry.place)
    functions = [entry.compiled for entry in ordered if entry.compiled is not None]
    kinds: dict[str, list[CompiledFunction]] = {}
    for function in functions:
        kinds.setdefault(function.type, []).append(function)
    internal = kinds.get("internal_destination", [])
    return ProjectFunctions(
        project=project,
        by_id={function.id: function for function in functions},
        destinations=FunctionSet(
            [function for function in kinds.get("destination", []) if function.source == EVENTS],
            None if before is None else before.destinations,
        ),
        internal_destinations=FunctionSet(
            [function for function in internal if function.source in INTERNAL_SOURCES],
            None if before is None else before.internal_destinations,
        ),
        transformations=FunctionSet(
            kinds.get("transformation", []), None if before is None else before.transformations
        ),
        unusable=frozenset(function_id for function_id, entry in entries.items() if entry.compiled is None),
    )
