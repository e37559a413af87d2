"""The public address of webhooks in the OpenAPI document (spec: hog-functions-api 2, hog-runtime 7.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hoglab.delivery.execution import WEBHOOK_PATH
from hoglab.delivery.webhooks.incoming import REPLY_TYPES, WebhookLimits
from hoglab.http.documents.openapi import FORMS
from hoglab.http.requests.body import JSON, URLENCODED
from hoglab.http.requests.decompression import BY_NAME

_REFUSALS = {
    "400": ("The body or the query cannot be read.", "The query has more than 1000 parameters."),
    "404": ("There is no enabled webhook of this id.", "Not found"),
    "408": ("The body did not arrive in time.", "The request did not arrive in time"),
    "413": (f"The body has more than {WebhookLimits().body} bytes unpacked.", "Request entity too large"),
    "415": (
        "The compression of the body is not known.",
        f"Bodies may be compressed by one of {', '.join(BY_NAME)}.",
    ),
    "429": ("The function was stopped, because it was too slow for too long.", "Disabled"),
    "503": ("Nothing can be stored now; send it again after `Retry-After` seconds.", "Try again."),
}
_ADDRESS = {
    "name": "webhook_id",
    "in": "path",
    "required": True,
    "description": "The id of a function of type `source_webhook`. An extension behind it, such as `.gif`, is ignored.",
    "schema": {"type": "string"},
}
_ENCODING = {
    "name": "Content-Encoding",
    "in": "header",
    "required": False,
    "description": "Compression of the body.",
    "schema": {"type": "string", "enum": ["identity", *BY_NAME]},
}


def webhook_paths() -> Mapping[str, Any]:
    """Return the ``paths`` of webhooks. A program's own answer may be anything of the allowed types."""
    posted = {"schema": {}, "example": {"kind": "payment received", "customer": "ada"}}
    return {
        f"{WEBHOOK_PATH}{{webhook_id}}": {
            "get": {
                **_operation("call_webhook_with_get", "Call a function with the parameters of a query"),
                "parameters": [_ADDRESS],
            },
            "post": {
                **_operation("call_webhook", "Call a function with a body"),
                "parameters": [_ADDRESS, _ENCODING],
                "requestBody": {
                    "description": "JSON, a form, or anything else, which the program sees as text.",
                    "content": {JSON: posted},
                    FORMS: [URLENCODED],
                },
            },
        }
    }


def _operation(operation_id: str, summary: str) -> dict[str, Any]:
    return {
        "operationId": operation_id,
        "tags": ["webhooks"],
        "summary": summary,
        "description": "The program of the function sees the request, and may answer it with a status, a body and a "
        "type of its own choice.",
        "security": [],
        "responses": {
            "200": _answered("It ran to its end.", {"status": "ok"}),
            "201": _answered("It goes on in the background.", {"status": "queued"}),
            "500": _answered("It ended with an error, which its log tells.", {"status": "Unhandled error"}),
            **{status: _answered(text, {"error": error}) for status, (text, error) in _REFUSALS.items()},
            "default": _answered("Response of the program.", {"paid": True}),
        },
    }


def _answered(description: str, example: Any) -> dict[str, Any]:
    """Return an answer. Its schema is open, for a program may answer with the same status and a body of its own."""
    others: dict[str, Any] = {kind: {} for kind in sorted(REPLY_TYPES - {JSON})}
    return {"description": description, "content": {JSON: {"schema": {}, "example": example}, **others}}
