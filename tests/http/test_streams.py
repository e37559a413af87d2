"""Answers without an end: how they begin, and every way they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from tests.waiting import PATIENCE_S

from hoglab.fairness.fair_semaphore import Holder
from hoglab.http.errors import ApiError
from hoglab.http.streams import MAX_WAITING, MAX_WAITING_BYTES, EventStream, Follower, ServerEvent, Streams


class Client:
    """One request for a stream, as an ASGI server would pass it on."""

    def __init__(
        self,
        streams: Streams,
        events: AsyncGenerator[ServerEvent, None],
        method: str,
        owner: str,
        member: str | None,
    ) -> None:
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._gone = asyncio.Event()
        response = streams.response(events, Holder(owner, member))
        self.task = asyncio.create_task(
            response({"type": "http", "method": method}, self._receive, self._send)
        )

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        await self.sent.put(message)

    async def next(self) -> Any:
        return await asyncio.wait_for(self.sent.get(), PATIENCE_S)

    def hang_up(self) -> None:
        self._gone.set()


class Source:
    """Events that a test makes; knows whether it was closed."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[ServerEvent | Exception | None] = asyncio.Queue()
        self.closed = False

    async def events(self) -> AsyncGenerator[ServerEvent, None]:
        try:
            while (event := await self.queue.get()) is not None:
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.closed = True


async def opened(
    streams: Streams, source: Source, method: str = "GET", owner: str = "a", member: str | None = None
) -> Client:
    client = Client(streams, source.events(), method, owner, member)
    start = await client.next()
    headers = dict(start["headers"])
    assert (start["status"], headers[b"content-type"]) == (200, b"text/event-stream; charset=utf-8")
    assert b"content-length" not in headers
    if method == "GET":
        assert await client.next() == {"type": "http.response.body", "body": b":\n\n", "more_body": True}
    return client


def run(story: Any) -> None:
    asyncio.run(asyncio.wait_for(story, PATIENCE_S))


def test_events_are_sent_as_they_come_until_there_are_no_more() -> None:
    async def story() -> None:
        streams, source = Streams(), Source()
        client = await opened(streams, source)
        source.queue.put_nowait(ServerEvent("log", {"message": "a\nb", "n": 1}, id=7))
        assert (await client.next())["body"] == b'id: 7\nevent: log\ndata: {"message":"a\\nb","n":1}\n\n'
        source.queue.put_nowait(None)
        assert await client.next() == {"type": "http.response.body", "body": b""}
        await client.task
        assert (source.closed, streams.count) == (True, 0)

    run(story())


def test_silence_is_broken_by_comments() -> None:
    async def story() -> None:
        streams, source = Streams(heartbeat_s=0.01), Source()
        client = await opened(streams, source)
        for _ in range(3):
            assert (await client.next())["body"] == b":\n\n"
        client.hang_up()
        await client.task

    run(story())


@pytest.mark.parametrize(
    "leave",
    [
        lambda client, _: client.hang_up(),
        lambda _, streams: streams.close(),
        lambda client, _: client.task.cancel(),
    ],
    ids=["the client leaves", "the server stops", "the server is in haste"],
)
def test_it_ends(leave: Callable[[Client, Streams], None]) -> None:
    async def story() -> None:
        streams, source = Streams(), Source()
        client = await opened(streams, source)
        source.queue.put_nowait(ServerEvent("log", 1))
        await client.next()
        leave(client, streams)
        await asyncio.wait({client.task})
        assert (source.closed, streams.count) == (True, 0)

    run(story())


def test_a_source_that_fails_ends_the_answer() -> None:
    async def story() -> None:
        streams, source = Streams(), Source()
        client = await opened(streams, source)
        source.queue.put_nowait(ZeroDivisionError())
        with pytest.raises(ZeroDivisionError):
            await client.task
        assert (source.closed, streams.count) == (True, 0)

    run(story())


