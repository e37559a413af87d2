"""Cohorts: sets of persons, static ones by name and dynamic ones by rules.

Other rooms use `CohortService.create_static` to make a cohort from a list of persons, `definitions` and `existing`
to learn which cohorts a project has, `members` to stream the persons of a cohort, and ``members_query`` to select
them in SQL.
"""

from hoglab.people.cohorts.calculation import CalculationProgress, CohortCalculator
from hoglab.people.cohorts.definition import Cohort, cohort_reference
from hoglab.people.cohorts.listing import person_test
from hoglab.people.cohorts.matching import CohortError
from hoglab.people.cohorts.service import CohortService
from hoglab.people.cohorts.store import (
    CohortRow,
    definitions,
    existing,
    members,
    members_query,
)
from hoglab.people.cohorts.upload import Members

__all__ = [
    "CalculationProgress",
    "Cohort",
    "CohortCalculator",
    "CohortError",
    "CohortRow",
    "CohortService",
    "Members",
    "cohort_reference",
    "definitions",
    "existing",
    "members",
    "members_query",
    "person_test",
]
