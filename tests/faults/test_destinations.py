"""Destinations that misbehave: every invocation reaches a final state, and repeats can be recognised."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from tests.delivery.conftest import House, stored
from tests.waiting import wait_for

from hoglab.delivery.execution.retries import RetryPolicy
from hoglab.delivery.outbound.fetch import FetchLimits

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter, int], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def response(status: int, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", "Content-Length: 0", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


class RawServer:
    """A server below HTTP: it reads requests and does with the connection as it is told."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.answer: Answer = self.say(OK)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        start = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(start, self._loop).result(10)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/"

    @staticmethod
    def say(*answers: bytes) -> Answer:
        """One answer after the other, the last one for all further requests."""

        async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
            writer.write(answers[min(number, len(answers) - 1)])
            await writer.drain()

        return answer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
                headers = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
                await reader.readexactly(int(headers.get("content-length", 0)))
                number = len(self.keys)
                self.keys.append(headers["idempotency-key"])
                await self.answer(reader, writer, number)
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@pytest.fixture
def server() -> Iterator[RawServer]:
    server = RawServer()
    yield server
    server.close()


@pytest.fixture
def impatient(house: House) -> House:
    """Waits a moment only for destinations, and for retries."""
    house.close()
    house.options["fetch"] = FetchLimits(total_s=0.5, connect_s=0.5)
    house.options["retries"] = RetryPolicy(step_s=0.02, jitter_s=0.01, max_retry_after_s=0.3)
    house.open()
    return house


def run(house: House, server: RawServer, count: int = 1) -> Counter[str]:
    """Send that many events; how their invocations ended. Nothing may be left over."""
    house.create("print(fetch(inputs.url, {'body': event.uuid}).status)", values={"url": server.url})
    house.dispatch(*(stored() for _ in range(count)))
    house.delivery.start()
    wait_for(lambda: house.queue.counts.backlog() == 0)
    results = house.results()
    assert len(results) == count
    # A repeated request has the key of the first one, and no two invocations share one.
    assert set(server.keys) == {f"{result['invocation_id']}-0" for result in results}
    return Counter(result["status"] for result in results)


@pytest.mark.faults
def test_one_that_hangs(impatient: House, server: RawServer) -> None:
    async def hang(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _number: int) -> None:
        await asyncio.sleep(3600)

    server.answer = hang
    assert run(impatient, server, 3) == {"failed": 3}
    assert len(server.keys) == 9
    assert {result["error_kind"] for result in impatient.results()} == {"timeout"}


@pytest.mark.faults
def test_one_that_drips(impatient: House, server: RawServer) -> None:
    async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _number: int) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    server.answer = drip
    assert run(impatient, server) == {"failed": 1}
    assert len(server.keys) == 3


@pytest.mark.faults
def test_one_that_resets_connections(impatient: House, server: RawServer) -> None:
    async def reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        if number % 4:
            writer.write(OK)
            await writer.drain()
        else:
            writer.transport.abort()

    server.answer = reset
    assert run(impatient, server, 40) == {"succeeded": 40}


@pytest.mark.faults
def test_one_that_always_resets(impatient: House, server: RawServer) -> None:
    async def reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _number: int) -> None:
        writer.transport.abort()

    server.answer = reset
    assert run(impatient, server) == {"failed": 1}


@pytest.mark.faults
def test_one_that_closes_connections_that_were_to_be_kept(impatient: House, server: RawServer) -> None:
    async def close(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _number: int) -> None:
        writer.write(OK)  # says nothing of closing
        await writer.drain()
        writer.close()

    server.answer = close
    assert run(impatient, server, 60) == {"succeeded": 60}


@pytest.mark.faults
def test_one_that_answers_with_a_hundred_megabytes(impatient: House, server: RawServer) -> None:
    sent = 0

    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _number: int) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n")
        for _ in range(100):
            writer.write(b"x" * (1 << 20))
            await writer.drain()
            sent += 1 << 20

    server.answer = flood
    assert run(impatient, server) == {"succeeded": 1}
    assert sent < 50 << 20  # the rest was not read
    warned = impatient.rows("log_entry", "message", "id")
    assert ("The response was too large; the rest of its body was cut off.",) in warned


@pytest.mark.faults
def test_one_that_flips_between_failure_and_success(impatient: House, server: RawServer) -> None:
    async def flip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(response(500) if number % 2 else OK)
        await writer.drain()

    server.answer = flip
    assert sum(run(impatient, server, 40).values()) == 40


@pytest.mark.faults
@pytest.mark.parametrize(
    "asked",
    [
        pytest.param("Retry-After: 1", id="seconds"),
        pytest.param(
            "Retry-After: " + format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True), id="date"
        ),
        pytest.param("Retry-After: 99999999999999999999", id="far too long"),
        pytest.param("Retry-After: soon", id="nonsense"),
        pytest.param("X-Nothing: 1", id="none"),
    ],
)
def test_one_that_asks_to_wait(impatient: House, server: RawServer, asked: str) -> None:
    server.answer = server.say(response(429, asked), OK)
    assert run(impatient, server) == {"succeeded": 1}
    assert len(server.keys) == 2
