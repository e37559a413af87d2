"""The OpenAPI 3.1 document, made from the operations of all routers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, TypeAdapter
from starlette.responses import Response

from hoglab import __version__
from hoglab.http import errors
from hoglab.http.compression import compress
from hoglab.http.documents.described_errors import (
    ERROR,
    ERROR_SCHEMA,
    error_responses,
    meaning,
    response_name,
)
from hoglab.http.documents.examples import Examples
from hoglab.http.fields.unknown_keys import NAMED, named_kinds
from hoglab.http.management import idempotency
from hoglab.http.management.routing import LAG_HEADER, Either, Kind
from hoglab.http.requests.body import JSON, MULTIPART, URLENCODED
from hoglab.http.responses import encode_json

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from hoglab.http.management.routing import Operation
    from hoglab.http.management.table import RoutingTable

Mode = Literal["validation", "serialization"]

FORMS = "x-also-accepted"
"""Extension in which a body names the media types accepted besides JSON."""

_REFERENCE = "#/components/schemas/"

_DESCRIPTION = """\
Experiments and event functions, compatible with PostHog's API.

Every path under `/api/projects/{project_id}` is also served under `/api/environments/{project_id}`, and the slash
at the end of a path may be left out. `project_id` is a number, or `@current` for the current project of the user.
Bodies may also be forms, of the media types that `x-also-accepted` names. Only the first error of a request is
reported.
"""

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
        "description": "Personal API key as a query parameter; a body may carry it under the same name.",
    },
}

_IDEMPOTENCY_PARAMETER = {
    "name": idempotency.HEADER,
    "in": "header",
    "required": False,
    "description": "A value of the client's choice. For 24 hours a request that is sent again under it is not carried "
    "out again: it gets the first one's answer.",
    "schema": {"type": "string", "minLength": 1, "maxLength": idempotency.MAX_KEY_CHARACTERS},
}

_PROJECT = "The project's id, or `@current` for the current project of the user."
_TEXT_SCHEMA = {"type": "string"}
_IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "The ETag that was read last. Something else in between is answered with 412, and nothing changes.",
    "schema": _TEXT_SCHEMA,
}
_IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "The ETag of a copy that the client has; 304 when it is still right.",
    "schema": _TEXT_SCHEMA,
}
_KIND_SCHEMAS: dict[Kind, dict[str, Any]] = {
    Kind.INTEGER: {"type": "integer"},
    Kind.UUID: {"type": "string", "format": "uuid"},
    Kind.TEXT: _TEXT_SCHEMA,
}


@dataclass(frozen=True, slots=True)
class Public:
    """A further public path of an operation of the management API: without a key, and without a project in the path."""

    like: str
    """The path of that operation, whose method is GET."""
    operation_id: str
    summary: str


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
            described = {"get": _public(item, paths)} if isinstance(item, Public) else item
            paths.setdefault(name, {}).update(described)
        # Models of queries are spelt out as parameters, so nothing refers to them.
        named = sorted(_used(paths, schemas.definitions, set()))
        tags = dict.fromkeys(operation.tag for operation in operations)
        return {
            "openapi": "3.1.0",
            "info": {"title": "hoglab", "version": __version__, "description": _DESCRIPTION},
            "servers": [{"url": "/"}],
            "tags": [{"name": tag} for tag in tags],
            "paths": paths,
            "components": {
                "schemas": {"Error": ERROR_SCHEMA} | {name: schemas.definitions[name] for name in named},
                "responses": error_responses(
                    set().union(*(_failures(operation) for operation in operations)) - {405}
                ),
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
        by_key, shared = TypeAdapter.json_schemas(inputs, ref_template=f"{_REFERENCE}{{model}}")
        self._by_key = {name: _renamed(schema) for (name, _), schema in by_key.items()}
        definitions: dict[str, Any] = shared.get("$defs", {})
        self.definitions = {_name(name): _renamed(schema) for name, schema in definitions.items()}
        for model in adapters:
            self._add_named(model[0])
        for operation in operations:
            if operation.method in ("PATCH", "PUT"):
                self._drop_defaults(operation)
        self.examples = Examples(self.definitions)

    def _add_named(self, model: Any) -> None:
        """Describe what the fields of a model hold though they are read by hand (`Keys`)."""
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return
        for name, kind in named_kinds(model).items():
            if name not in self.definitions:
                schema = TypeAdapter(kind).json_schema(ref_template=f"{_REFERENCE}{{model}}")
                self.definitions |= schema.pop("$defs", {})
                self.definitions[name] = schema

    def _drop_defaults(self, operation: Operation) -> None:
        """Remove defaults from the schema of a change: clients would send them, but a field left out stays as it is."""
        if operation.body is None or isinstance(operation.body, dict):
            return
        for schema in self.resolved(operation.body, "validation").get("properties", {}).values():
            schema.pop("default", None)

    def of(self, model: Any, mode: Mode) -> dict[str, Any]:
        """Return the schema of a model, or the schema that was given in place of one."""
        return model if isinstance(model, dict) else self._by_key[repr((model, mode))]

    def resolved(self, model: Any, mode: Mode) -> dict[str, Any]:
        """Return the schema of `of`, with a reference at the top followed."""
        schema = self.of(model, mode)
        reference = schema.get("$ref")
        resolved: dict[str, Any] = self.definitions[reference.rpartition("/")[2]] if reference else schema
        return resolved


def _name(generated: str) -> str:
    """Return the name of a model in the document.

    Pydantic spells pages ``Paged_ExperimentOut_``, and models that share their name ``hoglab__room__module__Name``.
    """
    if generated.startswith("Paged_"):
        return generated.removeprefix("Paged_").removesuffix("_").removesuffix("Out") + "Page"
    package, *inner = generated.split("__")
    return f"{inner[0].capitalize()}{inner[-1]}" if package == "hoglab" else generated


def _renamed(schema: Any) -> Any:
    """Return a schema with its references under the names of the document."""
    if isinstance(schema, list):
        return [_renamed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: f"{_REFERENCE}{_name(value.removeprefix(_REFERENCE).removeprefix(NAMED))}"
        if key == "$ref"
        else _renamed(value)
        for key, value in schema.items()
    }


def _used(value: Any, definitions: dict[str, Any], names: set[str]) -> set[str]:
    """Return the names of all definitions that a part of the document leads to."""
    if isinstance(value, list):
        for part in value:
            _used(part, definitions, names)
    elif isinstance(value, dict):
        reference = value.get("$ref")
        name = reference.removeprefix(_REFERENCE) if isinstance(reference, str) else None
        if name in definitions and name not in names:
            names.add(name)
            _used(definitions[name], definitions, names)
        for part in value.values():
            _used(part, definitions, names)
    return names


def _models(operation: Operation) -> Iterator[tuple[Any, Mode]]:
    named: list[tuple[Any, Mode]] = [
        (operation.body, "validation"),
        (operation.query, "validation"),
        (operation.response, "serialization"),
        *((model, "serialization") for model in operation.answers.values()),
    ]
    for model, mode in named:
        if model is not None and not isinstance(model, dict):
            yield model, mode


def _operation(operation: Operation, schemas: _Schemas, names: dict[str, int]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": _operation_id(operation, names),
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": [
            *_path_parameters(operation),
            *_query_parameters(operation, schemas),
            *_header_parameters(operation),
        ],
        "responses": _responses(operation, schemas),
        "security": [] if operation.is_open else [{name: _scopes(operation)} for name in _SECURITY],
    }
    if operation.for_strangers:
        described["security"].append({})
    if operation.description:
        described["description"] = operation.description
    if operation.body is not None:
        schema = schemas.of(operation.body, "validation")
        json = {"schema": schema, "example": schemas.examples.of(schema, required_only=True)}
        # Generators of clients make a mess of one body in several media types, so that the others stand apart.
        forms = {} if operation.is_open else {FORMS: [URLENCODED, MULTIPART]}
        described["requestBody"] = {"content": {JSON: json}, **forms}
    return described


def _public(public: Public, paths: Mapping[str, Any]) -> dict[str, Any]:
    like = paths[public.like]["get"]
    never = {"401", "403", "429"}
    return {
        **like,
        "operationId": public.operation_id,
        "summary": public.summary,
        "parameters": [parameter for parameter in like["parameters"] if parameter["name"] != "project_id"],
        "responses": {status: answer for status, answer in like["responses"].items() if status not in never},
        "security": [],
    }


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
        whose, _, what = name.rpartition("_")
        text = _PROJECT if name == "project_id" else f"The {whose}'s {what}."
        described = {"name": name, "in": "path", "required": True, "description": text, "schema": schema}
        yield {**described, "example": "@current"} if name == "project_id" else described


def _query_parameters(operation: Operation, schemas: _Schemas) -> Iterator[dict[str, Any]]:
    if operation.query is None:
        return
    model = schemas.resolved(operation.query, "validation")
    needed = model.get("required", [])
    for name, schema in model.get("properties", {}).items():
        yield {"name": name, "in": "query", "required": name in needed, "schema": schema}


def _header_parameters(operation: Operation) -> Iterator[dict[str, Any]]:
    if operation.method == "POST" and not operation.is_open:
        yield _IDEMPOTENCY_PARAMETER
    if operation.is_tagged:
        yield _IF_NONE_MATCH
    elif operation.versioned:
        yield _IF_MATCH


def _responses(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    good: dict[str, Any] = {"description": HTTPStatus(operation.status).phrase}
    if operation.response is not None:
        good["content"] = _content(operation.response, operation.media_type, schemas)
    if operation.versioned or operation.is_tagged:
        good["headers"] = {"ETag": {"description": "Identifies this state.", "schema": _TEXT_SCHEMA}}
    if operation.reads_events:
        good.setdefault("headers", {})[LAG_HEADER] = {
            "description": "Seconds for which the oldest accepted event waits to be stored; 0.0: all are.",
            "schema": {"type": "number"},
        }
    answers: dict[str, Any] = {str(operation.status): good}
    if operation.is_tagged:
        answers["304"] = {"description": "It is still in the state of If-None-Match."}
    for status in sorted(_failures(operation) - {operation.status}):
        answers[str(status)] = {"$ref": f"#/components/responses/{response_name(status)}"}
    for status, model in operation.answers.items():
        media = _content(model, JSON, schemas)
        if status >= HTTPStatus.BAD_REQUEST:
            media[JSON]["schema"] = {"anyOf": [media[JSON]["schema"], ERROR]}
            answers[str(status)] = {"description": meaning(status), "content": media}
        else:
            answers[str(status)] = {"description": HTTPStatus(status).phrase, "content": media}
    return answers


def _content(model: Any, media_type: str, schemas: _Schemas) -> dict[str, Any]:
    schema = schemas.of(model, "serialization")
    media = {"schema": schema}
    if media_type == JSON:
        media["example"] = schemas.examples.of(schema)
    return {media_type: media}


def _failures(operation: Operation) -> set[int]:
    statuses = {401, 403, 429, 500, 503, *operation.errors}
    if operation.project_scoped or operation.params:
        statuses.add(404)
    if operation.method in ("POST", "PUT", "PATCH"):
        statuses |= {400, 408, 413, 415}
    if operation.method == "POST" and not operation.is_open:
        statuses |= {409, 422}
    if operation.versioned and operation.method != "GET":
        statuses.add(412)
    if operation.query is not None:
        statuses.add(400)
    return statuses


def schema_app(document: Document) -> ASGIApp:
    """Serve the document as JSON."""
    return page(lambda: document.encoded, "application/vnd.oai.openapi+json")


def page(content: Callable[[], bytes], media_type: str, headers: Mapping[str, str] | None = None) -> ASGIApp:
    """Return an ASGI app that answers GET and HEAD with a text that is made in a thread."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            raise errors.method_not_allowed(scope["method"], "GET, HEAD")

        def answer() -> Response:
            response = Response(content(), headers=headers, media_type=media_type)
            compress(response, scope)
            return response

        response = await asyncio.to_thread(answer)
        await response(scope, receive, send)

    return app
