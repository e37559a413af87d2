"""Reporting that the runtime slowed a function down, stopped it, or lets it run again (spec: hog-runtime 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hoglab.accounts import activity
from hoglab.accounts.internal_events import emit
from hoglab.functions import store
from hoglab.functions.configuration.stored import SCOPE, activity_detail

if TYPE_CHECKING:
    from hoglab.storage.database import Database

STATE_CHANGE = "$hog_function_state_change"
"""The internal event of each change."""

STATE_NAMES: Mapping[int, str] = {
    1: "healthy",
    2: "degraded",
    3: "disabled",
    11: "forcefully_degraded",
    12: "forcefully_disabled",
}


class StateChanges:
    """Writes changes of states into the activity log and reports them to functions as events."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __call__(self, function_id: str, before: int, after: int) -> None:
        """Record that a function went from a state to another. Raises the errors of `Database.write`."""
        with self._database.write() as tx:
            row = store.by_id(tx.connection, function_id)
            if row is None:
                return
            change = activity.change(SCOPE, "state", STATE_NAMES[before], STATE_NAMES[after])
            detail = activity_detail(row, [change])
            activity.record(tx, row["project_id"], None, "state_changed", SCOPE, function_id, detail)
            properties = {
                "hog_function_id": function_id,
                "hog_function_type": row["type"] or "destination",
                "hog_function_name": row["name"],
                "hog_function_template_id": row["template_id"],
                "state": STATE_NAMES[after],
                "previous_state": STATE_NAMES[before],
            }
            emit(tx, row["project_id"], STATE_CHANGE, properties, user_id=None)
