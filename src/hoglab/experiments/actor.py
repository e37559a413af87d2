"""The author of changes to experiments, holdouts and saved metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from hoglab.http.identity import Principal, Project
    from hoglab.http.management.preconditions import EntityTags

SCOPE = "Experiment"
"""Scope of experiments in the activity log."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Author of a change: who, in which project, and when."""

    project: Project
    principal: Principal
    now: datetime
    if_match: EntityTags | None = None
    """The states in which the experiment may be changed; None for any."""

    @property
    def user_id(self) -> int:
        """Id of the user who makes the change."""
        return self.principal.user.id
