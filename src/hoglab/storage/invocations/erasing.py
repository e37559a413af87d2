"""Erasing persons from invocations, and from what runs left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Set
    from datetime import datetime

LeaveOut = Callable[[bytes], "bytes | None"]
"""Leaves persons out of the state of an invocation, None when nobody is left in it; unchanged without them."""


@dataclass(frozen=True, slots=True)
class ErasedPersons:
    """Persons of a project who are erased together, with the ids of their events.

    Invocations of records up to ``log_offset`` are about them; of those that come from no record, the ones that were
    made until ``requested_at``.
    """

    project_id: int
    person_ids: Set[str]
    distinct_ids: Set[str]
    event_ids: Set[str]
    log_offset: int
    requested_at: datetime
