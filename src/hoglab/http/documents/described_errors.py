"""Errors in the OpenAPI document: their schema, and what each status means, with an example of its body."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from hoglab.http import errors
from hoglab.http.responses import JSON

ERROR = {"$ref": "#/components/schemas/Error"}
ERROR_SCHEMA = {
    "type": "object",
    "description": "Error of a request. Only the first problem is reported.",
    "required": ["type", "code", "detail", "attr"],
    "properties": {
        "type": {
            "type": "string",
            "description": "The family of the error.",
            "enum": [
                errors.VALIDATION,
                errors.INVALID_REQUEST,
                errors.AUTHENTICATION,
                errors.THROTTLED,
                errors.SERVER,
            ],
        },
        "code": {"type": "string", "description": "Code of the error, for programs."},
        "detail": {"type": "string", "description": "Description of the error."},
        "attr": {
            "type": ["string", "null"],
            "description": "The field at fault: its path, joined by two underscores.",
        },
    },
}

_MEANINGS: dict[int, tuple[str, errors.ApiError]] = {
    400: ("A value cannot be accepted, or the request breaks a rule.", errors.required("name")),
    401: ("No valid key came with the request.", errors.not_authenticated()),
    403: ("The key or the user may not do this.", errors.missing_scope("experiment:read")),
    404: ("There is no such object, project or path.", errors.not_found()),
    405: ("The method is refused.", errors.method_not_allowed("DELETE")),
    408: ("The body did not arrive in time.", errors.request_timeout()),
    409: ("Something else happened to the object, or under the key, meanwhile.", errors.conflict("In use.")),
    412: ("The object is not in the state that If-Match names.", errors.precondition_failed('"a1b2"')),
    413: ("The body is too large.", errors.payload_too_large(20 * 1024 * 1024)),
    415: (
        "The content type of the body is none that is read here.",
        errors.unsupported_media_type("text/csv"),
    ),
    422: (
        "The idempotency key was used for another request.",
        errors.unprocessable("This Idempotency-Key was used for another request.", "idempotency_key_reused"),
    ),
    429: ("Too many requests; wait as long as Retry-After says.", errors.throttled(13)),
    500: ("A defect of the server; its log says more.", errors.server_error()),
    503: (
        "Cannot be done now; send it again after Retry-After.",
        errors.unavailable("The database is busy.", errors.BUSY_RETRY_S),
    ),
}
_WAITING = frozenset({408, 429, 503})


def response_name(status: int) -> str:
    """Return the name of a status among the document's shared responses."""
    return HTTPStatus(status).phrase.title().replace(" ", "")


def meaning(status: int) -> str:
    """Return the meaning of an error's status, in a sentence."""
    return _MEANINGS[status][0]


def error_responses(statuses: Iterable[int]) -> dict[str, Any]:
    """Return the ``components/responses`` of errors. Raises `KeyError` for a status that nobody has explained."""
    return {response_name(status): _response(status) for status in sorted(statuses)}


def _response(status: int) -> dict[str, Any]:
    text, example = _MEANINGS[status]
    described: dict[str, Any] = {
        "description": text,
        "content": {JSON: {"schema": ERROR, "example": example.body}},
    }
    if status in _WAITING:
        described["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "string"}}}
    return described
