"""Reads of what flags do: their status, their history, and what a person gets and why.

The paths and their answers are those of PostHog's own API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from hoglab.accounts import activity
from hoglab.flags.api.inspection_schemas import (
    FlagActivityPage,
    FlagActivityQuery,
    FlagReasonOut,
    FlagReasonsQuery,
    FlagStatusOut,
    MyFlagOut,
    MyFlagsQuery,
)
from hoglab.flags.api.representation import status_with_reason
from hoglab.flags.matching.subject import FlagRequest
from hoglab.flags.service import SCOPE
from hoglab.http.errors import not_found, validation_error
from hoglab.http.management.routing import IntId, ResourceRouter

if TYPE_CHECKING:
    from hoglab.flags.api.views import FlagViews
    from hoglab.flags.evaluation.endpoint import FlagEvaluator
    from hoglab.flags.service import FlagService
    from hoglab.flags.store import FlagRow
    from hoglab.http.management.call import Call
    from hoglab.storage.database import Database

DISABLED = {"value": False, "evaluation": {"reason": "disabled", "condition_index": None}}
"""What everybody gets of a flag that is switched off."""


def add_inspection(
    routes: ResourceRouter,
    database: Database,
    service: FlagService,
    evaluator: FlagEvaluator,
    views: FlagViews,
) -> None:
    """Add the reads to the endpoints of feature flags."""

    def stored(call: Call, flag_id: int) -> FlagRow:
        with database.read() as connection:
            row = service.get(connection, call.project.id, flag_id)
        if row is None:
            raise not_found()
        return row

    @routes.get("/{flag_id}/status", response=FlagStatusOut)
    def read_flag_status(call: Call, flag_id: IntId) -> dict[str, Any]:
        """Tell whether a flag still decides anything, and why; also of a deleted one."""
        status, reason = status_with_reason(stored(call, flag_id), call.now)
        return {"status": status.lower(), "reason": reason}

    @routes.get("/activity", query=FlagActivityQuery, response=FlagActivityPage, scope="activity_log:read")
    def list_flag_activity(call: Call) -> dict[str, Any]:
        """List who changed which flag, newest first."""
        return history(call, None)

    @routes.get(
        "/{flag_id}/activity", query=FlagActivityQuery, response=FlagActivityPage, scope="activity_log:read"
    )
    def read_flag_activity(call: Call, flag_id: IntId) -> dict[str, Any]:
        """List who changed a flag, newest first; also of a deleted one."""
        return history(call, str(stored(call, flag_id).id))

    def history(call: Call, item_id: str | None) -> dict[str, Any]:
        wanted = call.validate_query(FlagActivityQuery)
        with database.read() as connection:
            entries, count = activity.entries(
                connection,
                call.project.id,
                limit=wanted.limit,
                offset=(wanted.page - 1) * wanted.limit,
                scopes=[SCOPE],
                item_id=item_id,
            )
        return {
            "results": entries,
            "next": call.link(page=wanted.page + 1) if wanted.page * wanted.limit < count else None,
            "previous": call.link(page=wanted.page - 1) if wanted.page > 1 else None,
            "total_count": count,
        }

    @routes.get("/evaluation_reasons", query=FlagReasonsQuery, response=dict[str, FlagReasonOut])
    def read_evaluation_reasons(call: Call) -> dict[str, Any]:
        """Return what a person gets of each flag, and why, as `/flags/` answers it for any run time."""
        wanted = call.validate_query(FlagReasonsQuery)
        request = FlagRequest(wanted.distinct_id, groups=read_groups(wanted.groups))
        loaded, outcomes = evaluator.outcomes_for(call.project, request)
        reasons = {
            outcome.key: {
                "value": outcome.value,
                "evaluation": {"reason": outcome.reason.code, "condition_index": outcome.condition_index},
            }
            for outcome in outcomes
        }
        return reasons | {row.key: DISABLED for row in loaded.rows if not row.active}

    @routes.get("/my_flags", query=MyFlagsQuery, response=list[MyFlagOut])
    def list_my_flags(call: Call) -> list[dict[str, Any]]:
        """List all flags, newest first, with what the caller's own distinct id gets of each."""
        groups = read_groups(call.validate_query(MyFlagsQuery).groups)
        distinct_id = call.principal.user.distinct_id
        loaded, outcomes = evaluator.outcomes_for(call.project, FlagRequest(distinct_id, groups=groups))
        values = {outcome.key: outcome.value for outcome in outcomes}
        newest = sorted(loaded.rows, key=lambda row: (row.created_at, row.id), reverse=True)
        flags = views.many(call, newest, loaded.linked)
        return [{"feature_flag": flag, "value": values.get(flag["key"], False)} for flag in flags]


def read_groups(text: str) -> dict[str, str]:
    """Return the keys of groups by group type that a query names. Raises 400 for anything but an object of texts."""
    if not text.strip():
        return {}
    try:
        groups = orjson.loads(text)
    except orjson.JSONDecodeError:
        groups = None
    if not isinstance(groups, dict) or not all(isinstance(key, (str, int)) for key in groups.values()):
        raise validation_error(
            'Groups must be a JSON object of texts, such as {"company": "acme"}.', "groups"
        )
    return {group_type: str(key) for group_type, key in groups.items()}
