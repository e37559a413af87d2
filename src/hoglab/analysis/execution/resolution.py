"""Questions resolved: with the files and groups that there are now, and with what counts as exposure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.execution.statement_runner import StatementRunner
from hoglab.analysis.query import any_event
from hoglab.analysis.query.model import KnownGroups, Metric, Question, event_names, tables_of
from hoglab.storage.table_files import TableFileError

if TYPE_CHECKING:
    from hoglab.storage.table_files import FileTable, TableDirectory

MAX_GROUPS = 200_000
"""How many groups of a type there may be where a question asks for their properties: all are sent with it."""

Groups = Callable[[int, int, int], Sequence[tuple[str, Mapping[str, Any]]]]
"""The groups of a project and the index of a type, with their properties; of so many at most."""


def no_groups(_project_id: int, _index: int, _limit: int) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """A project without groups."""
    return ()


@dataclass(frozen=True, slots=True)
class QuestionResolver:
    """Raises `DefinitionError` and `ComputationError`."""

    runner: StatementRunner
    groups: Groups
    seen: dict[tuple[int, frozenset[str | None]], bool] | None = None
    """Whether projects have events of some names, as far as that was asked; None: it is asked each time."""

    @property
    def tables(self) -> TableDirectory | None:
        return self.runner.tables

    def remembering(self) -> QuestionResolver:
        """One that asks the store only once for the same."""
        return replace(self, seen={})

    def resolved(self, question: Question) -> Question:
        """The question with what its project and the moment decide.

        That is what counts as exposure (spec experiment-results 2.2), and the files and the groups that there are now.
        """
        question = replace(question, files=self._files(question.metric), groups=self._known_groups(question))
        exposures = question.exposures
        if exposures.substitute is None:
            return question
        source = exposures.source if self._has_events(question) else exposures.substitute
        return replace(question, exposures=replace(exposures, source=source, substitute=None))

    def _has_events(self, question: Question) -> bool:
        exposures = question.exposures
        asked = exposures.project_id, event_names([exposures.source])
        found = None if self.seen is None else self.seen.get(asked)
        if found is None:
            found = bool(self.runner.rows(any_event, question))
            if self.seen is not None:
                self.seen[asked] = found
        return found

    def _files(self, metric: Metric) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for table in (source.table for source in tables_of(metric)):
            if self.tables is None:
                raise DefinitionError("This server has no directory of data warehouse tables.")
            try:
                found[table.name] = self.tables.files_of(table)
            except TableFileError as error:
                raise DefinitionError(f"The data warehouse table {table.name}: {error}") from error
        return found

    def _known_groups(self, question: Question) -> Mapping[int, KnownGroups]:
        found: dict[int, KnownGroups] = {}
        for index, names in question.group_properties.items():
            groups = self.groups(question.exposures.project_id, index, MAX_GROUPS + 1)
            if len(groups) > MAX_GROUPS:
                raise DefinitionError(
                    f"Properties of groups can be used while there are at most {MAX_GROUPS:,} of them."
                )
            asked = [json.dumps({n: each[n] for n in names if n in each}) for _, each in groups]
            found[index] = KnownGroups(tuple(key for key, _ in groups), tuple(asked))
        return found

    def state_of_tables(self, tables: Sequence[FileTable]) -> str | None:
        """What tells tables and their files, as they are now, from what they were; None without any tables."""
        if not tables or self.tables is None:
            return None
        states: list[object] = []
        for table in tables:
            try:
                states.append((table, self.tables.state_of(table)))
            except TableFileError as error:
                states.append((table, str(error)))
        return hashlib.sha256(repr(states).encode()).hexdigest()
