"""The endpoints of hog functions that are about their configuration (spec: hog-functions-api 1.1, 13, 18-20)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import orjson

from hoglab.functions import icons
from hoglab.functions.api.listing import FunctionList, FunctionListing, moment_or_none
from hoglab.functions.api.search import MAX_SEARCH_LENGTH
from hoglab.functions.configuration import FunctionPatch, unknown_inputs
from hoglab.functions.configuration.schemas import (
    CompletionsOut,
    CompletionsQuery,
    DiagnosticsOut,
    DiffQuery,
    FunctionBody,
    FunctionListItem,
    FunctionListQuery,
    FunctionOut,
    IconOut,
    IconQuery,
    IconsQuery,
    PublishBody,
    PublishOut,
    RearrangeBody,
    RestoreBody,
    RollbackBody,
    VersionChangesOut,
    VersionItem,
    VersionOut,
)
from hoglab.functions.drafts import Drafts
from hoglab.functions.editing import completions
from hoglab.functions.store import Selection
from hoglab.functions.versions import FunctionVersions
from hoglab.http.errors import BareError, not_found, permission_denied, validation_error
from hoglab.http.fields.fields import parse_integer, parse_uuid
from hoglab.http.fields.unknown_keys import with_warnings
from hoglab.http.fields.wire import ErrorText
from hoglab.http.management.pagination import Paged, envelope
from hoglab.http.management.routing import ResourceRouter, TextId, UuidId
from hoglab.patterns import ASCII, anchored

if TYPE_CHECKING:
    from hoglab.functions.editing import Purpose
    from hoglab.functions.service import FunctionService
    from hoglab.http.management.call import Call

READ, WRITE = "hog_function:read", "hog_function:write"

DEFAULT_LIMIT = 100
MAX_LIMIT = 1_000

_ICON_ID = anchored(r"[a-z0-9-]+(\.[a-z0-9-]+)+", ASCII)


def router(service: FunctionService) -> ResourceRouter:
    """Return the endpoints below ``/hog_functions``."""
    routes = ResourceRouter("/hog_functions", tag="hog_functions", scopes=(READ, WRITE))
    listed = FunctionList(service.database, service.presenter)
    versions = FunctionVersions(service)
    drafts = Drafts(service)

    @routes.get("/", query=FunctionListQuery, response=Paged[FunctionListItem])
    def list_functions(call: Call) -> dict[str, Any]:
        """List the functions of a project."""
        page = call.page(DEFAULT_LIMIT, MAX_LIMIT)
        items, count = listed.page(call.project, _listing(call), page.limit, page.offset)
        return envelope(call, items, count, page)

    @routes.post("/", body=FunctionBody, response=FunctionOut, status=201)
    def create_function(call: Call) -> dict[str, Any]:
        """Create a function, with or without a template."""
        sent = _sent(call)
        created = service.create(call.project, call.principal.user.id, sent)
        return with_warnings(created, unknown_inputs(sent.body, created))

    @routes.get(
        "/icon/", query=IconQuery, response={"type": "string"}, media_type=icons.CONTENT_TYPE, errors=(400,)
    )
    def icon(call: Call) -> Any:
        """Read the picture of an icon."""
        return _icon(call.query("id"))

    @routes.get("/icons/", query=IconsQuery, response=list[IconOut])
    def list_icons(call: Call) -> list[dict[str, str]]:
        """List the icons whose name contains ``query``."""
        matching = icons.search_icons(call.query("query"))
        return [{"id": icon.id, "name": icon.name, "url": icon.url} for icon in matching]

    @routes.patch("/rearrange/", body=RearrangeBody, response=list[FunctionOut])
    def rearrange(call: Call) -> list[dict[str, Any]]:
        """Change the execution order of several functions at once."""
        return service.rearrange(call.project, call.principal.user.id, call.body.get("orders"))

    @routes.get("/masked_secrets/", response=list[dict[str, Any]])
    def masked_secrets(call: Call) -> list[dict[str, Any]]:  # noqa: ARG001
        """List the functions that stored the mask in place of a secret: none can."""
        return []

    @routes.get("/completions/", query=CompletionsQuery, response=CompletionsOut)
    def list_completions(call: Call) -> dict[str, Any]:
        """List the globals and functions that a program, a template or a filter may name, for an editor."""
        wanted = call.validate_query(CompletionsQuery)
        return completions(wanted.type, cast("Purpose", wanted.purpose))

    @routes.post(
        "/{function_id}/diagnostics/", scope=READ, body=FunctionBody, response=DiagnosticsOut, heavy=True
    )
    def diagnostics(call: Call, function_id: TextId) -> dict[str, Any]:
        """Check a configuration and list its problems with their places; nothing is stored. The id may be ``new``."""
        problems = service.diagnose(call.project, _sent(call), parse_uuid(function_id))
        return {"diagnostics": problems}

    @routes.get("/{function_id}/", response=FunctionOut)
    def read_function(call: Call, function_id: UuidId) -> dict[str, Any]:
        """Read a function."""
        return service.get(call.project, function_id)

    @routes.patch("/{function_id}/", body=FunctionBody, response=FunctionOut, errors=(409,))
    def change_function(call: Call, function_id: UuidId) -> dict[str, Any]:
        """Change a function; ``deleted`` deletes and restores it."""
        sent = _sent(call)
        changed = service.update(call.project, call.principal.user.id, function_id, sent)
        return with_warnings(changed, unknown_inputs(sent.body, changed))

    routes.put("/{function_id}/", body=FunctionBody, response=FunctionOut, errors=(409,))(change_function)
    routes.forbid_delete("/{function_id}/")

    @routes.get("/{function_id}/revisions/", response=Paged[VersionItem])
    def list_versions(call: Call, function_id: UuidId) -> dict[str, Any]:
        """List the versions of a function, newest first; the state before its first change is one of them."""
        page = call.page(DEFAULT_LIMIT, MAX_LIMIT)
        items, count = versions.page(call.project, function_id, page.limit, page.offset)
        return envelope(call, items, count, page)

    @routes.get("/{function_id}/revisions/{version}/diff/", query=DiffQuery, response=VersionChangesOut)
    def diff_versions(call: Call, function_id: UuidId, version: TextId) -> dict[str, Any]:
        """List the changes from one version to another, or to the present."""
        to = call.validate_query(DiffQuery).to
        return versions.changes(call.project, function_id, parse_integer(version), to)

    @routes.post(
        "/{function_id}/revisions/{version}/rollback/", body=RollbackBody, response=FunctionOut, errors=(400,)
    )
    def roll_back(call: Call, function_id: UuidId, version: TextId) -> dict[str, Any]:
        """Restore the configuration of a version; secrets, name and state stay as they are."""
        return versions.roll_back(
            call.project,
            call.principal.user.id,
            function_id,
            parse_integer(version),
            force=call.validate(RollbackBody).force,
        )

    @routes.post(
        "/{function_id}/revisions/{version}/restore/", body=RestoreBody, response=FunctionOut, errors=(409,)
    )
    def restore_version(call: Call, function_id: UuidId, version: TextId) -> dict[str, Any]:
        """Copy the content of a version into the draft."""
        content = versions.content(call.project, function_id, parse_integer(version))
        overwrite = call.validate(RestoreBody).overwrite
        return drafts.restore(call.project, call.principal.user.id, function_id, content, overwrite=overwrite)

    @routes.post("/{function_id}/publish/", body=PublishBody, response=PublishOut, errors=(400, 409))
    def publish_draft(call: Call, function_id: UuidId) -> dict[str, Any]:
        """Make the draft of a function its configuration, after a preview."""
        body = call.validate(PublishBody)
        return drafts.publish(call.project, call.principal.user.id, function_id, body)

    @routes.post("/{function_id}/discard_draft/", response=FunctionOut)
    def discard_draft(call: Call, function_id: UuidId) -> dict[str, Any]:
        """Delete the draft of a function."""
        return drafts.discard(call.project, call.principal.user.id, function_id)

    @routes.get("/{function_id}/revisions/{version}/", response=VersionOut)
    def read_version(call: Call, function_id: UuidId, version: TextId) -> dict[str, Any]:
        """Return one version with its content, without secrets."""
        return versions.read(call.project, function_id, parse_integer(version))

    @routes.post("/{function_id}/enable_backfills/", answers={400: ErrorText})
    def enable_backfills(call: Call, function_id: UuidId) -> dict[str, Any]:
        """Refuse to run a function over past events as a batch export, which this server does not have."""
        function = service.get(call.project, function_id)
        if (function["type"] or "destination") != "destination":
            raise BareError(400, {"error": "Backfills are only supported for destination functions."})
        if function["filters"].get("source", "events") != "events":
            raise BareError(400, {"error": "Backfills are only supported for event-sourced destinations."})
        raise permission_denied("Backfilling Workflows is not enabled for this team.")

    return routes


JSON_FIELDS = frozenset({"inputs_schema", "inputs", "filters", "masking", "mappings"})


def _sent(call: Call) -> FunctionPatch:
    return FunctionPatch(_from_form(call.body) if call.decoded.is_form else call.body)


def _from_form(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a form: the last of repeated ones, and objects from their JSON text."""
    last = {name: value[-1] if isinstance(value, list) else value for name, value in form.items()}
    return {name: _json(value, name) if name in JSON_FIELDS else value for name, value in last.items()}


