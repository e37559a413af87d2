"""CORS headers of the endpoints that SDKs call from browsers (spec: sdk-wire 1.10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoglab.http.requests.body import header

if TYPE_CHECKING:
    from starlette.types import Message, Scope, Send

MAX_AGE_S = 86_400
"""Time for which a browser may remember a preflight."""

_METHODS = b"GET, POST, OPTIONS"
_VARY = (b"vary", b"Origin")


def cors_headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the headers that let a browser read the answer: the origin and the asked-for headers are mirrored."""
    headers = [_VARY]
    origin = header(scope, b"origin")
    if origin is None:
        return headers
    headers += [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-credentials", b"true"),
        (b"access-control-allow-methods", _METHODS),
    ]
    wanted = header(scope, b"access-control-request-headers")
    if wanted is not None:
        headers.append((b"access-control-allow-headers", wanted.encode("latin-1")))
        headers.append((b"access-control-max-age", str(MAX_AGE_S).encode()))
    return headers


def is_preflight(scope: Scope) -> bool:
    """Return whether a browser asks what it may ask."""
    return scope["method"] == "OPTIONS" and header(scope, b"access-control-request-method") is not None


def grant_preflight(send: Send) -> Send:
    """Turn a refusal into 204: an endpoint that does not know OPTIONS must not stop a preflight."""
    refused = False

    async def granting(message: Message) -> None:
        nonlocal refused
        if message["type"] == "http.response.start" and message["status"] >= 400:
            refused = True
            message = {"type": "http.response.start", "status": 204, "headers": []}
        elif refused and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return granting
