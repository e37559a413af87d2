"""Bringing stored filters up to date when what they speak about has changed (spec: hog-functions-api 6.5).

What runs is always compiled from the present actions, test-account filters and cohorts; this keeps the bytecode
and the error that the API shows in step with that. It is no change by a person: no version, no history.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog

from hoglab.accounts import store as accounts
from hoglab.functions import store
from hoglab.functions.filtering import compile_filters
from hoglab.functions.site_functions import SITE_TYPES, SiteParts

if TYPE_CHECKING:
    from hoglab.filters.hog import FilterContext
    from hoglab.storage.database import Database
    from hoglab.storage.database.changes import Topic

TOPICS: tuple[Topic, ...] = ("actions", "project", "cohorts")

_logger = structlog.get_logger(__name__)


class FilterRecompiler:
    """A background service: `start` once, `stop` once. `recompile` may also be called by itself."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: set[int] = set()
        self._wake = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._unsubscribe = [database.changes.subscribe(topic, self._changed) for topic in TOPICS]

    def start(self) -> None:
        """Start working; projects that changed while the server was down are looked at first."""
        with self._database.read() as connection:
            self._waiting.update(store.projects_with_functions(connection))
        self._thread = threading.Thread(target=self._work, name="filter-recompiler", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Finish the project at hand and end."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _changed(self, project_id: int) -> None:
        with self._wake:
            self._waiting.add(project_id)
            self._wake.notify()

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._stopping or self._waiting)
                if self._stopping:
                    return
                project_id = self._waiting.pop()
            try:
                self.recompile(project_id)
            except Exception:
                _logger.exception("filters_not_recompiled", project_id=project_id)

    def recompile(self, project_id: int) -> int:
        """Compile the filters of a project's functions again; returns how many functions changed."""
        with self._database.read() as connection:
            project = next((one for one in accounts.projects(connection) if one.id == project_id), None)
            if project is None:
                return 0
            context = store.filter_context(connection, project)
            rows = store.with_filters(connection, project_id)
            stale = [row["id"] for row in rows if _changes(row, context)]
        if not stale:
            return 0
        with self._database.write() as tx:
            current = {row["id"]: row for row in store.with_filters(tx.connection, project_id)}
            for function_id in stale:
                if function_id in current:
                    store.change(tx.connection, function_id, _changes(current[function_id], context))
            tx.changed("functions", project_id)
        return len(stale)


def _changes(row: Mapping[str, Any], context: FilterContext) -> dict[str, Any]:
    """The columns of a function that compiling its filters anew changes."""
    changes: dict[str, Any] = {}
    browser = row["type"] in SITE_TYPES
    filters = compile_filters(row["filters"], context, browser=browser)
    if filters != row["filters"]:
        changes["filters"] = filters
    if row["mappings"]:
        mappings = [
            {**one, "filters": compile_filters(one["filters"], context, browser=browser)}
            if one.get("filters")
            else one
            for one in row["mappings"]
        ]
        if mappings != row["mappings"]:
            changes["mappings"] = mappings
    if browser:
        transpiled = SiteParts.of_row({**row, **changes}).transpile(context)
        if transpiled != row["transpiled"]:
            changes["transpiled"] = transpiled
    return changes
