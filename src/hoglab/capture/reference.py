"""The event endpoints in the OpenAPI document (spec: sdk-wire 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hoglab.capture.v1 import REQUIRED_HEADERS

_UUID_NOTE = (
    "Sent again with the same name, distinct id and day in UTC, it is the same event: the last one counts."
)
_EVENT = {
    "type": "object",
    "required": ["event", "distinct_id"],
    "properties": {
        "event": {"type": "string"},
        "distinct_id": {"type": "string", "maxLength": 200},
        "uuid": {"type": "string", "format": "uuid", "description": _UUID_NOTE},
        "timestamp": {"type": "string", "format": "date-time"},
        "properties": {"type": "object"},
        "$set": {"type": "object"},
        "$set_once": {"type": "object"},
        "$unset": {"type": "array", "items": {"type": "string"}},
    },
}
_BATCH = {
    "type": "object",
    "required": ["api_key", "batch"],
    "properties": {
        "api_key": {"type": "string", "description": "The project token, `phc_…`."},
        "batch": {"type": "array", "minItems": 1, "items": _EVENT},
        "historical_migration": {"type": "boolean"},
        "sent_at": {"type": "string", "format": "date-time"},
    },
}
_V1_EVENT = {
    **_EVENT,
    "required": ["event", "uuid", "distinct_id", "timestamp"],
    "properties": {
        **_EVENT["properties"],  # type: ignore[dict-item]
        "session_id": {"type": "string"},
        "window_id": {"type": "string"},
        "options": {"type": "object"},
    },
}
_V1_BATCH = {
    "type": "object",
    "required": ["batch"],
    "properties": {
        "created_at": {"type": "string", "format": "date-time"},
        "historical_migration": {"type": "boolean"},
        "batch": {"type": "array", "minItems": 1, "items": _V1_EVENT},
    },
}
_TEXT = {"text/plain": {"schema": {"type": "string"}}}
_REFUSALS = {
    "400": "The body cannot be read, or an event lacks its name or distinct id.",
    "401": "The project token is missing or unknown.",
    "408": "The body did not arrive in time.",
    "413": "The body or its only event is too large.",
    "503": "Nothing can be stored now; send it again after `Retry-After` seconds.",
}
_QUERY = {
    "compression": "`gzip`, `base64` or `lz64`; gzip is recognised without it.",
    "sent_at": "Time when the request was sent, by the client's clock, in milliseconds.",
    "beacon": "`1`: success is 204 without a body.",
}


def capture_paths() -> Mapping[str, Any]:
    """Return the ``paths`` of the event endpoints."""
    paths = {
        path: {"post": _operation(path, summary)}
        for path, summary in (
            ("/batch/", "Capture a batch of events"),
            ("/i/v0/e/", "Capture events"),
            ("/e/", "Capture events (older path)"),
            ("/capture/", "Capture events (older path)"),
            ("/track/", "Capture events (older path)"),
            ("/engage/", "Update a person (older path)"),
            ("/i/v0/ai/batch/", "Capture a batch of large events"),
        )
    }
    return {**paths, "/i/v1/analytics/events": {"post": _v1_operation()}}


def _operation(path: str, summary: str) -> dict[str, Any]:
    accepted = {"type": "object", "properties": {"status": {"type": "string", "const": "Ok"}}}
    return {
        "operationId": f"capture_{path.strip('/').replace('/', '_')}",
        "tags": ["capture"],
        "summary": summary,
        "security": [],
        "parameters": [
            {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
            for name, text in _QUERY.items()
        ],
        "requestBody": {"content": {"application/json": {"schema": {"anyOf": [_BATCH, _EVENT]}}}},
        "responses": {
            "200": {"description": "Stored.", "content": {"application/json": {"schema": accepted}}},
            **{status: {"description": text, "content": _TEXT} for status, text in _REFUSALS.items()},
        },
    }


def _v1_operation() -> dict[str, Any]:
    result = {
        "type": "object",
        "properties": {
            "result": {"type": "string", "enum": ["ok", "warning", "drop", "retry"]},
            "details": {"type": "string"},
        },
    }
    results = {
        "type": "object",
        "properties": {"results": {"type": "object", "additionalProperties": result}},
    }
    error = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("error", "error_description", "error_uri")},
    }
    described = {**_REFUSALS, "415": "The content type or the compression is not supported."}
    return {
        "operationId": "capture_v1",
        "tags": ["capture"],
        "summary": "Capture a batch of events, with a result for each",
        "security": [],
        "parameters": [
            {"name": name.decode(), "in": "header", "required": True, "schema": {"type": "string"}}
            for name in REQUIRED_HEADERS
            if name not in (b"authorization", b"content-type")
        ],
        "requestBody": {"content": {"application/json": {"schema": _V1_BATCH}}},
        "responses": {
            "200": {"description": "A result by uuid.", "content": {"application/json": {"schema": results}}},
            **{
                status: {"description": text, "content": {"application/json": {"schema": error}}}
                for status, text in sorted(described.items())
            },
        },
    }
