"""Milestones in the life of an experiment, as internal events such as ``$experiment_launched``.

The name is ``$experiment_`` and one of: created, launched, ended, archived, unarchived, reset, deleted, restored,
paused, resumed, exposure_frozen, exposure_unfrozen, variant_shipped (spec: hog-runtime 7.4); and harm, hoglab's own: a
variant is certainly worse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hoglab.accounts import internal_events
from hoglab.experiments import store

if TYPE_CHECKING:
    from datetime import datetime

    from hoglab.experiments.store import ExperimentRow
    from hoglab.storage.database import Transaction


def passed(before: ExperimentRow, after: ExperimentRow) -> list[str]:
    """Return the milestones that lie between two states of an experiment."""
    milestones = {
        "reset": not before.is_draft and after.is_draft,
        "launched": before.is_draft and not after.is_draft,
        "ended": not before.is_stopped and after.is_stopped,
        "archived": not before.archived and after.archived,
        "unarchived": before.archived and not after.archived and not after.is_draft,
        "deleted": not before.deleted and after.deleted,
        "restored": before.deleted and not after.deleted,
    }
    return [name for name, is_passed in milestones.items() if is_passed]


def emit(
    tx: Transaction,
    row: ExperimentRow,
    milestone: str,
    *,
    user_id: int | None,
    now: datetime,
    **facts: Any,
) -> None:
    """Emit the event of a milestone; ``facts`` are further properties, ``user_id`` is None for the server itself."""
    flag = store.flags(tx.connection, [row.feature_flag_id])[row.feature_flag_id]
    properties = {
        "experiment_id": row.id,
        "experiment_name": row.name,
        "feature_flag_key": flag.key,
        "status": row.status,
        "start_date": row.start_date,
        "end_date": row.end_date,
        "conclusion": row.conclusion,
        "conclusion_comment": row.conclusion_comment,
        **facts,
    }
    internal_events.emit(tx, row.project_id, f"$experiment_{milestone}", properties, user_id=user_id, now=now)
