"""The endpoints of function templates (spec: hog-functions-api 11.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from hoglab.functions import store
from hoglab.functions.configuration.schemas import TemplateOut, TemplateQuery
from hoglab.functions.templates import UNUSABLE, catalogue, find_template
from hoglab.http.documents.openapi import Public
from hoglab.http.errors import not_found
from hoglab.http.management.pagination import Paged, envelope, read_page, replace_query
from hoglab.http.management.routing import ResourceRouter, TextId
from hoglab.http.responses import json_response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from hoglab.functions.templates import Template
    from hoglab.http.management.call import Call
    from hoglab.storage.database import Database

DEFAULT_LIMIT = 100
MAX_LIMIT = 1_000
DEFAULT_TYPES = ("destination",)
PUBLIC = "/api/public_hog_function_templates"
UNLISTED = frozenset({"deprecated"})


def router(database: Database) -> ResourceRouter:
    """Return the endpoints below ``/hog_function_templates``."""
    routes = ResourceRouter(
        "/hog_function_templates",
        tag="hog_functions",
        scopes=("hog_function:read", "hog_function:write"),
    )

    @routes.get("/", query=TemplateQuery, response=Paged[TemplateOut])
    def list_templates(call: Call) -> dict[str, Any]:
        """List the templates of some types."""
        page = call.page(DEFAULT_LIMIT, MAX_LIMIT)
        with database.read() as connection:
            use = store.template_use(connection)
        templates = select_templates(call.params, use, without=UNLISTED)
        items = [template.wire() for template in templates[page.offset : page.offset + page.limit]]
        return envelope(call, items, len(templates), page)

    @routes.get("/{template_id}/", response=TemplateOut)
    def read_template(call: Call, template_id: TextId) -> dict[str, Any]:  # noqa: ARG001
        """Read a template of any status."""
        template = find_template(template_id)
        if template is None:
            raise not_found()
        return template.wire()

    return routes


def public_routes(database: Database) -> list[BaseRoute]:
    """Return the endpoints of templates without a key; they leave out internal templates."""

    def list_public(request: Request) -> Response:
        with database.read() as connection:
            use = store.template_use(connection)
        query = dict(request.query_params)
        page = read_page(query.get("limit"), query.get("offset"), default=DEFAULT_LIMIT, maximum=MAX_LIMIT)
        templates = select_templates(query, use, without=UNLISTED | UNUSABLE)

        def link(offset: int) -> str:
            changes: dict[str, int | str | None] = {"limit": page.limit, "offset": offset or None}
            return str(request.url.replace(query=replace_query(request.url.query, changes)))

        after, before = page.offset + page.limit, max(0, page.offset - page.limit)
        return json_response(
            {
                "count": len(templates),
                "next": link(after) if after < len(templates) else None,
                "previous": link(before) if page.offset else None,
                "results": [template.wire() for template in templates[page.offset : after]],
            }
        )

    def read_public(request: Request) -> Response:
        template = find_template(request.path_params["template_id"])
        if template is None or template.status in UNUSABLE:
            raise not_found()
        return json_response(template.wire())

    paths = (("", list_public), ("/{template_id}", read_public))
    return [
        Route(f"{PUBLIC}{path}{slash}", endpoint, methods=["GET"])
        for path, endpoint in paths
        for slash in ("", "/")
    ]


def public_paths() -> Mapping[str, Public]:
    """Return the public paths in the OpenAPI document."""
    like = "/api/projects/{project_id}/hog_function_templates/"
    return {
        f"{PUBLIC}/": Public(
            like, "hog_functions_list_public_templates", "List the templates, without a key."
        ),
        f"{PUBLIC}/{{template_id}}/": Public(
            f"{like}{{template_id}}/", "hog_functions_read_public_template", "Read a template, without a key."
        ),
    }


def select_templates(
    query: Mapping[str, str], use: Mapping[str, int], *, without: frozenset[str]
) -> list[Template]:
    """Return the templates that a query asks for, the most used first."""
    types = _types(query)
    wanted_id = query.get("template_id")
    matching = [
        template
        for template in catalogue().values()
        if template.type in types
        and template.status not in without
        and (not wanted_id or template.id == wanted_id)
    ]
    return sorted(matching, key=lambda template: (-use.get(template.id, 0), template.name.lower()))


def _types(query: Mapping[str, str]) -> tuple[str, ...]:
    if only_type := query.get("type"):
        return (only_type,)
    several = tuple(part.strip() for part in query.get("types", "").split(",") if part.strip())
    return several or DEFAULT_TYPES
