"""Definitions that would break without a cohort or an action: neither can be deleted while one of them is in use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hoglab.accounts.store import project_by_id
from hoglab.actions.references import Definitions, dependents_of
from hoglab.actions.store import present_actions
from hoglab.experiments.store import running_experiments
from hoglab.flags.store import active_flags
from hoglab.functions.store import enabled_functions
from hoglab.people.cohorts.store import calculated_cohorts

if TYPE_CHECKING:
    from sqlalchemy import Connection


def _test_accounts(connection: Connection, project_id: int) -> Iterator[tuple[str, object]]:
    project = project_by_id(connection, project_id)
    if project is not None:
        yield "the project's filters of test accounts", project.test_account_filters


_EVERYWHERE: Final[tuple[Definitions, ...]] = (
    active_flags,
    running_experiments,
    enabled_functions,
    _test_accounts,
)

cohort_dependents: Final = dependents_of("cohort", (*_EVERYWHERE, present_actions))
"""Dependents of cohorts; cohorts that refer to others are found by the service of cohorts itself."""

action_dependents: Final = dependents_of("action", (*_EVERYWHERE, calculated_cohorts))
"""Dependents of actions."""
