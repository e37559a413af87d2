"""Requests to an application without a network, told message by message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

Headers = Iterable[tuple[bytes, bytes]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


@dataclass
class Answer:
    """What came back, and how many messages of the body were asked for."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    asked: int = 0


async def ask(
    app: Any,
    method: str,
    path: str,
    headers: Headers = (),
    *,
    query: bytes = b"",
    body: Iterable[bytes] = (),
    is_whole: bool = True,
    client: tuple[str, int] = ("192.0.2.1", 5000),
) -> Answer:
    """Send a request with a body in these parts; unless ``is_whole``, more is promised and never comes."""
    answer = Answer()
    sent, parts = list(headers), iter(body)
    if (body or not is_whole) and not any(name == b"content-length" for name, _ in sent):
        sent.append((b"transfer-encoding", b"chunked"))

    async def receive() -> dict[str, Any]:
        answer.asked += 1
        part = next(parts, None)
        if part is None:
            if not is_whole or answer.status:
                await asyncio.Event().wait()
            return {"type": "http.request", "body": b"", "more_body": False}
        return {"type": "http.request", "body": part, "more_body": True}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            answer.body += message.get("body", b"")

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query,
        "headers": [
            *([] if any(name == b"host" for name, _ in sent) else [(b"host", b"hoglab.test")]),
            *sent,
        ],
        "client": client,
        "server": ("127.0.0.1", 8000),
    }
    await app(scope, receive, send)
    return answer
