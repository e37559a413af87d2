"""Probes: is the process up, can it take events, what does it measure (spec: sdk-wire 1.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from hoglab import __version__
from hoglab.http import errors
from hoglab.http.responses import json_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

Readiness = Callable[[], Sequence[str]]
"""Tells why the server cannot take events now; nothing when it can. May block: it runs in a thread."""

READINESS_TIMEOUT_S = 5.0
"""A check that takes longer than this counts as failed."""

_log = structlog.get_logger(__name__)


def probes(readiness: Readiness) -> dict[str, ASGIApp]:
    """The probe endpoints by their exact paths."""
    alive = _get(_alive)

    async def ready() -> Response:
        reasons = await _reasons(readiness)
        body = {"status": "not ready", "reasons": reasons} if reasons else {"status": "ok"}
        return json_response(body, 503 if reasons else 200)

    return {
        "/": _get(_root),
        "/_health": alive,
        "/_liveness": alive,
        "/_readiness": _get(ready),
        "/metrics": _get(_metrics),
    }


async def _alive() -> Response:
    return json_response({"status": "ok"})


async def _root() -> Response:
    return json_response({"name": "hoglab", "version": __version__, "docs": "/api/docs/"})


async def _metrics() -> Response:
    text = await asyncio.to_thread(generate_latest)
    return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})


async def _reasons(readiness: Readiness) -> list[str]:
    try:
        async with asyncio.timeout(READINESS_TIMEOUT_S):
            return list(await asyncio.to_thread(readiness))
    except TimeoutError:
        return [f"the check did not end within {READINESS_TIMEOUT_S:g} s"]
    except Exception as error:
        _log.exception("readiness_check_failed")
        return [f"the check failed: {type(error).__name__}"]


def _get(endpoint: Callable[[], Awaitable[Response]]) -> ASGIApp:
    """An ASGI app that answers GET and HEAD with what ``endpoint`` returns."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            raise errors.method_not_allowed(scope["method"], "GET, HEAD")
        response = await endpoint()
        await response(scope, receive, send)

    return app
