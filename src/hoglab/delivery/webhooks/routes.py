"""The public address of webhooks, as a plain ASGI app (spec: hog-functions-api 2, hog-runtime 7.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route

from hoglab.delivery.execution import WEBHOOK_PATH
from hoglab.delivery.webhooks.incoming import BROKEN, CROWDED, TOO_LARGE, TOO_SLOW, IncomingRequest, Reply
from hoglab.http.errors import ApiError
from hoglab.http.requests.body import read_body
from hoglab.http.requests.budget import known_owner
from hoglab.http.requests.client_ip import client_ip
from hoglab.http.responses import send_answer

if TYPE_CHECKING:
    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

    from hoglab.delivery.webhooks.incoming import Webhooks

METHODS = ("GET", "POST")
_UNREAD = {400: BROKEN, 408: TOO_SLOW, 413: TOO_LARGE, 503: CROWDED}


def webhook_routes(webhooks: Webhooks) -> list[BaseRoute]:
    """Return the app of everything below `WEBHOOK_PATH`; no key is needed."""
    return [Route(f"{WEBHOOK_PATH}{{address:path}}", WebhookEndpoint(webhooks))]


class WebhookEndpoint:
    """Passes whole requests to functions."""

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in METHODS:
            reply = await self._reply(scope, receive)
        else:
            reply = Reply.json(405, {"error": "Method not allowed"}, allow=", ".join(METHODS))
        await _send(send, reply)

    async def _reply(self, scope: Scope, receive: Receive) -> Reply:
        limits = self._webhooks.limits
        address = scope["path_params"]["address"].rstrip("/")
        try:
            if (owner := self._webhooks.owner_of(address)) is not None:
                known_owner(scope, owner)
            body = await read_body(scope, receive, limits.body, limits.body_timeout_s)
        except ApiError as error:
            return _UNREAD[error.status]
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        query = scope["query_string"].decode("latin-1")
        request = IncomingRequest(scope["method"], headers, query, body, client_ip(scope))
        return await self._webhooks.answer(address, request)


async def _send(send: Send, reply: Reply) -> None:
    media_type = reply.content_type
    if media_type is not None and media_type.startswith("text/"):
        media_type += "; charset=utf-8"
    headers = [(name.encode(), text.encode()) for name, text in reply.headers.items()]
    await send_answer(send, reply.status, reply.body, media_type, headers)
