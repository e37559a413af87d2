"""The OpenAPI 3.1 document, made from the operations of all routers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter
from starlette.responses import Response

from hoglab import __version__
from hoglab.http import errors
from hoglab.http.body import JSON, MULTIPART, URLENCODED
from hoglab.http.responses import encode_json
from hoglab.http.routing import Either, Kind

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from hoglab.http.routing import Operation
    from hoglab.http.table import RoutingTable

Mode = Literal["validation", "serialization"]

_DESCRIPTION = """\
Experiments and event functions, compatible with PostHog's API.

Every path under `/api/projects/{project_id}` is also served under `/api/environments/{project_id}`, and the slash
at the end of a path may be left out. `project_id` is a number, or `@current` for the current project of the user.
Bodies may also be forms. Only the first error of a request is reported.
"""

_ERROR_SCHEMA = {
    "type": "object",
    "required": ["type", "code", "detail", "attr"],
    "properties": {
        "type": {
            "type": "string",
            "enum": [
                errors.VALIDATION,
                errors.INVALID_REQUEST,
                errors.AUTHENTICATION,
                errors.THROTTLED,
                errors.SERVER,
            ],
        },
        "code": {"type": "string", "description": "What is wrong, for programs."},
        "detail": {"type": "string", "description": "What is wrong, for people."},
        "attr": {
            "type": ["string", "null"],
            "description": "The field at fault: its path, joined by two underscores.",
        },
    },
}

_SECURITY = {
    "PersonalApiKey": {
        "type": "http",
        "scheme": "bearer",
        "description": "A personal API key, `phx_…`, that holds the scopes named at the operation.",
    },
    "PersonalApiKeyInQuery": {
        "type": "apiKey",
        "in": "query",
        "name": "personal_api_key",
        "description": "The same key as a query parameter; a body may carry it under the same name.",
    },
}

_TEXT_SCHEMA = {"type": "string"}
_KIND_SCHEMAS: dict[Kind, dict[str, Any]] = {
    Kind.INTEGER: {"type": "integer"},
    Kind.UUID: {"type": "string", "format": "uuid"},
    Kind.TEXT: _TEXT_SCHEMA,
}


class Document:
    """The document of one application; made when it is first asked for."""

    def __init__(self, table: RoutingTable, extra_paths: Mapping[str, Any]) -> None:
        self._table = table
        self._extra_paths = extra_paths

    @cached_property
    def value(self) -> dict[str, Any]:
        """The document as JSON values."""
        operations = [operation for operation in self._table.operations() if not operation.is_alias]
        schemas = _Schemas(operations)
        paths: dict[str, dict[str, Any]] = {}
        names: dict[str, int] = {}
        for operation in operations:
            path = paths.setdefault(f"{operation.path}/", {})
            path[operation.method.lower()] = _operation(operation, schemas, names)
        for name, item in self._extra_paths.items():
            paths.setdefault(name, {}).update(item)
        tags = dict.fromkeys(operation.tag for operation in operations)
        return {
            "openapi": "3.1.0",
            "info": {"title": "hoglab", "version": __version__, "description": _DESCRIPTION},
            "servers": [{"url": "/"}],
            "tags": [{"name": tag} for tag in tags],
            "paths": paths,
            "components": {
                "schemas": {"Error": _ERROR_SCHEMA, **schemas.definitions},
                "securitySchemes": _SECURITY,
            },
            "security": [{name: []} for name in _SECURITY],
        }

    @cached_property
    def encoded(self) -> bytes:
        """The document as JSON text."""
        return encode_json(self.value)


class _Schemas:
    """JSON Schemas of every model that an operation names, with one shared set of definitions."""

    def __init__(self, operations: list[Operation]) -> None:
        adapters = {key: TypeAdapter(key[0]) for operation in operations for key in _models(operation)}
        inputs = [(repr(key), mode, adapter) for key, adapter in adapters.items() for mode in (key[1],)]
        template = "#/components/schemas/{model}"
        found, shared = TypeAdapter.json_schemas(inputs, ref_template=template)
        self._by_key = {name: schema for (name, _), schema in found.items()}
        self.definitions: dict[str, Any] = shared.get("$defs", {})

    def of(self, model: Any, mode: Mode) -> dict[str, Any]:
        """The schema of a model, or the schema that was given in place of one."""
        return model if isinstance(model, dict) else self._by_key[repr((model, mode))]

    def resolved(self, model: Any, mode: Mode) -> dict[str, Any]:
        """The same, with a reference at the top followed."""
        schema = self.of(model, mode)
        reference = schema.get("$ref")
        resolved: dict[str, Any] = self.definitions[reference.rpartition("/")[2]] if reference else schema
        return resolved


def _models(operation: Operation) -> Iterator[tuple[Any, Mode]]:
    named: list[tuple[Any, Mode]] = [
        (operation.body, "validation"),
        (operation.query, "validation"),
        (operation.response, "serialization"),
    ]
    for model, mode in named:
        if model is not None and not isinstance(model, dict):
            yield model, mode


def _operation(operation: Operation, schemas: _Schemas, names: dict[str, int]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": _operation_id(operation, names),
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation), *_query_parameters(operation, schemas)],
        "responses": _responses(operation, schemas),
        "security": [{name: _scopes(operation)} for name in _SECURITY],
    }
    if operation.description:
        described["description"] = operation.description
    if operation.body is not None:
        media = {"schema": schemas.of(operation.body, "validation")}
        described["requestBody"] = {"content": {JSON: media, URLENCODED: media, MULTIPART: media}}
    return described


def _operation_id(operation: Operation, names: dict[str, int]) -> str:
    handler = operation.handler
    name = f"{operation.tag}_{handler.__name__ if handler is not None else 'refused_delete'}"
    name = name.replace(" ", "_").replace("-", "_")
    names[name] = names.get(name, 0) + 1
    return name if names[name] == 1 else f"{name}_{names[name]}"


def _scopes(operation: Operation) -> list[str]:
    needs = operation.needs or ()
    return [" or ".join(need.scopes) if isinstance(need, Either) else need for need in needs]


def _path_parameters(operation: Operation) -> Iterator[dict[str, Any]]:
    kinds: dict[str, Kind] = dict(operation.params)
    for part in operation.path.split("/"):
        if not part.startswith("{"):
            continue
        name = part[1:-1]
        schema = _KIND_SCHEMAS[kinds[name]] if name in kinds else _TEXT_SCHEMA
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameters(operation: Operation, schemas: _Schemas) -> Iterator[dict[str, Any]]:
    if operation.query is None:
        return
    model = schemas.resolved(operation.query, "validation")
    needed = model.get("required", [])
    for name, schema in model.get("properties", {}).items():
        yield {"name": name, "in": "query", "required": name in needed, "schema": schema}


def _responses(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    good: dict[str, Any] = {"description": HTTPStatus(operation.status).phrase}
    if operation.response is not None:
        good["content"] = {JSON: {"schema": schemas.of(operation.response, "serialization")}}
    answers = {str(operation.status): good}
    failure = {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}
    for status in sorted(_failures(operation) - {operation.status}):
        answers[str(status)] = {"description": HTTPStatus(status).phrase, "content": failure}
    return answers


def _failures(operation: Operation) -> set[int]:
    found = {401, 403, 429, 500, *operation.errors}
    if operation.project_scoped or operation.params:
        found.add(404)
    if operation.method in ("POST", "PUT", "PATCH"):
        found |= {400, 413, 415}
    if operation.query is not None:
        found.add(400)
    return found


def schema_app(document: Document) -> ASGIApp:
    """Serves the document as JSON."""
    return page(lambda: document.encoded, "application/vnd.oai.openapi+json")


def page(content: Callable[[], bytes], media_type: str) -> ASGIApp:
    """An ASGI app that answers GET and HEAD with a text that is made in a thread."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            raise errors.method_not_allowed(scope["method"], "GET, HEAD")
        response = Response(await asyncio.to_thread(content), media_type=media_type)
        await response(scope, receive, send)

    return app
