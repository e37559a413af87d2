"""Answers without an end: server-sent events (WHATWG HTML, section 9.2)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from hoglab.http.errors import throttled
from hoglab.http.responses import encode_json

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

EVENT_STREAM = "text/event-stream"

MAX_STREAMS = 100
"""Open-ended answers at the same time; one more is refused with 429."""
OWNER_PART = 2
"""Of these, one project has no more than this part, a half."""
BUSY_RETRY_S = 5.0
"""When a client may try again that was refused."""
HEARTBEAT_S = 15.0
"""Silence after which a comment is sent: proxies keep the connection, and a client that went away is noticed."""

_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_HEARTBEAT = b":\n\n"


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its type, its data as JSON, and the id that a client resumes after."""

    type: str
    data: Any
    id: int | None = None

    def encode(self) -> bytes:
        """The event as it goes over the wire."""
        place = b"" if self.id is None else b"id: %d\n" % self.id
        return b"%sevent: %s\ndata: %s\n\n" % (place, self.type.encode(), encode_json(self.data))


class Streams:
    """The open-ended answers of one server: how many there may be, and their common end. For one event loop."""

    def __init__(self, *, limit: int = MAX_STREAMS, heartbeat_s: float = HEARTBEAT_S) -> None:
        self.heartbeat_s = heartbeat_s
        self._limit = limit
        self._open: set[_EventStream] = set()
        self._closed = False

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    def response(self, events: AsyncGenerator[ServerEvent, None], owner: str) -> Response:
        """An answer that sends events as they come, until the client leaves or the server stops.

        ``events`` is closed then; ``owner``: on whose account. Raises 429 when there are too many.
        """
        of_owner = sum(each.owner == owner for each in self._open)
        if self._closed or len(self._open) >= self._limit or of_owner >= math.ceil(self._limit / OWNER_PART):
            raise throttled(BUSY_RETRY_S)
        stream = _EventStream(events, owner, self.heartbeat_s, done=self._open.discard)
        self._open.add(stream)
        return stream

    def close(self) -> None:
        """End all of them: the server is stopping."""
        self._closed = True
        for stream in self._open:
            stream.end()


class _EventStream(Response):
    media_type = EVENT_STREAM

    def __init__(
        self,
        events: AsyncGenerator[ServerEvent, None],
        owner: str,
        heartbeat_s: float,
        *,
        done: Callable[[_EventStream], None],
    ) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self.owner = owner
        self._events = events
        self._heartbeat_s = heartbeat_s
        self._done = done
        self._ending = asyncio.Event()

    def end(self) -> None:
        self._ending.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        over: set[asyncio.Future[Any]] = {
            asyncio.ensure_future(self._ending.wait()),
            asyncio.ensure_future(_disconnect(receive)),
        }
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await self._send_events(send, over)
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._done(self)
            for each in over:
                each.cancel()
            await self._events.aclose()

    async def _send_events(self, send: Send, over: set[asyncio.Future[Any]]) -> None:
        coming: asyncio.Future[ServerEvent] | None = None
        chunk = _HEARTBEAT  # tells the client at once that it is connected
        try:
            while not any(each.done() for each in over):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                coming = coming or asyncio.ensure_future(anext(self._events))
                await asyncio.wait(
                    {coming, *over}, timeout=self._heartbeat_s, return_when=asyncio.FIRST_COMPLETED
                )
                chunk = _HEARTBEAT
                if coming.done():
                    chunk, coming = coming.result().encode(), None
        except StopAsyncIteration:
            coming = None
        finally:
            if coming is not None:  # or the generator could not be closed
                coming.cancel()
                await asyncio.wait({coming})


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
