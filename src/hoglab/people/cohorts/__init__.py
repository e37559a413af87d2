"""Cohorts: sets of persons, static ones by name and dynamic ones by rules.

For other rooms: `CohortService.create_static` makes one of a list of persons, `definitions` and `existing` tell
what a project has, `members` streams the persons of one, and ``members_query`` selects them in SQL.
"""

from hoglab.people.cohorts.calculation import CalculationProgress, CohortCalculator
from hoglab.people.cohorts.definition import Cohort, cohort_reference
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
]
