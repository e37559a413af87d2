"""Preparation of every question about results: its experiment, a key for its answer, and errors of the wire."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from hoglab.analysis.definitions import ExperimentInputs, read_inputs
from hoglab.analysis.errors import ComputationError, DefinitionError, wire_error
from hoglab.analysis.query.days import day_of, zone_of
from hoglab.analysis.timeseries.query_cache import PreparedQuery
from hoglab.experiments import store as experiments_store
from hoglab.http.errors import validation_error

if TYPE_CHECKING:
    from datetime import datetime

    from hoglab.http.identity import Project
    from hoglab.storage.database import Database


def prepared(
    project: Project, now: datetime, identity: object, work: Callable[[], dict[str, Any]], **options: Any
) -> PreparedQuery:
    """``identity`` holds everything that decides the answer, apart from events and the time of asking."""
    key = hashlib.sha256(repr((project.id, project.timezone, identity)).encode()).hexdigest()
    return PreparedQuery(key, day_of(now, zone_of(project.timezone)), lambda: _explained(work), **options)


def _explained(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return work()
    except DefinitionError as error:
        raise validation_error(str(error)) from error
    except ComputationError as error:
        raise wire_error(error) from error


def plan_asked(
    database: Database, project: Project, query: Mapping[str, Any], *further: Mapping[str, Any]
) -> ExperimentInputs:
    """The plan of the experiment that a query names. Raises 400."""
    identifier = query.get("experiment_id")
    if not is_id(identifier):
        raise validation_error("experiment_id is required")
    with database.read() as connection:
        row = experiments_store.get(connection, project.id, identifier)
        if row is None or row.deleted:
            raise validation_error(f"Experiment with id {identifier} not found")
        return read_inputs(connection, project, row, further=further)


def is_id(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
