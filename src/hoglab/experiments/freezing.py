"""A flag that is closed to new people: its release groups admit only a cohort (spec experiments-api 6.8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hoglab.experiments.store import ExperimentRow
from hoglab.experiments.wire.presentation import FROZEN, is_frozen
from hoglab.flags.store import FlagRow
from hoglab.http.errors import validation_error

COHORT_KEY = "exposure_frozen_cohort"
_MARKS = frozenset({FROZEN, COHORT_KEY})
_ENROLLMENT = ("feature_enrollment", "super_groups")


def check_freezable(row: ExperimentRow, flag: FlagRow) -> None:
    """Raise 400 for a flag whose groups cannot be narrowed to persons."""
    filters = flag.filters
    groups = filters.get("groups") or []
    if flag.deleted:
        _refuse("Cannot freeze exposure because the experiment's feature flag has been deleted.")
    if not flag.active:
        _refuse("Cannot freeze a paused experiment. Resume it first.")
    if is_frozen(filters):
        _refuse("Experiment exposure is already frozen.")
    if any(part.get("aggregation_group_type_index") is not None for part in (filters, *groups)):
        _refuse("Group-aggregated experiments cannot have their exposure frozen.")
    if row.holdout_id is not None:
        _refuse("Experiments in a holdout cannot have their exposure frozen.")
    if any(filters.get(name) for name in _ENROLLMENT):
        _refuse("Feature flags with early access enrollment cannot have their exposure frozen.")
    if not groups:
        _refuse("The feature flag has no release condition that could be frozen.")


def _refuse(text: str) -> None:
    raise validation_error(text)


def frozen_groups(filters: Mapping[str, Any], cohort_id: int) -> list[dict[str, Any]]:
    """Return the release groups, each for members of the cohort only."""
    member = {"type": "cohort", "key": "id", "value": cohort_id, "operator": "in"}
    return [
        {
            **group,
            "properties": [*(group.get("properties") or []), member],
            FROZEN: True,
            COHORT_KEY: cohort_id,
        }
        for group in thawed_groups(filters)
    ]


def thawed_groups(filters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the release groups without the marks and the cohort of a frozen exposure."""
    thawed = []
    for group in filters.get("groups") or []:
        cohort_id = group.get(COHORT_KEY)
        kept = {key: value for key, value in group.items() if key not in _MARKS}
        if group.get(FROZEN):
            kept["properties"] = [
                condition
                for condition in group.get("properties") or []
                if not (condition.get("type") == "cohort" and condition.get("value") == cohort_id)
            ]
        thawed.append(kept)
    return thawed


def is_marked(filters: Mapping[str, Any]) -> bool:
    """Return whether any release group is frozen, even if others were added since."""
    return any(group.get(FROZEN) for group in filters.get("groups") or [])


def cohorts_of(filters: Mapping[str, Any]) -> list[int]:
    """Return the cohorts that freezing created for the flag."""
    cohort_ids = (group.get(COHORT_KEY) for group in filters.get("groups") or [] if group.get(FROZEN))
    return sorted(
        {
            cohort_id
            for cohort_id in cohort_ids
            if isinstance(cohort_id, int) and not isinstance(cohort_id, bool)
        }
    )
