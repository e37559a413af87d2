"""The event endpoints that SDKs call, as plain ASGI apps (spec: sdk-wire 1.1, 1.5).

CORS headers and metrics are added to these answers, as to those of every SDK endpoint, by `hoglab.http`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import Counter

from hoglab.capture.decoding import read_query
from hoglab.capture.refusal import Refusal, unread
from hoglab.capture.service import PathRules, Request
from hoglab.http.errors import ApiError
from hoglab.http.requests.body import read_body
from hoglab.http.requests.client_ip import client_ip
from hoglab.http.responses import JSON, send_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from hoglab.capture.decoding import Query
    from hoglab.capture.service import Capture

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    Endpoint = Callable[[Scope, Receive, Send], Awaitable[None]]

OK = b'{"status":"Ok"}'
"""Response to an accepted request, and to a request for the options of a path."""
TEXT = "text/plain; charset=utf-8"

EVENTS = Counter("hoglab_capture_events", "Events accepted and made durable.")


def v0_routes(capture: Capture) -> dict[str, Endpoint]:
    """Return the event endpoints that answer for a request as a whole, by path (without trailing slash)."""
    limits = capture.limits
    batch = PathRules(limits.batch_body, limits.event)
    legacy = PathRules(limits.event_body, limits.event, legacy=True)
    engage = PathRules(limits.event_body, limits.event, legacy=True, engage=True)
    ai = PathRules(limits.batch_body, limits.ai_event)
    rules = {
        "/batch": batch,
        "/i/v0/e": batch,
        "/e": legacy,
        "/capture": legacy,
        "/track": legacy,
        "/engage": engage,
        "/i/v0/ai": ai,
        "/i/v0/ai/batch": ai,
    }
    routes: dict[str, Endpoint] = {path: EventEndpoint(capture, of_path) for path, of_path in rules.items()}
    routes["/s"] = DiscardEndpoint(limits.discarded_body, limits.body_timeout_s, OK)
    for signal in ("logs", "metrics", "traces"):
        routes[f"/i/v1/{signal}"] = DiscardEndpoint(limits.discarded_body, limits.body_timeout_s, b"{}")
    return routes


class EventEndpoint:
    """One path that takes events: POST with a body, or GET with ``data`` in the query."""

    def __init__(self, capture: Capture, rules: PathRules) -> None:
        self._capture = capture
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        if method == "OPTIONS":
            await send_answer(send, 200, OK, JSON)
        elif method not in {"POST", "GET", "HEAD"}:
            await refuse_method(send, b"GET, POST, OPTIONS")
        else:
            await self._take(scope, receive, send)

    async def _take(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            query = read_query(scope["query_string"])
            request = await self._read(scope, receive, query)
            taken = await self._capture.accept(request, self._rules)
        except Refusal as refusal:
            await _refuse(send, refusal)
            return
        EVENTS.inc(taken)
        if query.beacon:
            await send_answer(send, 204)
        else:
            await send_answer(send, 200, OK, JSON)

    async def _read(self, scope: Scope, receive: Receive, query: Query) -> Request:
        content_type = content_encoding = b""
        for name, value in scope["headers"]:
            if name == b"content-type":
                content_type = value
            elif name == b"content-encoding":
                content_encoding = value
        timeout_s = self._capture.limits.body_timeout_s
        body = await read_whole(scope, receive, self._rules.body_limit, timeout_s)
        return Request(body, query, content_type, content_encoding, client_ip(scope), scope)


class DiscardEndpoint:
    """A path of a product that is not here: what it gets is accepted and forgotten."""

    def __init__(self, limit_bytes: int, timeout_s: float, answer: bytes) -> None:
        self._limit = limit_bytes
        self._timeout_s = timeout_s
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        if method == "OPTIONS":
            await send_answer(send, 200, self._answer, JSON)
        elif method != "POST":
            await refuse_method(send, b"POST, OPTIONS")
        else:
            await self._take(scope, receive, send)

    async def _take(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await read_whole(scope, receive, self._limit, self._timeout_s, keep=False)
            beacon = read_query(scope["query_string"]).beacon
        except Refusal as refusal:
            await _refuse(send, refusal)
            return
        if beacon:
            await send_answer(send, 204)
        else:
            await send_answer(send, 200, self._answer, JSON)


async def read_whole(
    scope: Scope, receive: Receive, limit_bytes: int, timeout_s: float, *, keep: bool = True
) -> bytes:
    """Return the body of a request; see `hoglab.http.requests.body.read_body`. Raises `Refusal`, `ClientGoneError`."""
    try:
        return await read_body(scope, receive, limit_bytes, timeout_s, keep=keep)
    except ApiError as error:
        raise unread(error, limit_bytes) from None


async def refuse_method(send: Send, allowed: bytes) -> None:
    """Answer 405: the path does not take this method, only those in ``allowed``."""
    await send_answer(send, 405, b"method not allowed", TEXT, [(b"allow", allowed)])


async def _refuse(send: Send, refusal: Refusal) -> None:
    headers = []
    if refusal.closes:
        headers.append((b"connection", b"close"))
    if refusal.retry_after_s is not None:
        headers.append((b"retry-after", str(refusal.retry_after_s).encode()))
    await send_answer(send, refusal.status, refusal.reason.encode(), TEXT, headers)
