"""Filters of test accounts that are about to be saved in a project, where results and functions look at them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hoglab.actions.references import check_references
from hoglab.analysis.definitions.metric_problems import account_filters_problem
from hoglab.filters import FilterError, parse_filters
from hoglab.filters.hog import build_filter
from hoglab.functions.store import filter_context
from hoglab.http.errors import validation_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from hoglab.http.identity import Project
    from hoglab.storage.database import Database
    from hoglab.storage.event_store.dialects import Dialect

FIELD = "test_account_filters"


def check_account_filters(
    database: Database, dialect: Dialect, project: Project, sent: Sequence[Mapping[str, Any]]
) -> None:
    """Raise 400 for what neither results nor functions can use, and for cohorts that the project does not have.

    Some filters are for one of the two: a cohort by behaviour has no meaning for functions. Filters that the project
    already has may be sent again.
    """
    stored = project.test_account_filters
    try:
        parse_filters(list(sent), FIELD)
    except FilterError as error:
        raise validation_error(str(error), FIELD) from None
    with database.read() as connection:
        check_references(connection, project.id, list(sent), stored, (FIELD,))
        if account_filters_problem(dialect, connection, project.id, sent) is None:
            return
        computable = []
        for index, sent_filter in enumerate(sent):
            problem = account_filters_problem(dialect, connection, project.id, [sent_filter])
            if problem is None:
                computable.append(sent_filter)
            elif sent_filter not in stored and not _functions_can_use(connection, project, sent_filter):
                raise validation_error(f"{FIELD}[{index}]: {problem}", f"{FIELD}__{index}")
        # Each is fine, but together they may be too many.
        problem = account_filters_problem(dialect, connection, project.id, computable)
        if problem is not None and sent != stored:
            raise validation_error(problem, FIELD)


def _functions_can_use(connection: Connection, project: Project, account_filter: Mapping[str, Any]) -> bool:
    context = replace(filter_context(connection, project), test_account_filters=[account_filter])
    try:
        build_filter({"filter_test_accounts": True}, context)
    except FilterError:
        return False
    return True
