"""What a destination may say, and what becomes of the connection (RFC 9112), against servers below HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generated import examples
from tests.waiting import PATIENCE_S

from hoglab.delivery.outbound import connections
from hoglab.delivery.outbound.addresses import AddressGuard
from hoglab.delivery.outbound.fetch import (
    NOBODY,
    Fetcher,
    FetchFailure,
    FetchLimits,
    FetchRequest,
    FetchResponse,
)

LIMITS = FetchLimits(total_s=10.0, max_head_bytes=4_000, max_response_bytes=50_000)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
SECRET = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled"

Serve = Callable[["Peer"], Awaitable[None]]


class Peer:
    """The other side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def request(self) -> bytes:
        """The head of the next request, after its body. Raises `asyncio.IncompleteReadError` at the end."""
        head = await self.head()
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                await self._reader.readexactly(int(line.partition(b":")[2]))
        return head

    async def head(self) -> bytes:
        return await self._reader.readuntil(b"\r\n\r\n")

    async def say(self, text: bytes) -> None:
        self._writer.write(text)
        await self._writer.drain()

    async def end(self) -> None:
        """Wait until this connection is closed by the client."""
        while await self._reader.read(65_536):
            pass


class Server:
    def __init__(self, serve: Serve) -> None:
        self.connections = 0
        self.open = 0
        self.most_open = 0
        self.changed = asyncio.Condition()
        self.url = ""
        self._serve = serve

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await self._serve(Peer(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self.open -= 1
            async with self.changed:
                self.changed.notify_all()

    async def until_open(self, number: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.open == number)


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[Server]:
    server = Server(serve)
    listening = await asyncio.start_server(server.accept, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
    try:
        yield server
    finally:
        listening.close()
        if server.open:
            await server.until_open(0)


@asynccontextmanager
async def client(limits: FetchLimits = LIMITS) -> AsyncIterator[Fetcher]:
    fetcher = Fetcher(AddressGuard.create(["127.0.0.0/8"]), limits)
    try:
        yield fetcher
    finally:
        await fetcher.close()


def saying(*texts: bytes, closing: bool = True) -> Serve:
    """Answers the first request with some bytes; closes, or goes on with the next request."""

    async def serve(peer: Peer) -> None:
        while True:
            await peer.request()
            for text in texts:
                await peer.say(text)
            if closing:
                return

    return serve


def run(story: Awaitable[Any]) -> Any:
    async def bounded() -> Any:
        return await asyncio.wait_for(story, PATIENCE_S)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(bounded())


def answered(*texts: bytes, method: str = "POST", limits: FetchLimits = LIMITS) -> Any:
    async def story() -> Any:
        async with serving(saying(*texts)) as server, client(limits) as fetcher:
            return await fetcher.fetch(FetchRequest(server.url, method=method))

    return run(story())


INVALID = "The answer is not valid HTTP"
EARLY = "The answer ended too early"
LARGE = "The head of the answer is too large"


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (b"", "The other side closed the connection"),
        (b"HTTP/1.1 200 OK\r\nConte", "The other side closed the connection"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", INVALID),
        (b"\x16\x03\x01\x02\x00\x01\x00", INVALID),
        (b"HTTP/1.1 2000 OK\r\n\r\n", INVALID),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", INVALID),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n1", INVALID),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n12", INVALID),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n12", INVALID),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", INVALID),
        (b"HTTP/1.1 200 OK\r\nX Y: 1\r\n\r\n", INVALID),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", INVALID),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", INVALID),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nabc\r\n", INVALID),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", INVALID),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", INVALID),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", EARLY),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", EARLY),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n", EARLY),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
            "The body of the answer cannot be decompressed",
        ),
    ],
)
def test_what_is_no_answer_is_a_failure_that_may_pass(text: bytes, detail: str) -> None:
    answer = answered(text)
    assert isinstance(answer, FetchFailure)
    assert (answer.kind, answer.detail, answer.retriable) == ("network", detail, True)


@pytest.mark.parametrize(
    ("text", "status", "body"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, {}),
        (b"HTTP/1.1 103 Early Hints\r\nContent-Length: 9\r\nLink: </a>\r\n\r\n" + OK, 200, {}),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, ""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", 304, ""),
        (b"HTTP/1.1 200 OK\r\n\r\nup to the end", 200, "up to the end"),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n[1]", 200, [1]),
        (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", 200, ""),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\n[\r\n1\r\n]\r\n0\r\nLate: 1\r\n\r\n",
            200,
            [],
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n",
            200,
            "x" * 20_000,
        ),
    ],
)
def test_odd_answers_that_are_right(text: bytes, status: int, body: Any) -> None:
    answer = answered(text)
    assert (answer.status, answer.body, answer.truncated) == (status, body, False)
    assert "late" not in answer.headers
    assert "link" not in answer.headers