def test_head_is_answered_without_events() -> None:
    async def story() -> None:
        streams, source = Streams(), Source()
        client = await opened(streams, source, "HEAD")
        assert await client.next() == {"type": "http.response.body", "body": b""}
        await client.task
        assert streams.count == 0

    run(story())


def test_there_is_a_limit_and_a_closed_server_takes_none() -> None:
    async def story() -> None:
        streams, source = Streams(limit=1), Source()
        client = await opened(streams, source)
        for _ in range(2):
            with pytest.raises(ApiError) as refused:
                streams.response(Source().events(), Holder("a"))
            assert (refused.value.status, refused.value.headers["Retry-After"]) == (429, "5")
            streams.close()
        await client.task

    run(story())


def test_one_project_leaves_some_of_them_to_others() -> None:
    async def story() -> None:
        streams = Streams(limit=4)
        clients = [await opened(streams, Source(), owner="a") for _ in range(3)]
        with pytest.raises(ApiError):
            streams.response(Source().events(), Holder("a"))
        clients += [await opened(streams, Source(), owner="b")]
        clients[0].hang_up()
        await clients[0].task
        clients.append(await opened(streams, Source(), owner="c"))
        with pytest.raises(ApiError):
            streams.response(Source().events(), Holder("b"))
        streams.close()
        await asyncio.gather(*(client.task for client in clients))

    run(story())


def test_a_key_leaves_streams_to_the_other_keys_of_its_project() -> None:
    async def story() -> None:
        streams = Streams(limit=30)
        clients = [await opened(streams, Source(), owner="a", member="one key") for _ in range(10)]
        with pytest.raises(ApiError, match="throttled"):
            streams.response(Source().events(), Holder("a", "one key"))
        others = [("a", "another key"), ("a", "a third key"), ("b", "a key")]
        clients += [await opened(streams, Source(), owner=owner, member=member) for owner, member in others]
        streams.close()
        await asyncio.gather(*(client.task for client in clients))

    run(story())


def test_who_may_no_longer_have_it_is_asked_now_and_then() -> None:
    async def story() -> None:
        streams, source = Streams(recheck_s=0.01), Source()
        answers = [True, True, False]

        async def is_allowed() -> bool:
            return answers.pop(0)

        response = streams.response(source.events(), Holder("a"))
        assert isinstance(response, EventStream)
        response.is_allowed = is_allowed
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        await response({"type": "http", "method": "GET"}, asyncio.Event().wait, send)
        assert (answers, source.closed, streams.count) == ([], True, 0)
        assert [each.get("body") for each in sent] == [None, b":\n\n", b""], "and nobody is told of it"

    run(story())


class TestSlowFollowers:
    """Events that wait for a client that does not read."""

    @pytest.mark.parametrize("size", [0, 1_000, 10_000, 900_000, 8_000_000])
    def test_they_keep_the_newest_events_of_any_size_in_bounded_memory(self, size: int) -> None:
        async def story() -> None:
            follower = Follower(0)
            count = 2 * MAX_WAITING if size < 10_000 else 40 * MAX_WAITING_BYTES // size + 3
            for number in range(count):
                follower.offer(ServerEvent("event", "x" * size, id=number))
                held = sum(len(event.encoded) for event in follower.waiting)
                assert held == follower.waiting_bytes
                assert len(follower.waiting) == 1 or held <= MAX_WAITING_BYTES
            assert follower.skipped + len(follower.waiting) == count
            assert follower.skipped > 0
            assert follower.waiting[-1].id == count - 1
            while follower.waiting:
                follower.take()
            assert follower.waiting_bytes == 0

        run(story())

    def test_missed_events_count_too(self) -> None:
        async def story() -> None:
            follower = Follower(0)
            large = [ServerEvent("event", "x" * 500_000, id=number) for number in range(10)]
            follower.offer(ServerEvent("event", "new", id=10))
            follower.offer_missed(large, left_out=5)
            assert follower.waiting_bytes <= MAX_WAITING_BYTES
            assert follower.skipped + len(follower.waiting) == 16
            assert [event.id for event in follower.waiting] == [6, 7, 8, 9, 10]

        run(story())
