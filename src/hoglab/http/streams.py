"""Answers without an end: server-sent events (WHATWG HTML, section 9.2), and feeds of what is new."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from starlette.responses import Response

from hoglab.fairness.fair_semaphore import FairSemaphore, Holder, Place
from hoglab.http.errors import throttled
from hoglab.http.responses import encode_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import Receive, Scope, Send

EVENT_STREAM = "text/event-stream"

MAX_STREAMS = 100
"""Open-ended answers at the same time; one more is refused with 429. A project that is alone leaves a quarter; one key
has a third at most."""
BUSY_RETRY_S = 5.0
"""Value of ``Retry-After`` for a client that was refused."""
HEARTBEAT_S = 15.0
"""Silence after which a comment is sent: proxies keep the connection, and a client that went away is noticed."""

RECHECK_S = 5.0
"""Interval at which the client's permission is checked again: keys are revoked, sessions end."""

POLL_S = 0.5
"""Interval at which new events are looked for while somebody follows."""
MAX_WAITING = 1_000
"""Events kept for a follower that is slow to take them; older ones are skipped, and it is told how many."""
MAX_WAITING_BYTES = 2 * 1024 * 1024
"""Size of the events kept for a slow follower, as they are sent; the newest is always kept."""

_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_HEARTBEAT = b":\n\n"


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its type, its data as JSON, and the id that a client resumes after."""

    type: str
    data: Any
    id: int | None = None
    encoded: bytes = field(init=False, repr=False, compare=False)
    """The event in the form of the protocol, which all of its followers share."""

    def __post_init__(self) -> None:
        place = b"" if self.id is None else b"id: %d\n" % self.id
        encoded = b"%sevent: %s\ndata: %s\n\n" % (place, self.type.encode(), encode_json(self.data))
        object.__setattr__(self, "encoded", encoded)


class Streams:
    """The open-ended answers of one server: how many there may be, and their common end. For one event loop."""

    def __init__(
        self, *, limit: int = MAX_STREAMS, heartbeat_s: float = HEARTBEAT_S, recheck_s: float = RECHECK_S
    ) -> None:
        self.heartbeat_s = heartbeat_s
        self.recheck_s = recheck_s
        self._places = FairSemaphore(limit)
        self._open: set[EventStream] = set()
        self._closed = False

    @property
    def count(self) -> int:
        """Number of open streams."""
        return len(self._open)

    def response(self, events: AsyncGenerator[ServerEvent, None], holder: Holder) -> Response:
        """Return an answer that sends events as they come, until the client leaves or the server stops.

        ``events`` is closed then; ``holder``: on whose account. Raises 429 when there are too many.
        """
        place = None if self._closed else self._places.try_enter("", holder)
        if place is None:
            raise throttled(BUSY_RETRY_S)
        stream = EventStream(events, self.heartbeat_s, self.recheck_s, done=partial(self._ended, place))
        self._open.add(stream)
        return stream

    def close(self) -> None:
        """End all streams: the server is stopping."""
        self._closed = True
        for stream in self._open:
            stream.end()

    def _ended(self, place: Place, stream: EventStream) -> None:
        self._open.discard(stream)
        self._places.leave(place)


class EventStream(Response):
    """An answer of `Streams`. ``is_allowed``: asked now and then, whether its client still may have it."""

    media_type = EVENT_STREAM
    is_allowed: Callable[[], Awaitable[bool]] | None = None

    def __init__(
        self,
        events: AsyncGenerator[ServerEvent, None],
        heartbeat_s: float,
        recheck_s: float,
        *,
        done: Callable[[EventStream], None],
    ) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._events = events
        self._heartbeat_s = heartbeat_s
        self._recheck_s = recheck_s
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
            for task in over:
                task.cancel()
            await self._events.aclose()

    async def _send_events(self, send: Send, over: set[asyncio.Future[Any]]) -> None:
        coming: asyncio.Future[ServerEvent] | None = None
        chunk = _HEARTBEAT  # tells the client at once that it is connected
        loop = asyncio.get_running_loop()
        silent_since = checked_at = loop.time()
        try:
            while not any(future.done() for future in over):
                if chunk:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                    silent_since, chunk = loop.time(), b""
                coming = coming or asyncio.ensure_future(anext(self._events))
                due = min(silent_since + self._heartbeat_s, checked_at + self._recheck_s)
                await asyncio.wait(
                    {coming, *over}, timeout=due - loop.time(), return_when=asyncio.FIRST_COMPLETED
                )
                if loop.time() >= checked_at + self._recheck_s:
                    if self.is_allowed is not None and not await self.is_allowed():
                        return
                    checked_at = loop.time()
                if coming.done():
                    chunk, coming = coming.result().encoded, None
                elif loop.time() >= silent_since + self._heartbeat_s:
                    chunk = _HEARTBEAT
        except StopAsyncIteration:
            coming = None
        finally:
            if coming is not None:  # or the generator could not be closed
                coming.cancel()
                await asyncio.wait({coming})


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass(eq=False)
class Follower:
    """A follower of a feed. Data up to ``began_at``, a place of the feed's own, is not new to it."""

    began_at: int
    waiting: deque[ServerEvent] = field(default_factory=deque)
    waiting_bytes: int = 0
    skipped: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, event: ServerEvent) -> None:
        """Queue an event. The oldest are dropped where too much waits; those with an id are counted."""
        self.waiting.append(event)
        self.waiting_bytes += len(event.encoded)
        self._skip_oldest()
        self.news.set()

    def take(self) -> ServerEvent:
        """Return the oldest event that waits, which waits no longer."""
        event = self.waiting.popleft()
        self.waiting_bytes -= len(event.encoded)
        return event

    def _skip_oldest(self) -> None:
        while len(self.waiting) > 1 and (
            len(self.waiting) > MAX_WAITING or self.waiting_bytes > MAX_WAITING_BYTES
        ):
            self.skipped += self.take().id is not None

    def offer_missed(self, events: Sequence[ServerEvent], left_out: int) -> None:
        """Put missed events before those that have arrived since. ``left_out``: how many more were missed."""
        self.waiting.extendleft(reversed(events))
        self.waiting_bytes += sum(len(event.encoded) for event in events)
        self.skipped += left_out
        self._skip_oldest()
        self.news.set()


