"""Problems for which metrics and exposure criteria cannot be computed, found before they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import orjson
from sqlalchemy import Connection

from hoglab.experiments.definitions import metrics

if TYPE_CHECKING:
    from hoglab.storage.database import Database

Problem = Callable[[Connection, int, Mapping[str, Any]], str | None]
"""Check of a project's metric or exposure criteria: the reason why it cannot be computed; None when it can."""

_Found = dict[tuple[Problem, str], str | None]
_found: ContextVar[_Found | None] = ContextVar("definition_problems", default=None)


def no_problem(_connection: Connection, _project_id: int, _definition: Mapping[str, Any]) -> None:
    """Accept every definition, where nothing is saved or nothing computed."""


def when_saved(problem: Problem) -> Problem:
    """Return a check for saved metrics: the given one, and that each part means what it seems to mean."""

    def problem_when_saved(connection: Connection, project_id: int, metric: Mapping[str, Any]) -> str | None:
        mistake = metrics.mistake_in(metric)
        if mistake is not None:
            return f"{mistake.place}: {mistake.text}"
        return problem(connection, project_id, metric)

    return problem_when_saved


class DefinitionProblems:
    """A check of definitions, made before a transaction where possible: a large definition takes a while."""

    def __init__(self, database: Database, metric: Problem, exposure: Problem) -> None:
        self._database = database
        self._metric = metric
        self._exposure = exposure

    @contextmanager
    def prechecked(
        self, project_id: int, metrics: Iterable[Mapping[str, Any]], criteria: Mapping[str, Any] | None = None
    ) -> Iterator[None]:
        """Check definitions now; inside the block, which may be a transaction, they are not checked again."""
        asked = [(self._metric, metric) for metric in metrics]
        if criteria:
            asked.append((self._exposure, criteria))
        results: _Found = {}
        with self._database.read() as connection:
            for problem, definition in asked:
                key = (problem, _meaning(definition))
                if key not in results:
                    results[key] = problem(connection, project_id, definition)
        token = _found.set(results)
        try:
            yield
        finally:
            _found.reset(token)

    def of_metric(self, connection: Connection, project_id: int, metric: Mapping[str, Any]) -> str | None:
        """Return the reason why the results of a metric would be refused; None without one."""
        return self._known(self._metric, connection, project_id, metric)

    def of_exposures(
        self, connection: Connection, project_id: int, criteria: Mapping[str, Any]
    ) -> str | None:
        """Return the reason why nobody could be counted as exposed; None without one."""
        return self._known(self._exposure, connection, project_id, criteria)

    def _known(
        self, problem: Problem, connection: Connection, project_id: int, definition: Mapping[str, Any]
    ) -> str | None:
        results, key = _found.get() or {}, (problem, _meaning(definition))
        return results[key] if key in results else problem(connection, project_id, definition)


def _meaning(definition: Mapping[str, Any]) -> str:
    """Return a definition without its name and description."""
    named = {**definition, "uuid": None, "fingerprint": None}
    return orjson.dumps(named, option=orjson.OPT_SORT_KEYS).decode()
