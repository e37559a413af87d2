"""Following the log of a function, over a real server and by itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.contract.rules import rule
from tests.embedded import EmbeddedQueueTables
from tests.waiting import PATIENCE_S

from hoglab.delivery.runs import live_logs
from hoglab.delivery.runs.live_logs import LiveLogs
from hoglab.demo.server import ChildServer
from hoglab.http import streams
from hoglab.http.streams import ServerEvent
from hoglab.storage.database import Database, tables
from hoglab.storage.invocations import InvocationQueue, LogEntry, LogQuery, RunStore
from hoglab.storage.invocations.sql import stores_of

FUNCTION = "0199a3d4-0000-7000-8000-000000000001"
OTHER = "0199a3d4-0000-7000-8000-000000000002"


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[InvocationQueue]:
    Database.open(tmp_path / "queue.db", tables.queue_metadata).dispose()
    queue = InvocationQueue(EmbeddedQueueTables(tmp_path / "queue.db"))
    yield queue
    queue.close()


@pytest.fixture
def store(queue: InvocationQueue, tmp_path: Path) -> Iterator[RunStore]:
    database = Database.open(tmp_path / "queue.db", tables.queue_metadata)
    yield stores_of(queue, database).runs
    database.dispose()


def entry(message: str, function: str = FUNCTION, level: str = "info", run: str = "r1") -> LogEntry:
    at = datetime(2026, 1, 5, 10, tzinfo=UTC)
    return LogEntry(1, function, run, at, level, message)


class Reader:
    """Takes events of one follower."""

    def __init__(self, events: AsyncGenerator[ServerEvent, None]) -> None:
        self.events = events
        self.next = asyncio.ensure_future(anext(events))

    async def take(self) -> ServerEvent:
        event = await asyncio.wait_for(self.next, PATIENCE_S)
        self.next = asyncio.ensure_future(anext(self.events))
        return event

    async def messages(self, count: int) -> list[str]:
        return [(await self.take()).data["message"] for _ in range(count)]

    async def close(self) -> None:
        self.next.cancel()
        await asyncio.wait({self.next})
        await self.events.aclose()


Story = Callable[[LiveLogs], Any]


def run(store: RunStore, story: Story) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(story(LiveLogs(store, poll_s=0.01)), PATIENCE_S)

    asyncio.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the product has no event for it
        await asyncio.sleep(0.005)


async def following(live: LiveLogs, count: int) -> None:
    await until(lambda: live.followers == count)


@rule("X5.1")
def test_each_follower_gets_its_own_lines_in_order(queue: InvocationQueue, store: RunStore) -> None:
    async def story(live: LiveLogs) -> None:
        queue.write_logs([entry("before")])
        all_lines = Reader(live.follow(1, FUNCTION, LogQuery()))
        errors = Reader(live.follow(1, FUNCTION, LogQuery(levels=["ERROR"], search="BAD", instance_id="r2")))
        other = Reader(live.follow(1, OTHER, LogQuery()))
        foreign = Reader(live.follow(2, FUNCTION, LogQuery()))
        await following(live, 4)
        queue.write_logs([entry("one"), entry("theirs", OTHER), entry("a bad one", level="error")])
        queue.write_logs([entry("a bad one", level="error", run="r2"), entry("last")])
        queue.write_logs([entry("end", OTHER)])
        assert await all_lines.messages(4) == ["one", "a bad one", "a bad one", "last"]
        assert (await errors.take()).data["instance_id"] == "r2"
        assert await other.messages(2) == ["theirs", "end"]
        assert not foreign.next.done()
        for reader in (all_lines, errors, other, foreign):
            await reader.close()

    run(store, story)


@rule("X5.1")
def test_what_was_missed_comes_first_and_nothing_twice(
    queue: InvocationQueue, store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_logs, "BATCH_LINES", 3)

    async def story(live: LiveLogs) -> None:
        queue.write_logs([entry(str(number)) for number in range(10)])
        reader = Reader(live.follow(1, FUNCTION, LogQuery(), after_id=2))
        first = await reader.take()
        assert (first.id, first.data["message"]) == (3, "2")
        queue.write_logs([entry(str(number)) for number in range(10, 20)])
        assert await reader.messages(17) == [str(number) for number in range(3, 20)]
        assert not reader.next.done()
        await reader.close()

    run(store, story)


@rule("X5.1")
def test_a_slow_follower_is_told_what_it_missed(
    queue: InvocationQueue, store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MAX_WAITING", 5)

    async def story(live: LiveLogs) -> None:
        reader = Reader(live.follow(1, FUNCTION, LogQuery()))
        await following(live, 1)
        queue.write_logs([entry(str(number)) for number in range(12)])
        event = await reader.take()
        assert (event.type, event.data, event.id) == ("skipped", {"count": 7}, None)
        assert await reader.messages(5) == ["7", "8", "9", "10", "11"]
        await reader.close()

    run(store, story)


def test_reading_stops_with_the_last_follower_and_begins_again(
    queue: InvocationQueue, store: RunStore
) -> None:
    async def story(live: LiveLogs) -> None:
        for _ in range(2):
            reader = Reader(live.follow(1, FUNCTION, LogQuery()))
            await following(live, 1)
            queue.write_logs([entry("now")])
            assert await reader.messages(1) == ["now"]
            await reader.close()
            await until(lambda: not live.is_reading)
            queue.write_logs([entry("while nobody looked")])

    run(store, story)


# --- over a real server


@rule("X5.1")
def test_a_stream_over_http_ends_in_order_with_the_server(start_server: Callable[..., ChildServer]) -> None:
    server = start_server()
    headers = {"Authorization": f"Bearer {server.api_key}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE_S) as client:
        base = "/api/projects/1/hog_functions/"
        body = {"type": "destination", "name": "printer", "hog": "print(event.event)", "enabled": True}
        function = client.post(base, json=body).raise_for_status().json()["id"]
        missing = client.get(f"{base}{OTHER}/logs/tail/")
        assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
        with client.stream("GET", f"{base}{function}/logs/tail/", params={"level": "info"}) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = stream.iter_lines()
            assert next(lines) == ":"
            event = {"api_key": server.project_token, "event": "hello", "distinct_id": "d"}
            httpx.post(f"{server.url}/capture/", json=event).raise_for_status()
            data = next(line for line in lines if line.startswith("data: "))
            assert json.loads(data.removeprefix("data: "))["message"] == "hello"
            server.stop()
            assert list(lines)[-1] == ""  # the answer is whole
    assert "requests_aborted" not in server.output()
