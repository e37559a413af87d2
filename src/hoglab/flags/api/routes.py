"""``/feature_flags`` of the management API (spec: experiments-api 7.3; sdk-wire 2.5 for remote config)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hoglab.flags.api.explaining import add_explanation
from hoglab.flags.api.inspection import add_inspection
from hoglab.flags.api.listing import FlagListing
from hoglab.flags.api.schemas import FlagIn, FlagListQuery, FlagOut, FlagPatch
from hoglab.flags.api.views import FlagViews
from hoglab.flags.payloads import reveal
from hoglab.http.errors import not_found, permission_denied
from hoglab.http.fields.fields import parse_bool
from hoglab.http.management.pagination import Paged, envelope
from hoglab.http.management.routing import IntId, ResourceRouter, TextId
from hoglab.http.responses import json_response

if TYPE_CHECKING:
    from starlette.responses import Response

    from hoglab.flags.evaluation.endpoint import FlagEvaluator
    from hoglab.flags.service import FlagService
    from hoglab.http.management.call import Call
    from hoglab.storage.database import Database

READ, WRITE = "feature_flag:read", "feature_flag:write"


def router(database: Database, service: FlagService, evaluator: FlagEvaluator) -> ResourceRouter:
    """Return the endpoints of feature flags."""
    routes = ResourceRouter("/feature_flags", tag="feature_flags", scopes=(READ, WRITE))
    views = FlagViews(database, service)
    registry = evaluator.registry

    @routes.get("/", query=FlagListQuery, response=Paged[FlagOut])
    def list_flags(call: Call) -> dict[str, Any]:
        """List feature flags, newest first."""
        loaded = registry.load(call.project)
        rows = FlagListing(call.params, call.now).select(loaded.rows, loaded.linked)
        page = call.page()
        shown = rows[page.offset : page.offset + page.limit]
        return envelope(call, views.many(call, shown, loaded.linked), len(rows), page)

    @routes.post("/", body=FlagIn, response=FlagOut, status=201)
    def create_flag(call: Call) -> dict[str, Any]:
        """Create a feature flag."""
        return views.one(
            call, service.create(call.project, call.principal.user, call.validate(FlagIn).sent())
        )

    @routes.get("/{flag_id}", response=FlagOut, versioned=True)
    def read_flag(call: Call, flag_id: IntId) -> dict[str, Any]:
        """Read a feature flag."""
        with database.read() as connection:
            row = service.get(connection, call.project.id, flag_id)
        if row is None or row.deleted:
            raise not_found()
        return views.one(call, row)

    @routes.patch("/{flag_id}", body=FlagPatch, response=FlagOut, versioned=True)
    def update_flag(call: Call, flag_id: IntId) -> dict[str, Any]:
        """Change the fields of a feature flag that are sent; ``filters`` are merged by top-level key."""
        return _update(call, flag_id, FlagPatch)

    @routes.put("/{flag_id}", body=FlagIn, response=FlagOut, versioned=True)
    def replace_flag(call: Call, flag_id: IntId) -> dict[str, Any]:
        """Replace a feature flag; its key must be sent."""
        return _update(call, flag_id, FlagIn)

    def _update(call: Call, flag_id: int, model: type[FlagPatch]) -> dict[str, Any]:
        with database.read() as connection:
            row = service.get(connection, call.project.id, flag_id)
        if row is None or (row.deleted and parse_bool(call.body.get("deleted")) is not False):
            raise not_found()
        changes = call.validate(model).sent()
        check = views.require_state(call)
        return views.one(call, service.update(call.project, call.principal.user, flag_id, changes, check))

    routes.forbid_delete("/{flag_id}")
    add_inspection(routes, database, service, evaluator, views)
    add_explanation(routes, database, service, evaluator)

    @routes.get("/{flag_key}/remote_config", response=str | None, shows_secret=True)
    def read_remote_config(call: Call, flag_key: TextId) -> Response:
        """Return the payload of a remote configuration flag, by the flag's key or id.

        The answer is a JSON string that holds the payload as JSON text, or null without a payload: posthog-go reads
        nothing else, and posthog-node decodes the string itself.
        """
        project = call.project
        token = call.query("token")
        if token is not None and token != project.api_token:
            project = evaluator.project(token)
            if not call.principal.reaches_project(project):
                raise permission_denied("The API key has no access to the project of this token.")
        with database.read() as connection:
            row = service.get_by_key(connection, project.id, flag_key)
            if row is None and flag_key.isascii() and flag_key.isdigit() and len(flag_key) < 19:
                row = service.get(connection, project.id, int(flag_key))
        if row is None or row.deleted or not row.is_remote_configuration:
            raise not_found()
        payload = (row.filters.get("payloads") or {}).get("true")
        if payload is not None and row.has_encrypted_payloads:
            payload = reveal(payload, service.cipher)
        return json_response(payload)

    return routes