FollowerT = TypeVar("FollowerT", bound=Follower)


class LiveFeed(ABC, Generic[FollowerT]):
    """Reads new data once for all followers, and only while there are any. For one event loop."""

    def __init__(self, poll_s: float) -> None:
        self._poll_s = poll_s
        self._followers: set[FollowerT] = set()
        self._reader: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()

    @property
    def followers(self) -> int:
        """Number of followers."""
        return len(self._followers)

    @property
    def is_reading(self) -> bool:
        """Whether new data is being looked for."""
        return self._reader is not None and not self._reader.done()

    @abstractmethod
    async def _begin(self) -> None:
        """Begin with the first follower: existing data is not new."""

    @abstractmethod
    async def _look(self) -> None:
        """Give the followers new data. It may not raise, for the next look does it again."""

    @abstractmethod
    async def _catch_up(self, follower: FollowerT, after: int) -> None:
        """Give a follower the data between a place and the one where it began."""

    async def _follow(
        self, begin: Callable[[], FollowerT], after: int | None
    ) -> AsyncGenerator[ServerEvent, None]:
        """Yield new events from now on, without end, or from behind the place ``after``; ``begin`` makes the follower.

        Further events are ``skipped``, with the ``count`` of events that came faster than they were read.
        """
        follower = await self._added(begin)
        try:
            if after is not None and after < follower.began_at:
                await self._catch_up(follower, after)
            while True:
                await follower.news.wait()
                follower.news.clear()
                if follower.skipped:
                    count, follower.skipped = follower.skipped, 0
                    yield ServerEvent("skipped", {"count": count})
                while follower.waiting:
                    yield follower.take()
        finally:
            self._followers.discard(follower)

    async def _added(self, begin: Callable[[], FollowerT]) -> FollowerT:
        async with self._looking:  # or it would miss the events that are being read
            if not self.is_reading:
                await self._begin()
                self._reader = asyncio.create_task(self._run())
            follower = begin()
            self._followers.add(follower)
            return follower

    async def _run(self) -> None:
        """Look for news repeatedly, until no follower is left."""
        while True:
            await asyncio.sleep(self._poll_s)
            if not self._followers:
                return
            async with self._looking:
                await self._look()
