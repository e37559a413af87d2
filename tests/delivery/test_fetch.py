"""Outgoing requests: what is sent, what comes back, and what the guard keeps in (spec hog-runtime 4.5, 9)."""

from __future__ import annotations

import asyncio
import gzip
import re
import socket
import threading
import zlib
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Any

import pytest
from aiohttp import web
from tests.waiting import PATIENCE_S

from hoglab import __version__
from hoglab.delivery.outbound import resolver
from hoglab.delivery.outbound.addresses import AddressGuard, InvalidAllowanceError, is_public, literal_address
from hoglab.delivery.outbound.fetch import (
    REMEMBERED_CHARS,
    TARGETS,
    Fetcher,
    FetchFailure,
    FetchLimits,
    FetchRequest,
    FetchResponse,
)
from hoglab.fairness.fair_semaphore import Holder

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ALLOWANCE = (
    "the operator of the server may allow it with HOGLAB_FETCH_ALLOW_CIDRS or HOGLAB_FETCH_ALLOW_HOSTS"
)
LOOPBACK = AddressGuard.create(cidrs=["127.0.0.0/8"])


@pytest.fixture
def run() -> Callable[[Awaitable[Any]], Any]:
    def runner(awaitable: Awaitable[Any]) -> Any:
        async def bounded() -> Any:
            return await asyncio.wait_for(awaitable, PATIENCE_S)

        return asyncio.run(bounded())

    return runner


class Destination:
    """A real server on a free loopback port that remembers what it was sent."""

    def __init__(self, handler: Handler, host: str = "127.0.0.1") -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self._handler = handler
        self._host = host

    async def __aenter__(self) -> Destination:
        async def remember(request: web.Request) -> web.StreamResponse:
            self.requests.append(
                (request.method, request.path_qs, dict(request.headers), await request.read())
            )
            return await self._handler(request)

        self._runner = web.ServerRunner(web.Server(remember))
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._runner.cleanup()


async def answer_ok(request: web.Request) -> web.StreamResponse:
    return web.json_response({"id": 9}, headers={"X-Kind": "test"})


async def fetch(
    request: FetchRequest, *, guard: AddressGuard = LOOPBACK, limits: FetchLimits | None = None
) -> Any:
    fetcher = Fetcher(guard, limits)
    try:
        return await fetcher.fetch(request)
    finally:
        await fetcher.close()


def test_spellings_of_an_address_are_one_host_and_only_so_many_urls_are_remembered(run: Any) -> None:
    async def story() -> None:
        fetcher = Fetcher(LOOPBACK)
        same = ["http://127.0.0.1:80/x", "http://0x7f.1/", "http://2130706433", "http://127.0.0.1./y"]
        assert {fetcher.destination_of(url) for url in same} == {"127.0.0.1:80"}
        assert fetcher.destination_of("https://A.example./x?y") == "a.example:443"
        assert fetcher.destination_of("http://a.example:8080") == "a.example:8080"
        assert fetcher.destination_of("nonsense") == fetcher.destination_of("ftp://a.example") == ""
        for number in range(TARGETS + 1):
            assert fetcher.destination_of(f"http://a.example/{number}") == "a.example:80"
        assert fetcher._target.cache_info().currsize == TARGETS
        known = fetcher._target.cache_info().misses
        assert fetcher.destination_of(f"http://a.example/{'x' * REMEMBERED_CHARS}") == "a.example:80"
        assert fetcher._target.cache_info().misses == known
        await fetcher.close()

    run(story())


def test_sends_what_was_asked_for_and_reads_json(run: Any) -> None:
    async def story() -> None:
        async with Destination(answer_ok) as destination:
            answer = await fetch(
                FetchRequest(
                    f"{destination.url}/in?a=1",
                    method="put",
                    headers={
                        "Content-Type": "application/json",
                        "X-Key": "k",
                        "Connection": "close",
                        "Host": "evil",
                    },
                    body='{"a":"é"}',
                )
            )
            assert isinstance(answer, FetchResponse)
            assert (answer.status, answer.body, answer.truncated) == (200, {"id": 9}, False)
            assert answer.headers["x-kind"] == "test"
            method, path, headers, body = destination.requests[0]
            assert (method, path, body) == ("PUT", "/in?a=1", '{"a":"é"}'.encode())
            assert headers["Host"] == f"127.0.0.1:{destination.port}"
            assert headers["X-Key"] == "k"
            assert headers["Content-Length"] == "10"
            assert headers["User-Agent"] == f"hoglab/{__version__}"
            assert headers.get("Connection", "keep-alive") == "keep-alive"

    run(story())


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_get_and_head_have_no_body(run: Any, method: str) -> None:
    async def story() -> None:
        async with Destination(answer_ok) as destination:
            await fetch(FetchRequest(destination.url, method=method, body="x"))
            assert destination.requests[0][3] == b""

    run(story())


