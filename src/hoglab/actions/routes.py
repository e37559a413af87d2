"""``/actions`` of the management API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hoglab.accounts import store as accounts
from hoglab.actions import store
from hoglab.actions.schemas import ActionIn, ActionListQuery, ActionOut, ActionPatch
from hoglab.actions.service import compile_problem
from hoglab.http.errors import not_found
from hoglab.http.fields.fields import parse_bool
from hoglab.http.fields.unknown_keys import warnings_of, with_warnings, within
from hoglab.http.fields.wire import user_object
from hoglab.http.management.pagination import Paged, envelope
from hoglab.http.management.routing import IntId, ResourceRouter

if TYPE_CHECKING:
    from hoglab.actions.service import ActionService
    from hoglab.actions.store import ActionRow
    from hoglab.http.management.call import Call

SCOPES = ("action:read", "action:write")


def actions_router(service: ActionService) -> ResourceRouter:
    """Return the endpoints of actions."""
    routes = ResourceRouter("/actions", tag="actions", scopes=SCOPES)

    def objects(call: Call, rows: Sequence[ActionRow]) -> list[dict[str, Any]]:
        with service.database.read() as connection:
            users = accounts.users(connection, {row.created_by_id for row in rows})
        return [action_object(call, row, user_object(users.get(row.created_by_id or 0))) for row in rows]

    @routes.get("/", query=ActionListQuery, response=Paged[ActionOut])
    def list_actions(call: Call) -> dict[str, Any]:
        """List actions, newest first."""
        page = call.page()
        with service.database.read() as connection:
            rows, count = store.list_actions(
                connection,
                call.project.id,
                search=(call.query("search") or "").strip() or None,
                limit=page.limit,
                offset=page.offset,
            )
        return envelope(call, objects(call, rows), count, page)

    @routes.post("/", body=ActionIn, response=ActionOut, status=201)
    def create_action(call: Call) -> dict[str, Any]:
        """Create an action."""
        body = call.validate(ActionIn)
        return objects(call, [service.create(call.project, call.principal.user, body.sent())])[0]

    @routes.get("/{action_id}", response=ActionOut)
    def read_action(call: Call, action_id: IntId) -> dict[str, Any]:
        """Read an action."""
        with service.database.read() as connection:
            row = service.get(connection, call.project.id, action_id)
        return objects(call, [row])[0]

    @routes.patch("/{action_id}", body=ActionPatch, response=ActionOut)
    def update_action(call: Call, action_id: IntId) -> dict[str, Any]:
        """Change the fields of an action that are sent. ``deleted`` removes it softly and brings it back."""
        return _update(call, action_id, ActionPatch)

    @routes.put("/{action_id}", body=ActionIn, response=ActionOut)
    def replace_action(call: Call, action_id: IntId) -> dict[str, Any]:
        """Change an action; ``name`` must be sent."""
        return _update(call, action_id, ActionIn)

    def _update(call: Call, action_id: int, model: type[ActionPatch]) -> dict[str, Any]:
        with service.database.read() as connection:
            row = store.action_by_id(connection, call.project.id, action_id)
        # Before the body is looked at: an action that does not exist has no rules to break.
        if row is None or (row.deleted and parse_bool(call.body.get("deleted")) is not False):
            raise not_found()
        changes = call.validate(model).sent()
        return objects(call, [service.update(call.project, call.principal.user, action_id, changes)])[0]

    routes.forbid_delete("/{action_id}")
    return routes


def action_object(call: Call, row: ActionRow, created_by: dict[str, Any] | None) -> dict[str, Any]:
    """Return an action in full."""
    shown = {
        "id": row.id,
        "name": row.name,
        "description": row.description,
        "tags": row.tags,
        "steps": row.steps,
        "deleted": row.deleted,
        "team_id": row.project_id,
        "is_action": True,
        "bytecode_error": compile_problem(row.steps),
        "created_by": created_by,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "user_access_level": call.access_level(row.created_by_id),
    }
    return with_warnings(shown, warnings_of(within(ActionPatch, {"steps": row.steps})))