def test_an_answer_to_head_has_no_body() -> None:
    answer = answered(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nX-Seen: yes\r\n\r\n", method="HEAD")
    assert (answer.status, answer.body, answer.headers["x-seen"]) == (200, "", "yes")


def test_of_headers_with_one_name_the_first_counts_and_text_is_kept() -> None:
    answer = answered(
        "HTTP/1.1 200 OK\r\nX-A: é\r\nx-a: b\r\nX-B: \xff\r\nContent-Length: 0\r\n\r\n".encode()
    )
    assert answer.headers["x-a"] == "é"
    assert answer.headers["x-b"] == "ÿ"


def endless(begin: bytes, piece: bytes) -> Serve:
    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.say(begin)
        while True:
            await peer.say(piece)

    return serve


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"a" * 1_000),
        (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n" * 100),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 10),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x" * 1_000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"A: b\r\n" * 100),
    ],
)
def test_heads_and_what_is_around_a_body_may_not_be_endless(begin: bytes, piece: bytes) -> None:
    async def story() -> Any:
        async with serving(endless(begin, piece)) as server, client() as fetcher:
            return await fetcher.fetch(FetchRequest(server.url))

    answer = run(story())
    assert isinstance(answer, FetchFailure)
    assert (answer.kind, answer.detail) == ("network", LARGE)


def test_the_limit_of_a_head_is_exact() -> None:
    def head(size: int) -> bytes:
        return b"HTTP/1.1 204 X\r\nA: " + b"a" * (size - 1) + b"\r\n\r\n"

    assert answered(head(4_000)).status == 204
    assert answered(head(4_001)).detail == LARGE
    assert FetchLimits().max_head_bytes == 65_536


# --- what becomes of connections


def two_answers(serve: Serve, *, limits: FetchLimits = LIMITS, body: str = "x") -> tuple[list[Any], int]:
    """The answers to two requests, one after the other, and over how many connections they came."""

    async def story() -> tuple[list[Any], int]:
        async with serving(serve) as server, client(limits) as fetcher:
            answers = [await fetcher.fetch(FetchRequest(server.url, body=body)) for _ in range(2)]
            return answers, server.connections

    found: tuple[list[Any], int] = run(story())
    return found


def test_a_connection_is_used_again() -> None:
    answers, number = two_answers(saying(OK, closing=False))
    assert [each.status for each in answers] == [200, 200]
    assert number == 1


