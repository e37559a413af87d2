"""Recompilation after changes of what filters refer to, or of the compiler (spec: hog-functions-api 6.5).

The server always runs what it compiles from the source, with the present actions, test-account filters and cohorts;
this service updates what the API shows and browsers run. It is no change by a person: no version, no history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog

from hoglab.accounts import store as accounts
from hoglab.background import STOP_TIMEOUT_S, BackgroundService
from hoglab.functions import store
from hoglab.functions.configuration import COMPILER_VERSION, recompiled
from hoglab.functions.configuration.stored import read_configuration, row_values
from hoglab.functions.errors import InvalidFunctionError
from hoglab.functions.secrets import SecretsError

if TYPE_CHECKING:
    from hoglab.filters.hog import FilterContext
    from hoglab.functions.secrets import SecretBox
    from hoglab.storage.database import Database
    from hoglab.storage.database.changes import Topic

TOPICS: tuple[Topic, ...] = ("actions", "project", "cohorts")

_logger = structlog.get_logger(__name__)


class Recompiler(BackgroundService):
    """Background service that compiles functions again. `recompile` may also be called by itself."""

    NAME = "recompiler"

    def __init__(self, database: Database, box: SecretBox) -> None:
        super().__init__()
        self._database = database
        self._box = box
        self._waiting: set[int] = set()
        self._unsubscribe = [database.changes.subscribe(topic, self._changed) for topic in TOPICS]

    def start(self) -> None:
        """Start working; projects that changed while the server was down come first."""
        with self._database.read() as connection:
            self._waiting.update(store.projects_with_functions(connection))
        super().start()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop after the current project."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        super().stop(timeout_s)

    def _changed(self, project_id: int) -> None:
        self._waiting.add(project_id)
        self.wake()

    def round(self) -> None:
        while self._waiting and not self.is_stopping:
            project_id = self._waiting.pop()
            try:
                self.recompile(project_id)
            except Exception:  # a failure of one project does not stop the others
                _logger.exception("functions_not_recompiled", project_id=project_id)

    def recompile(self, project_id: int) -> int:
        """Compile the functions of a project again. Return how many of them changed by that."""
        with self._database.read() as connection:
            project = next(
                (candidate for candidate in accounts.projects(connection) if candidate.id == project_id), None
            )
            if project is None:
                return 0
            context = store.filter_context(connection, project)
            rows = store.everything(connection, project_id)
        compiled = {row["id"]: (row["updated_at"], self._changes(row, context)) for row in rows}
        stale = {
            function_id: (seen_at, changes) for function_id, (seen_at, changes) in compiled.items() if changes
        }
        if not stale:
            return 0
        with self._database.write() as tx:
            for row in store.everything(tx.connection, project_id):
                if row["id"] in stale:
                    seen_at, changes = stale[row["id"]]
                    # Compiling takes time, and nobody else can write: only functions saved meanwhile are compiled.
                    values = changes if row["updated_at"] == seen_at else self._changes(row, context)
                    if any(
                        row[name] != value for name, value in values.items()
                    ):  # or another process was first
                        store.change(tx.connection, row["id"], values)
                        tx.changed("functions", project_id)
        return len(stale)

    def _changes(self, row: Mapping[str, Any], context: FilterContext) -> dict[str, Any]:
        """Return the columns of a function that compiling it again changes."""
        try:
            before = read_configuration(row, self._box)
        except SecretsError as error:
            _logger.warning("function_not_recompiled", function_id=row["id"], reason=str(error))
            return {}
        after = before
        for programs in (True, False) if row["compiler_version"] != COMPILER_VERSION else (False,):
            try:
                after = recompiled(before, context, programs=programs)
                break
            except InvalidFunctionError as error:
                # A function that the compiler refuses stays as it is; the error shows when it is edited or run.
                _logger.warning("function_not_recompiled", function_id=row["id"], reason=error.detail)
        values = {**row_values(after, self._box), "compiler_version": COMPILER_VERSION}
        return {name: values[name] for name in _COMPILED if values[name] != row[name]}


_COMPILED = ("filters", "mappings", "transpiled", "bytecode", "inputs", "masking", "compiler_version")
"""The columns that hold a compiled form, or name the compiler."""
