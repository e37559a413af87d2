"""The memory of answers that clients do not read: a budget for all, parts and shares of it, and who is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from starlette.responses import Response
from tests.http.test_server import WAIT_S, Running
from tests.waiting import wait_for

from hoglab.http.app import PART_BYTES
from hoglab.http.management.config import HttpConfig
from hoglab.http.requests.budget import known_owner
from hoglab.http.requests.deadlines import Deadlines
from hoglab.http.requests.unread import UnreadAnswers

SIZE = 1024
TOTAL = 8 * SIZE


class Room:
    """Answers that nobody reads, and which of them are still there."""

    def __init__(self) -> None:
        self.answers = UnreadAnswers(TOTAL)
        self.tasks: list[asyncio.Task[None]] = []

    async def send(
        self, address: str = "192.0.2.1", owner: str | None = None, body: bytes | None = None
    ) -> None:
        """Begin an answer that its client does not read."""
        scope: dict[str, Any] = {"headers": [], "client": (address, 1)}
        if owner is not None:
            known_owner(scope, owner)

        async def stuck() -> None:
            with self.answers.kept(scope, bytes(SIZE) if body is None else body):
                task = asyncio.current_task()
                assert task is not None
                await Deadlines.here().within(task, asyncio.Event().wait(), WAIT_S)

        self.tasks.append(asyncio.create_task(stuck()))
        await asyncio.sleep(0)

    async def left(self) -> list[int]:
        """Return which answers are not cut off; all of them end."""
        for _ in range(3):
            await asyncio.sleep(0)
        left = [number for number, task in enumerate(self.tasks) if not task.done()]
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        assert self.answers.held == 0
        assert not self.answers._held
        assert not self.answers._uses
        return left


class TestShares:
    @pytest.mark.parametrize(
        ("address", "owner", "fits"),
        [
            (lambda _: "192.0.2.1", lambda _: None, 2),
            (lambda number: f"192.0.2.{number}", lambda _: None, 4),
            (lambda number: f"192.0.2.{number}", lambda _: "project:1", 4),
            (lambda _: "192.0.2.1", lambda number: f"project:{number}", 8),
        ],
        ids=["an address: a quarter", "strangers: a half", "a project: a half", "all"],
    )
    def test_the_oldest_of_who_has_too_much_are_cut_off(
        self, address: Callable[[int], str], owner: Callable[[int], str | None], fits: int
    ) -> None:
        async def main() -> list[int]:
            room = Room()
            for number in range(12):
                await room.send(address(number), owner(number))
                assert room.answers.held <= fits * SIZE
            return await room.left()

        assert asyncio.run(main()) == list(range(12 - fits, 12))

    def test_others_keep_theirs(self) -> None:
        async def main() -> list[int]:
            room = Room()
            await room.send(owner="project:1")
            await room.send("192.0.2.2")
            for _ in range(20):
                await room.send(owner="project:2")
            return await room.left()

        assert asyncio.run(main()) == [0, 1, 18, 19, 20, 21]

    def test_one_that_is_larger_than_all_is_sent(self) -> None:
        async def main() -> list[int]:
            room = Room()
            await room.send(owner="project:1")
            await room.send(owner="project:1", body=bytes(2 * TOTAL))
            return await room.left()

        assert asyncio.run(main()) == [1]

    def test_a_body_that_several_get_counts_once(self) -> None:
        """The schema and definitions of flags are in memory once, whoever reads them."""

        async def main() -> list[int]:
            room, body = Room(), bytes(SIZE)
            for _ in range(20):
                await room.send(body=body)
                assert room.answers.held == SIZE
            return await room.left()

        assert asyncio.run(main()) == list(range(20))


@pytest.fixture
def run(make_client: Callable[..., Any]) -> Iterator[Callable[[HttpConfig], Running]]:
    """Starts servers that have ``/large``, an answer that no buffer of the system holds, and is made each time."""
    with ExitStack() as stack:

        def start(config: HttpConfig) -> Running:
            async def large(scope: Any, receive: Any, send: Any) -> None:
                await Response(bytes(LARGE_BYTES))(scope, receive, send)

            server = Running(make_client(config, hot={"/large": large}).app, {})
            stack.callback(server.stop)
            return server.start()

        yield start


LARGE_BYTES = 16 * 1024 * 1024


def test_clients_that_do_not_read_hold_little(run: Callable[[HttpConfig], Running]) -> None:
    server = run(HttpConfig(answer_budget_bytes=8 * LARGE_BYTES, write_timeout_s=10 * WAIT_S))
    unread = server.app._unread
    most = 0
    with ExitStack() as opened:
        for _ in range(12):
            client = opened.enter_context(server.connect())
            client.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
            client.recv(1)
            most = max(most, unread.held)
        wait_for(lambda: len(server.app._in_flight) <= 2)
        last = client.recv(PART_BYTES)
    assert most == 2 * LARGE_BYTES  # the share of one address
    assert last
    wait_for(lambda: unread.held == 0)
