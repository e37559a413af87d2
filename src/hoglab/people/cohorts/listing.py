"""Property filters of lists of persons: the conditions of cohorts, decided now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from hoglab.filters.evaluate import EvaluationContext
from hoglab.http.errors import validation_error
from hoglab.people.cohorts import store
from hoglab.people.cohorts.calculation import zone_of
from hoglab.people.cohorts.definition import checked_tree
from hoglab.people.cohorts.matching import Candidate, CohortError, RowIds, Sources, membership_test

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from sqlalchemy import Connection

    from hoglab.filters.model import PropertyFilter
    from hoglab.http.identity import Project
    from hoglab.people.reading import PersonView

FIELD = "properties"
"""Query parameter with a JSON list of filters."""


def person_test(
    connection: Connection, project: Project, text: str, now: datetime
) -> Callable[[PersonView], bool]:
    """Return the test of persons by filters, in JSON as PostHog's clients send them.

    Properties and ``created_at`` are compared as in cohorts; cohorts have the members that were calculated last.
    Raises 400 for what cannot be decided from stored persons, with its place.
    """
    try:
        raw = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise validation_error("Enter a JSON list of filters.", FIELD) from None
    tree = checked_tree(raw, _refused, FIELD)
    cohorts = store.definitions(connection, project.id)

    def members(cohort_id: int) -> RowIds:
        if cohort_id not in cohorts:
            raise CohortError(f"Cohort {cohort_id} does not exist.")
        if not cohorts[cohort_id].is_known:
            raise CohortError(f"Cohort {cohort_id} has not been calculated yet.")
        return store.member_rows(connection, cohort_id)

    context = EvaluationContext(lambda: now, zone_of(project.timezone))
    own = -1  # no cohort has this id
    try:
        test = membership_test(own, Sources(context, {own: tree}, {}, members, lambda _rule: RowIds("q")))
    except CohortError as error:
        raise validation_error(str(error), FIELD) from None
    return lambda person: test(Candidate(person.row_id, person.properties, person.created_at))


def _refused(_rule: PropertyFilter) -> str:
    return "What people did cannot be asked for here: filter by a cohort of it"