@pytest.mark.parametrize(
    ("headers", "named"),
    [({"X-A": "a\r\nX-B: b"}, "X-A"), ({"X A": "a"}, "X A"), ({"": "a"}, ""), ({"X": "\0"}, "X")],
)
def test_headers_that_could_smuggle_are_refused(run: Any, headers: dict[str, str], named: str) -> None:
    answer = run(fetch(FetchRequest("http://127.0.0.1:1/", headers=headers)))
    assert isinstance(answer, FetchFailure)
    assert (answer.kind, answer.retriable) == ("invalid_header", False)
    assert repr(named) in answer.detail


BAD_PORT = "Invalid URL: its port is no number from 1 to 65535"
NO_HOSTNAME = "Invalid URL: its hostname is none"
CONTROL = "Invalid URL: there is a control character in its hostname"
TOO_LONG = "Invalid URL: its hostname is too long"
NO_IPV4 = "Invalid URL: its hostname is a number, but no IPv4 address"


@pytest.mark.parametrize(
    ("url", "detail"),
    [
        ("ftp://example.com/", "Scheme must be either HTTP or HTTPS"),
        ("file:///etc/passwd", "Scheme must be either HTTP or HTTPS"),
        ("gopher://127.0.0.1/", "Scheme must be either HTTP or HTTPS"),
        ("http:///path", "No hostname"),
        ("example.com/in", "Invalid URL"),
        ("", "Invalid URL"),
        ("http://[::1", "Invalid URL"),
        ("http://[::1]x/", "Invalid URL"),
        ("http://[v1.a]/", "Invalid URL"),
        ("http:127.0.0.1", "No hostname"),
        ("https://:80/", "No hostname"),
        ("http://user:password@/", "No hostname"),
        *(
            (f"http://a:{port}/", BAD_PORT)
            for port in ("99999999", "65536", "0", "-1", "+80", "8 0", "x", "\u0663")
        ),
        ("http://[::1]:0/", BAD_PORT),
        *(
            (f"http://{host}/", NO_HOSTNAME)
            for host in ("a b", "a%20b", "a..b", ".a", "*.example", "a<b>", "a,b", "a|b")
        ),
        *((f"http://{host}/", CONTROL) for host in ("a\tb", "a\nb", "a\0b", "a\x7fb", "user\r@a")),
        *((f"http://{host}/", TOO_LONG) for host in ("a." * 200 + "example", "_" * 64 + ".example")),
        *(
            (f"http://{host}/", NO_IPV4)
            for host in ("256.1.1.1", "1.2.3.4.5", "0x1ffffffff", "a.0x1", "1.example.9.")
        ),
        ("http://a.example/" + "p" * 70_000, "Invalid URL: it is longer than 65536 characters"),
    ],
)
def test_urls_that_cannot_be_fetched(run: Any, url: str, detail: str) -> None:
    answer = run(fetch(FetchRequest(url)))
    assert isinstance(answer, FetchFailure)
    assert (answer.detail, answer.retriable) == (detail, False)


@pytest.mark.parametrize(
    "host",
    ["a_b.invalid", "-a.invalid", "a.invalid.", "x" * 63 + ".invalid", "b\u00fccher.invalid", "4.invalid"],
)
def test_names_that_may_exist_are_looked_up(run: Any, host: str) -> None:
    answer = run(fetch(FetchRequest(f" http://user:p@{host}:80/\u00e4?q=a b#f ")))
    assert isinstance(answer, FetchFailure)
    assert (answer.detail, answer.retriable) == ("Invalid hostname", True)


