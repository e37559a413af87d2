"""``POST /i/v1/analytics/events`` as a plain ASGI app (spec: sdk-wire 1.15)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from hoglab.capture.refusal import Refusal
from hoglab.capture.routes import EVENTS, OK, read_whole, refuse_method
from hoglab.capture.v1 import RETRY_AFTER_S, V1Refusal, read_head, too_large
from hoglab.http.requests.body import discard_body
from hoglab.http.requests.client_ip import client_ip
from hoglab.http.responses import JSON, send_answer

if TYPE_CHECKING:
    from hoglab.capture.routes import Receive, Scope, Send
    from hoglab.capture.service import Capture

V1_PATH = "/i/v1/analytics/events"

_DOCUMENTATION = "https://posthog.com/docs/api"
_RETRIED = frozenset((408, 429, 500, 502, 503, 504))
_REQUEST_ID = b"posthog-request-id"


class V1Endpoint:
    """Endpoint that takes batches and answers with the outcome of each event."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        if method == "OPTIONS":
            await send_answer(send, 200, OK, JSON)
        elif method != "POST":
            await refuse_method(send, b"POST, OPTIONS")
        else:
            await self._take(scope, receive, send)

    async def _take(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        echoed = [(_REQUEST_ID, headers[_REQUEST_ID])] if _REQUEST_ID in headers else []
        try:
            head = read_head(headers)
            self._capture.recognise(head, scope)
        except V1Refusal as refusal:
            scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").strip().partition(" ")
            if scheme.lower() == "bearer":
                self._tell(token.strip(), scope, refusal)
            await discard_body(scope, receive)
            await _refuse(send, refusal, echoed)
            return
        try:
            limits = self._capture.limits
            raw = await self._read(scope, receive, limits.v1_wire_body, limits.body_timeout_s)
            batch = await self._capture.accept_v1(raw, head, ip=client_ip(scope), scope=scope)
        except V1Refusal as refusal:
            self._tell(head.token, scope, refusal)
            await _refuse(send, refusal, echoed)
            return
        except Refusal as refusal:
            known = V1Refusal(refusal.status, "service_unavailable", refusal.reason, closes=refusal.closes)
            await _refuse(send, known, echoed, retry_after_s=refusal.retry_after_s)
            return
        EVENTS.inc(batch.accepted)
        await send_answer(send, 200, orjson.dumps({"results": batch.results}), JSON, echoed)

    def _tell(self, token: str, scope: Scope, refusal: V1Refusal) -> None:
        self._capture.tell([token], scope, refusal.status, refusal.description)

    async def _read(self, scope: Scope, receive: Receive, limit_bytes: int, timeout_s: float) -> bytes:
        try:
            return await read_whole(scope, receive, limit_bytes, timeout_s)
        except Refusal as refusal:
            if refusal.status == 503:
                raise
            if refusal.status == 413:
                raise too_large(limit_bytes) from None
            tag = "body_read_timeout" if refusal.status == 408 else "request_decoding_error"
            raise V1Refusal(refusal.status, tag, refusal.reason, closes=True) from None


async def _refuse(
    send: Send,
    refusal: V1Refusal,
    headers: list[tuple[bytes, bytes]],
    *,
    retry_after_s: int | None = None,
) -> None:
    body: dict[str, Any] = {
        "error": refusal.tag,
        "error_description": refusal.description,
        "error_uri": _DOCUMENTATION,
    }
    if refusal.status in _RETRIED:
        headers = [*headers, (b"retry-after", b"%d" % (retry_after_s or RETRY_AFTER_S))]
    if refusal.closes:
        headers = [*headers, (b"connection", b"close")]
    await send_answer(send, refusal.status, orjson.dumps(body), JSON, headers)