def _listing(call: Call) -> FunctionListing:
    enabled = (call.query("enabled") or "").strip().lower()
    types = [part.strip() for part in (call.query("type") or "").split(",") if part.strip()]
    selection = Selection(
        types=tuple(types) or None,
        enabled={"true": True, "false": False}.get(enabled),
        id=_uuid(call.query("id")),
        created_by=_user_id(call.query("created_by")),
        created_at=moment_or_none(call.query("created_at"), "created_at"),
        updated_at=moment_or_none(call.query("updated_at"), "updated_at"),
    )
    search = (call.query("search") or "").replace("\0", "").strip()
    if len(search) > MAX_SEARCH_LENGTH:
        raise validation_error(f"Search query must be {MAX_SEARCH_LENGTH} characters or fewer.", "search")
    full = (call.query("full") or "").strip().lower() == "true"
    return FunctionListing(selection, search or None, _filter_groups(call), full)


def _uuid(text: str | None) -> str | None:
    if not text:
        return None
    known = parse_uuid(text.strip())
    if known is None:
        raise validation_error("Enter a valid UUID.", "id")
    return known


def _user_id(text: str | None) -> int | None:
    if not text:
        return None
    number = parse_integer(text)
    if number is None or not 0 <= number < 2**63:
        detail = "Select a valid choice. That choice is not one of the available choices."
        raise validation_error(detail, "created_by", "invalid_choice")
    return number


def _filter_groups(call: Call) -> tuple[Mapping[str, Any], ...]:
    groups: list[Any] = []
    if text := call.query("filters"):
        parsed = _json(text, "filters")
        if not isinstance(parsed, dict):
            raise validation_error("Invalid filters", "filters")
        groups.append(parsed)
    if text := call.query("filter_groups"):
        parsed = _json(text, "filter_groups")
        if not isinstance(parsed, list) or not all(isinstance(group, dict) for group in parsed):
            raise validation_error("Invalid filter_groups", "filter_groups")
        groups += parsed
    return tuple(group for group in groups if group)


def _json(text: str, name: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise validation_error(f"Invalid {name}", name) from None


def _icon(icon_id: str | None) -> Any:
    from starlette.responses import Response

    if not icon_id:
        raise validation_error("id is required")
    icon = icons.ICONS.get(icon_id) if _ICON_ID.fullmatch(icon_id) else None
    if icon is None:
        raise not_found()
    headers = {"Cache-Control": f"public, max-age={icons.MAX_AGE_S}"}
    return Response(icon.svg(), 200, headers, icons.CONTENT_TYPE)