@pytest.mark.parametrize(
    "text",
    [
        OK + SECRET,
        OK + b"HTTP",
        OK + b"\0",
        b"HTTP/1.1 204 No Content\r\n\r\nbody" + SECRET,
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}" + SECRET,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + SECRET,
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
def test_bytes_after_an_answer_are_nobodys_and_end_the_connection(text: bytes) -> None:
    answers, number = two_answers(saying(text, closing=False))
    assert number == 2
    assert all(each.body in ({}, "") for each in answers)


def test_an_answer_to_head_with_a_body_cannot_be_taken_for_the_next_one() -> None:
    async def story() -> None:
        serve = saying(b"HTTP/1.1 200 OK\r\nContent-Length: 49\r\n\r\n" + SECRET, closing=False)
        async with serving(serve) as server, client() as fetcher:
            for _ in range(2):
                answer = await fetcher.fetch(FetchRequest(server.url, method="HEAD"))
                assert isinstance(answer, FetchResponse)
                assert answer.body == ""
            assert server.connections == 2

    run(story())


def test_what_comes_while_nobody_asks_ends_the_connection() -> None:
    async def story() -> None:
        speak = asyncio.Event()

        async def serve(peer: Peer) -> None:
            await peer.request()
            await peer.say(OK)
            await speak.wait()
            await peer.say(SECRET)
            await peer.end()

        async with serving(serve) as server, client() as fetcher:
            await fetcher.fetch(FetchRequest(server.url))
            speak.set()
            await server.until_open(0)
            answer = await fetcher.fetch(FetchRequest(server.url))
            assert isinstance(answer, FetchResponse)
            assert (answer.body, server.connections) == ({}, 2)

    run(story())


def test_an_answer_before_the_request_was_read_ends_the_connection() -> None:
    async def serve(peer: Peer) -> None:
        await peer.head()
        await peer.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await asyncio.Event().wait()

    async def story() -> None:
        tasks: list[Any] = []

        async def remember(peer: Peer) -> None:
            tasks.append(asyncio.current_task())
            await serve(peer)

        limits = replace(LIMITS, max_request_bytes=20_000_000)
        async with serving(remember) as server, client(limits) as fetcher:
            for _ in range(2):
                answer = await fetcher.fetch(FetchRequest(server.url, body="x" * 16_000_000))
                assert isinstance(answer, FetchResponse)
                assert answer.status == 413
            assert server.connections == 2
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(story())


def test_a_kept_connection_that_was_closed_is_replaced() -> None:
    async def story() -> None:
        closed = asyncio.Event()
        requests = 0

        async def serve(peer: Peer) -> None:
            nonlocal requests
            await peer.request()
            requests += 1
            await peer.say(OK)
            await closed.wait()

        async with serving(serve) as server, client() as fetcher:
            await asyncio.gather(*(fetcher.fetch(FetchRequest(server.url)) for _ in range(3)))
            closed.set()
            await server.until_open(0)
            answer = await fetcher.fetch(FetchRequest(server.url))
            assert isinstance(answer, FetchResponse)
            assert requests == 4

    run(story())


def test_a_connection_that_waits_keeps_nothing_of_an_answer() -> None:
    async def story() -> None:
        text = b"HTTP/1.1 200 OK\r\nContent-Length: 40000\r\n\r\n" + b"x" * 40_000
        async with serving(saying(text, closing=False)) as server, client() as fetcher:
            answer = await fetcher.fetch(FetchRequest(server.url))
            assert isinstance(answer, FetchResponse)
            [connection] = fetcher._connections._open
            assert answer.body == "x" * 40_000
            assert connection.is_reusable
            assert not connection._body
            assert not connection._headers

    run(story())


def test_connections_are_kept_for_a_while_only() -> None:
    async def story() -> None:
        serve = saying(OK, closing=False)
        async with serving(serve) as server, client(replace(LIMITS, keepalive_s=0.05)) as fetcher:
            await fetcher.fetch(FetchRequest(server.url))
            await server.until_open(0)

    run(story())


def test_a_request_that_nobody_waits_for_any_more_ends_its_connection() -> None:
    async def story() -> None:
        async def serve(peer: Peer) -> None:
            await peer.request()
            await peer.end()

        async with serving(serve) as server, client(replace(LIMITS, total_s=0.05)) as fetcher:
            answer = await fetcher.fetch(FetchRequest(server.url))
            assert isinstance(answer, FetchFailure)
            assert answer.kind == "timeout"
            await server.until_open(0)

    run(story())


def test_for_each_connection_that_is_made_at_once_another_one_is_closed() -> None:
    async def story() -> None:
        serve = saying(OK, closing=False)
        async with contextlib.AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(serving(serve)) for _ in range(4)]
            fetcher = await stack.enter_async_context(client(replace(LIMITS, connections=2)))
            for some in (servers[:2], servers[2:]):
                answers = await asyncio.gather(*(fetcher.fetch(FetchRequest(each.url)) for each in some))
                assert all(isinstance(each, FetchResponse) for each in answers)
                assert len([one for one in fetcher._connections._open if one.is_reusable]) == 2

    run(story())


def test_only_so_many_connections_are_open() -> None:
    async def story() -> None:
        serve = saying(OK, closing=False)
        async with (
            serving(serve) as one,
            serving(serve) as other,
            client(replace(LIMITS, connections=2)) as fetcher,
        ):
            urls = [one.url, other.url] * 10
            answers = await asyncio.gather(*(fetcher.fetch(FetchRequest(url)) for url in urls))
            assert all(isinstance(each, FetchResponse) for each in answers)
            assert max(one.most_open, other.most_open) <= 2
            # The loop notes the end of those that were closed later.
            assert len([one for one in fetcher._connections._open if one.is_reusable]) <= 2

    run(story())


def test_connecting_takes_so_long_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    async def story() -> Any:
        monkeypatch.setattr(connections, "start_connection", hang)
        async with client(replace(LIMITS, connect_s=0.05)) as fetcher:
            return await fetcher.fetch(FetchRequest("http://127.0.0.1:9/"))

    answer = run(story())
    assert (answer.kind, answer.detail) == ("timeout", "The connection timed out")


def test_a_user_in_the_url_is_sent_as_such() -> None:
    async def story() -> None:
        heads: list[bytes] = []

        async def serve(peer: Peer) -> None:
            heads.append(await peer.request())
            await peer.say(OK)

        async with serving(serve) as server, client() as fetcher:
            url = server.url.replace("//", "//us%40er:p%20w@")
            await fetcher.fetch(FetchRequest(url))
            await fetcher.fetch(FetchRequest(url, headers={"Authorization": "Bearer t"}))
        assert b"\r\nAuthorization: Basic dXNAZXI6cCB3\r\n" in heads[0]
        assert heads[1].count(b"Authorization") == 1
        assert b"\r\nAuthorization: Bearer t\r\n" in heads[1]
        assert b"us%40er" not in heads[0]

    run(story())


