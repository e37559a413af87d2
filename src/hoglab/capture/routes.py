"""The event endpoints that SDKs call, as plain ASGI apps (spec: sdk-wire 1.1, 1.5).

CORS headers and metrics are added to these answers, as to those of every SDK endpoint, by `hoglab.http`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from prometheus_client import Counter

from hoglab.capture.client_ip import forwarded_ip
from hoglab.capture.decoding import read_query
from hoglab.capture.refusal import Refusal, too_large
from hoglab.capture.service import PathRules, Request
from hoglab.http.body import ClientGoneError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from hoglab.capture.service import Capture

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    Endpoint = Callable[[Scope, Receive, Send], Awaitable[None]]

_OK = b'{"status":"Ok"}'
_TEXT = b"text/plain; charset=utf-8"
_JSON = b"application/json"

_EVENTS = Counter("hoglab_capture_events", "Events accepted and made durable.")


def capture_routes(capture: Capture) -> dict[str, Endpoint]:
    """Every event endpoint by its path (without trailing slash)."""
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
    routes: dict[str, Endpoint] = {path: EventEndpoint(capture, each) for path, each in rules.items()}
    routes["/s"] = DiscardEndpoint(limits.discarded_body, limits.body_timeout_s, _OK)
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
            await _answer(send, 200, _OK, _JSON)
        elif method not in {"POST", "GET", "HEAD"}:
            await _answer(send, 405, b"method not allowed", _TEXT, [(b"allow", b"GET, POST, OPTIONS")])
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
        _EVENTS.inc(taken)
        if query.beacon:
            await _answer(send, 204, b"", None)
        else:
            await send({"type": "http.response.start", "status": 200, "headers": _OK_HEADERS})
            await send({"type": "http.response.body", "body": _OK})

    async def _read(self, scope: Scope, receive: Receive, query: Any) -> Request:
        content_type = content_encoding = b""
        forwarded: bytes | None = None
        length: bytes | None = None
        for name, value in scope["headers"]:
            if name == b"content-type":
                content_type = value
            elif name == b"content-encoding":
                content_encoding = value
            elif name == b"content-length":
                length = value
            elif name == b"x-forwarded-for" and forwarded is None:
                forwarded = value
        ip = forwarded_ip(forwarded) if forwarded else None
        if ip is None and scope.get("client"):
            ip = scope["client"][0]
        limits = self._capture.limits
        body = await read_body(receive, length, self._rules.body_limit, limits.body_timeout_s)
        return Request(body, query, content_type, content_encoding, ip)


class DiscardEndpoint:
    """A path of a product that is not here: what it gets is accepted and forgotten."""

    def __init__(self, limit_bytes: int, timeout_s: float, answer: bytes) -> None:
        self._limit = limit_bytes
        self._timeout_s = timeout_s
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["method"] == "POST":
                await read_body(receive, None, self._limit, self._timeout_s, keep=False)
            beacon = read_query(scope["query_string"]).beacon
        except Refusal as refusal:
            await _refuse(send, refusal)
        else:
            if beacon and scope["method"] != "OPTIONS":
                await _answer(send, 204, b"", None)
            else:
                await _answer(send, 200, self._answer, _JSON)


async def read_body(
    receive: Receive, length: bytes | None, limit_bytes: int, timeout_s: float, *, keep: bool = True
) -> bytes:
    """The whole body; nothing of it when ``keep`` is off.

    Raises `Refusal` 413 as soon as the limit is passed, 408 when the body does not end in time, and
    `ClientGoneError`.
    """
    if length is not None and length.isdigit() and int(length[:20]) > limit_bytes:
        raise too_large(limit_bytes)
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        if len(body) > limit_bytes:
            raise too_large(limit_bytes)
        return body
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                if message["type"] != "http.request":
                    raise ClientGoneError
                part = message.get("body", b"")
                size += len(part)
                if size > limit_bytes:
                    raise too_large(limit_bytes)
                if keep:
                    parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
                message = await receive()
    except TimeoutError:
        raise Refusal(408, "the request body did not arrive in time", 1) from None


async def _refuse(send: Send, refusal: Refusal) -> None:
    headers = []
    if refusal.retry_after_s is not None:
        headers.append((b"retry-after", str(refusal.retry_after_s).encode()))
    await _answer(send, refusal.status, refusal.reason.encode(), _TEXT, headers)


def _headers(body: bytes, media_type: bytes | None) -> list[tuple[bytes, bytes]]:
    if media_type is None:
        return []
    return [(b"content-type", media_type), (b"content-length", str(len(body)).encode())]


_OK_HEADERS = _headers(_OK, _JSON)


async def _answer(
    send: Send,
    status: int,
    body: bytes,
    media_type: bytes | None,
    headers: list[tuple[bytes, bytes]] | None = None,
) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": _headers(body, media_type) + (headers or []),
        }
    )
    await send({"type": "http.response.body", "body": body})
