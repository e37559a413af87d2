"""What a person gets of one flag, saved or not, and what each of its conditions says of the person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hoglab.flags.api.explanation_schemas import ExplanationIn, ExplanationOut
from hoglab.flags.evaluation.request import clean_id
from hoglab.flags.matching.subject import FlagRequest
from hoglab.http.errors import not_found, required

if TYPE_CHECKING:
    from hoglab.flags.evaluation.endpoint import FlagEvaluator
    from hoglab.flags.service import FlagService
    from hoglab.flags.store import FlagRow
    from hoglab.http.management.call import Call
    from hoglab.http.management.routing import ResourceRouter
    from hoglab.storage.database import Database


def add_explanation(
    routes: ResourceRouter, database: Database, service: FlagService, evaluator: FlagEvaluator
) -> None:
    """Add the explanation to the endpoints of feature flags."""

    @routes.post(
        "/explain",
        body=ExplanationIn,
        response=ExplanationOut,
        scope=("feature_flag:read", "person:read"),
    )
    def explain_flag(call: Call) -> dict[str, Any]:
        """Explain what a person gets of a flag, condition by condition; nothing is saved.

        ``key`` names a saved flag; ``flag`` holds the fields of one that is not saved yet, with the ``id`` of the flag
        that they change. The value is that of ``/flags/``, from the same evaluator. Properties of the request win over
        stored ones. The scope ``person:read`` is needed because the answer shows stored properties.
        """
        body = call.validate(ExplanationIn)
        row = chosen(call, body)
        request = FlagRequest(
            clean_id(body.distinct_id),
            body.person_properties,
            {name: str(key) for name, key in body.groups.items()},
            {name: value for name, value in body.group_properties.items() if isinstance(value, dict)},
            device_id=body.device_id or None,
        )
        explained = evaluator.explained_for(call.project, request, row)
        outcome = explained["outcome"]
        return {
            "key": row.key,
            "active": row.active,
            "enabled": outcome.enabled,
            "variant": outcome.variant,
            "payload": outcome.payload,
            "reason": {
                "code": outcome.reason.code,
                "condition_index": outcome.condition_index,
                "description": outcome.description,
            },
            "person": {"known": explained["is_known"]},
            "conditions": explained["conditions"],
            "variant_bucket": explained["variant_bucket"],
            "holdout": explained["holdout"],
            "depends_on": explained["depends_on"],
        }

    def chosen(call: Call, body: ExplanationIn) -> FlagRow:
        with database.read() as connection:
            if body.flag is not None:
                return service.unsaved(connection, call.project.id, body.flag.sent())
            if not body.key:
                raise required("key")
            row = service.get_by_key(connection, call.project.id, body.key)
        if row is None:
            raise not_found()
        return row