HOSTILE = [
    "\r\n",
    "\n",
    "\r",
    " ",
    "\t",
    "\0",
    "\x0b",
    "\x85",
    "\u2028",
    "%0d%0a",
    "X-Injected: 1",
    "HTTP/1.1",
    "é",
    "@",
    "#",
]


@settings(max_examples=examples(150), deadline=None)
@given(
    parts=st.lists(st.sampled_from([*HOSTILE, "a", "/", "?", ":", "."]), max_size=8),
    place=st.sampled_from("uhpq"),
)
def test_nothing_but_the_path_gets_into_a_request(parts: list[str], place: str) -> None:
    noise = "".join(parts)
    user, host, path, query = (noise if place == each else "" for each in "uhpq")

    async def story() -> Any:
        async with client() as fetcher:
            return fetcher._target(f"http://{user}@a{host}.example/{path}?{query}")

    target = run(story())
    if isinstance(target, FetchFailure):
        return
    line, name, end = target.head.split(b"\r\n")
    assert end == b""
    assert line.endswith(b" HTTP/1.1")
    assert line.count(b" ") == 2
    assert name.count(b" ") == 1
    assert not any(control in line + name for control in (b"\r", b"\n", b"\0", b"\t"))


# --- against the standard library's client, and with noise


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    """Proper responses of all kinds."""
    body = draw(st.binary(max_size=200))
    lines = [
        f"HTTP/1.{draw(st.sampled_from('01'))} {draw(st.sampled_from([200, 201, 400, 503]))} Text".encode()
    ]
    lines += [
        b"X-%d: %s" % (n, draw(st.sampled_from([b"", b"a", b"b c"]))) for n in range(draw(st.integers(0, 3)))
    ]
    if draw(st.booleans()):
        lines.append(b"Content-Encoding: gzip")
        body = gzip.compress(body)
    match draw(st.sampled_from(["length", "chunks", "end"])):
        case "length":
            lines.append(b"Content-Length: %d" % len(body))
        case "chunks":
            lines.append(b"Transfer-Encoding: chunked")
            cuts = sorted(draw(st.sets(st.integers(1, max(1, len(body) - 1)), max_size=4)))
            parts = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
            body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part) + b"0\r\n\r\n"
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class _Recorded:
    def __init__(self, text: bytes) -> None:
        self._text = text

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._text)


def understood(text: bytes) -> tuple[int, bytes]:
    """What the standard library makes of a response."""
    response = http.client.HTTPResponse(_Recorded(text))  # type: ignore[arg-type]
    response.begin()
    body = response.read()
    return response.status, gzip.decompress(body) if response.getheader("Content-Encoding") else body


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner


def over_the_wire(loop: asyncio.Runner, pieces: list[bytes]) -> Any:
    async def story() -> Any:
        async with serving(saying(*pieces)) as server, client() as fetcher:
            return await fetcher._connections.exchange(
                fetcher._target(server.url).origin,
                b"GET / HTTP/1.1\r\n\r\n",
                bodiless=False,
                holder=NOBODY,
                progress=connections.ExchangeProgress(),
            )

    return loop.run(asyncio.wait_for(story(), PATIENCE_S))


@settings(max_examples=examples(60), deadline=None)
@given(text=responses(), cuts=st.lists(st.integers(0, 400), max_size=4))
def test_proper_answers_are_understood_as_others_do(
    loop: asyncio.Runner, text: bytes, cuts: list[int]
) -> None:
    edges = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[a:b] for a, b in pairwise(edges)]
    answer = over_the_wire(loop, pieces)
    assert (answer.status, answer.body) == understood(text)


@settings(max_examples=examples(60), deadline=None)
@given(text=responses(), at=st.integers(0, 400), noise=st.binary(min_size=1, max_size=6), cut=st.booleans())
def test_damaged_answers_do_no_harm(
    loop: asyncio.Runner, text: bytes, at: int, noise: bytes, cut: bool
) -> None:
    """Whatever comes, it is an answer or a failure, and comes to an end."""
    at = min(at, len(text))
    damaged = text[:at] + noise + (b"" if cut else text[at + len(noise) :])
    try:
        answer = over_the_wire(loop, [damaged])
    except (connections.DisconnectedError, connections.InvalidAnswerError):
        return
    assert len(answer.body) <= LIMITS.max_response_bytes