def test_a_name_with_one_internal_address_is_refused(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a resolver says is checked again where the socket is made, so a rebinding name gets nowhere."""

    async def story() -> None:
        async with Destination(answer_ok) as destination:
            answers = [["93.184.216.34", "127.0.0.1"], ["127.0.0.1"]]

            def look_up(_host: str, port: int) -> list[Any]:
                return [(2, 1, 6, "", (address, port)) for address in answers.pop(0)]

            monkeypatch.setattr(resolver, "look_up", look_up)
            for _ in range(2):
                answer = await fetch(
                    FetchRequest(f"http://a.example:{destination.port}/"), guard=AddressGuard()
                )
                assert (answer.kind, answer.detail) == ("blocked", "Hostname is not allowed")
            assert destination.requests == []

    run(story())


def test_operators_can_allow_networks_and_names_but_never_metadata(run: Any) -> None:
    async def story() -> None:
        async with Destination(answer_ok) as destination:
            named = AddressGuard.create(hosts=["LocalHost"])
            assert (
                await fetch(FetchRequest(f"http://localhost:{destination.port}/"), guard=named)
            ).status == 200
            blocked = await fetch(FetchRequest(f"http://127.0.0.1:{destination.port}/"), guard=named)
            assert blocked.kind == "blocked"

    run(story())
    everything = AddressGuard.create(cidrs=["0.0.0.0/0", "::/0"])
    assert everything.allows(ip_address("10.0.0.1"))
    assert not everything.allows(ip_address("169.254.169.254"), host_allowed=True)
    assert not everything.allows(ip_address("::ffff:169.254.169.254"))
    with pytest.raises(InvalidAllowanceError):
        AddressGuard.create(cidrs=["10.0.0.0/99"])


def test_public_addresses_are_public() -> None:
    for text in ("8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:8.8.8.8"):
        assert is_public(ip_address(text)), text
    assert literal_address("example.com") is None
    assert literal_address("1e100.net") is None
    assert literal_address("134744072") == ip_address("8.8.8.8")


def test_a_response_is_cut_at_its_limit(run: Any) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(10_000):
            await response.write(b"x" * 10_000)
        return response

    async def story() -> None:
        async with Destination(endless) as destination:
            answer = await fetch(FetchRequest(destination.url), limits=FetchLimits(max_response_bytes=50_000))
            assert answer.truncated
            assert answer.body == "x" * 50_000

    run(story())


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_decompression_stops_at_the_limit(run: Any, encoding: str, pack: Callable[[bytes], bytes]) -> None:
    async def bomb(request: web.Request) -> web.StreamResponse:
        return web.Response(body=pack(b"0" * 50_000_000), headers={"Content-Encoding": encoding})

    async def story() -> None:
        async with Destination(bomb) as destination:
            answer = await fetch(FetchRequest(destination.url), limits=FetchLimits(max_response_bytes=1_000))
            assert answer.truncated
            assert answer.body == "0" * 1_000

    run(story())


def test_a_destination_that_hangs_times_out(run: Any) -> None:
    async def story() -> None:
        over = asyncio.Event()

        async def hang(request: web.Request) -> web.StreamResponse:
            await over.wait()
            return web.Response()

        async with Destination(hang) as destination:
            answer = await fetch(FetchRequest(destination.url), limits=FetchLimits(total_s=0.2))
            assert (answer.kind, answer.retriable) == ("timeout", True)
            over.set()

    run(story())


def test_a_connection_that_breaks_is_tried_once_more_at_once(run: Any) -> None:
    async def story() -> None:
        connections = 0

        async def slam(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            await reader.readuntil(b"\r\n\r\n")
            if connections > 1:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue")
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(slam, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            answer = await fetch(FetchRequest(f"http://127.0.0.1:{port}/"))
            assert isinstance(answer, FetchResponse)
            assert (answer.body, connections) == (True, 2)

    run(story())


def test_refused_connections_and_unknown_names_may_be_retried(run: Any) -> None:
    refused = run(fetch(FetchRequest("http://127.0.0.1:1/")))
    assert (refused.kind, refused.name, refused.retriable) == ("network", "ConnectionRefusedError", True)
    unknown = run(fetch(FetchRequest("http://no-such-host.invalid/")))
    assert (unknown.kind, unknown.detail, unknown.retriable) == ("dns", "Invalid hostname", True)


def told(run: Any, url: str, **options: Any) -> str:
    answer = run(fetch(FetchRequest(url), **options))
    assert isinstance(answer, FetchFailure)
    return answer.text


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:1/", "The connection was refused: nothing accepts connections at 127.0.0.1:1"),
        ("http://no-such-host.invalid/", "Invalid hostname: there is no address for no-such-host.invalid"),
        ("http://0x0a.1/", "Hostname is not allowed: 10.0.0.1 is not a public address; " + ALLOWANCE),
        (
            "http://localhost/",
            "Hostname is not allowed: localhost leads to 127.0.0.1, which is not a public address; "
            + ALLOWANCE,
        ),
        (
            "http://[::ffff:169.254.169.254]/",
            "Hostname is not allowed: 169.254.169.254 is an address of cloud metadata, which is never reached",
        ),
    ],
)
def test_failures_say_what_happened(
    run: Any, monkeypatch: pytest.MonkeyPatch, url: str, expected: str
) -> None:
    found = resolver.look_up
    monkeypatch.setattr(resolver, "look_up", lambda host, port: [
        info for info in found(host, port) if ":" not in info[4][0] or host != "localhost"
    ])  # fmt: skip
    guard = LOOPBACK if "127" in url else AddressGuard()
    assert told(run, url, guard=guard) == expected


def test_a_name_server_that_does_not_answer_is_told_from_a_name_that_is_not_there(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(_host: str, _port: int) -> list[Any]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(resolver, "look_up", look_up)
    expected = "Invalid hostname: the name servers gave no answer for a.example"
    assert told(run, "http://a.example/") == expected


@pytest.mark.parametrize(
    ("said", "step"),
    [
        (b"", "it was waiting for an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "it was reading the answer, of which 27 bytes had come"),
    ],
)
def test_a_timeout_says_how_far_the_request_came(run: Any, said: bytes, step: str) -> None:
    async def story() -> str:
        async def hang(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(said)
            await writer.drain()

        async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            answer = await fetch(FetchRequest(f"http://127.0.0.1:{port}/"), limits=FetchLimits(total_s=0.5))
            assert isinstance(answer, FetchFailure)
            return answer.text

    assert run(story()) == f"The request timed out after 0.5 s: {step}"


def test_looking_up_and_handshakes_have_their_time_too(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> tuple[str, str]:
        over = threading.Event()
        found = resolver.look_up

        def look_up(host: str, port: int) -> list[Any]:
            if host == "slow.example":
                over.wait(20)
            return found("127.0.0.1", port)

        monkeypatch.setattr(resolver, "look_up", look_up)
        limits = FetchLimits(connect_s=0.3, total_s=0.6)
        async with await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            slow = await fetch(FetchRequest(f"http://slow.example:{port}/"), limits=limits)
            mute = await fetch(FetchRequest(f"https://a.example:{port}/"), limits=limits)
        over.set()
        return slow.text, mute.text

    slow, mute = run(story())
    assert slow == "The request timed out after 0.6 s: it was looking up the address of slow.example"
    assert re.fullmatch(r"The connection timed out: it was shaking hands with a.example:\d+ for TLS", mute)


def test_names_that_hang_do_not_keep_other_names_from_being_looked_up(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many one function asks for; and a name that many ask for is looked up once."""
    asked: list[str] = []
    over = threading.Event()

    def look_up(host: str, port: int) -> list[Any]:
        asked.append(host)
        if host.endswith(".slow.example"):
            over.wait(20)
        return [(2, 1, 6, "", ("93.184.216.34", port))]

    async def story() -> None:
        monkeypatch.setattr(resolver, "look_up", look_up)
        names = resolver.NameResolver()
        hanging = [
            asyncio.create_task(names.resolve(f"{number}.slow.example", 80, Holder(1, "hangs")))
            for number in range(200)
        ]
        await asyncio.sleep(0)
        await asyncio.gather(*(names.resolve("a.example", 80, Holder(1, "quick")) for _ in range(50)))
        assert asked.count("a.example") == 1
        assert len(asked) <= resolver.LOOK_UPS
        for task in hanging:
            task.cancel()
        over.set()
        names.close()

    run(story())
