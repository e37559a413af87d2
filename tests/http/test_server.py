"""The real server: connections, slow clients, shutting down."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop
from starlette.responses import PlainTextResponse
from tests.waiting import PATIENCE_S

from hoglab.http.management.config import HttpConfig
from hoglab.http.requests.body import read_body
from hoglab.http.server import Address, ListenError, claim, raise_file_limit, serve

WAIT_S = 60.0


@dataclass
class Running:
    """A server in a thread of its own."""

    app: Any
    options: dict[str, Any]
    address: Address | None = None
    arrived: threading.Event = field(default_factory=threading.Event)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._main()), daemon=True)

    def start(self) -> Running:
        self._thread.start()
        assert self._ready.wait(WAIT_S)
        return self

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()

        def ready(address: Address) -> None:
            self.address = address
            self._ready.set()

        with claim("127.0.0.1", 0) as address:
            await serve(self.app, address, stop=self._stop, ready=ready, **self.options)

    def ask_to_stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)

    def release(self) -> None:
        """Let ``/wait`` answer."""
        self._loop.call_soon_threadsafe(self.may_answer.set)

    def stop(self) -> float:
        """Stop and say how many seconds it took."""
        started_at = time.monotonic()
        if self._thread.is_alive():
            self.ask_to_stop()
        self._thread.join(WAIT_S * 2)
        assert not self._thread.is_alive()
        return time.monotonic() - started_at

    @property
    def url(self) -> str:
        assert self.address is not None
        return self.address.url

    def connect(self) -> socket.socket:
        assert self.address is not None
        return socket.create_connection((self.address.host, self.address.port), timeout=WAIT_S)

    def exchange(self, request: bytes) -> bytes:
        """Send raw bytes, and read until the server closes the connection."""
        with self.connect() as connection:
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def answer(self, request: bytes) -> tuple[int, bytes]:
        """Send raw bytes, and read the status and body of one answer, whether or not the connection stays."""
        with self.connect() as connection, HTTPResponse(connection) as response:
            connection.sendall(request)
            response.begin()
            return response.status, response.read()


@pytest.fixture
def run(make_client: Callable[..., Any]) -> Iterator[Callable[..., Running]]:
    """Starts servers; besides the API they have ``/wait``, which answers when it is released."""
    running: list[Running] = []

    def start(settings: HttpConfig | None = None, **options: Any) -> Running:
        async def wait(scope: Any, receive: Any, send: Any) -> None:
            server.arrived.set()
            await server.may_answer.wait()
            await PlainTextResponse("waited")(scope, receive, send)

        async def swallow(scope: Any, receive: Any, send: Any) -> None:
            server.arrived.set()
            body = await read_body(scope, receive, timeout_s=0.3)
            await PlainTextResponse(str(len(body)))(scope, receive, send)

        client = make_client(settings, hot={"/wait": wait, "/swallow": swallow})
        server = Running(client.app, options)
        running.append(server)
        return server.start()

    yield start
    for server in running:
        server.stop()


class TestServing:
    def test_answers_over_the_wire(self, run: Any, first: Any) -> None:
        server = run()
        assert server.address.port > 0
        headers = {"Authorization": f"Bearer {first.api_key}"}
        with httpx.Client(base_url=server.url, headers=headers) as client:
            assert client.get("/_health").json() == {"status": "ok"}
            listing = client.get("/api/projects/@current/widgets?limit=1").json()
            assert listing["next"] == f"{server.url}/api/projects/@current/widgets?limit=1&offset=1"
            made = client.post("/api/projects/1/widgets/", json={"name": "x"})
            assert (made.status_code, made.json()) == (201, {"name": "x"})
            refused = client.request("DELETE", "/api/projects/1/widgets/1/")
            assert (refused.status_code, refused.headers["Content-Length"]) == (405, "0")
            head = client.head("/api/projects/1/widgets/")
            assert (head.status_code, head.content) == (200, b"")
            assert int(head.headers["Content-Length"]) > 100
            # The body after an early refusal does not disturb the next request of the connection.
            assert client.post("/nothing", content=b"x" * 100_000).status_code == 404
            assert client.get("/_health").status_code == 200

    def test_body_over_the_limit(self, run: Any, first: Any) -> None:
        server = run(HttpConfig(max_body_bytes=1000))
        url = server.url + "/api/projects/1/widgets/"
        headers = {"Authorization": f"Bearer {first.api_key}", "Content-Type": "application/json"}
        response = httpx.post(url, content=b" " * 1001, headers=headers)
        assert (response.status_code, response.json()["code"]) == (413, "payload_too_large")
        chunked = httpx.post(url, content=iter([b" " * 600] * 2), headers=headers)
        assert chunked.status_code == 413

    def test_many_requests_at_once(self, run: Any, first: Any) -> None:
        server = run()

        async def go() -> list[int]:
            headers = {"Authorization": f"Bearer {first.api_key}"}
            limits = httpx.Limits(max_connections=50)
            options = {"base_url": server.url, "headers": headers, "limits": limits, "timeout": None}
            async with httpx.AsyncClient(**options) as client:
                urls = [f"/api/projects/1/widgets/{number % 30}/" for number in range(300)]
                answers = await asyncio.gather(*(client.get(url) for url in urls))
            return [answer.status_code for answer in answers]

        assert asyncio.run(go()) == [200 if number % 30 < 25 else 404 for number in range(300)]

    @pytest.mark.parametrize(
        "request_line",
        [
            b"GET /\xff HTTP/1.1",
            b"GET / HTTP/9.9",
            b"nonsense",
            b"GET /_health HTTP/1.1\r\nContent-Length: x",
        ],
    )
    def test_what_is_no_http(self, run: Any, request_line: bytes) -> None:
        server = run()
        answer = server.exchange(request_line + b"\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
        assert httpx.get(server.url + "/_health").status_code == 200

    def test_odd_but_valid_paths(self, run: Any) -> None:
        server = run()
        for path in (b"/%ff%00%2f", b"//", b"/a/../b", b"/?%ff=%00", b"*"):
            request = b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            status = server.exchange(request).partition(b"\r\n")[0]
            assert status in (b"HTTP/1.1 200 OK", b"HTTP/1.1 404 Not Found", b"HTTP/1.1 400 Bad Request")

    def test_headers_without_end(self, run: Any) -> None:
        server = run()
        request = b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 500_000 + b"\r\nConnection: close\r\n\r\n"
        with server.connect() as connection:
            connection.sendall(request)
            assert connection.recv(100).startswith(b"HTTP/1.1 431")


class TestSlowClients:
    def test_half_a_header(self, run: Any) -> None:
        server = run(header_timeout_s=0.3)
        assert server.exchange(b"GET / HTTP/1.1\r\nHo") == b""

    def test_half_a_body(self, run: Any) -> None:
        server = run()
        status, body = server.answer(b"POST /swallow HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
        assert status == 408
        assert b'"code":"request_timeout"' in body

    def test_half_a_body_of_the_management_api(self, run: Any, first: Any) -> None:
        server = run(HttpConfig(body_timeout_s=0.3))
        head = (
            "POST /api/projects/1/widgets/ HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {first.api_key}\r\nContent-Length: 100\r\n\r\n{{"
        )
        assert server.answer(head.encode())[0] == 408

    @pytest.mark.parametrize(
        "framing", ["Content-Length: 100\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"]
    )
    def test_client_that_ends_its_side_in_the_middle(self, run: Any, framing: str) -> None:
        server = run()
        with server.connect() as connection, HTTPResponse(connection) as response:
            connection.sendall(f"POST /swallow HTTP/1.1\r\nHost: x\r\n{framing}".encode())
            assert server.arrived.wait(WAIT_S)
            connection.shutdown(socket.SHUT_WR)
            response.begin()
            assert (response.status, b"ends too early" in response.read()) == (400, True)

    def test_client_that_leaves_in_the_middle(self, run: Any) -> None:
        server = run()
        with server.connect() as connection:
            connection.sendall(b"POST /swallow HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
            assert server.arrived.wait(WAIT_S)
        assert httpx.get(server.url + "/_health").status_code == 200

    def test_hundreds_of_them_do_not_keep_others_out(self, run: Any) -> None:
        server = run()
        connections = [server.connect() for _ in range(300)]
        try:
            for number, connection in enumerate(connections):
                kind = (
                    b"POST /swallow HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\na"
                    if number % 2
                    else b"GET / HT"
                )
                connection.sendall(kind)
            assert httpx.get(server.url + "/_health", timeout=WAIT_S).status_code == 200
        finally:
            for connection in connections:
                connection.close()


class TestStopping:
    def test_requests_under_way_are_finished(self, run: Any) -> None:
        server = run()
        answers: list[httpx.Response] = []
        client = threading.Thread(
            target=lambda: answers.append(httpx.get(server.url + "/wait", timeout=WAIT_S))
        )
        with httpx.Client(base_url=server.url) as idle:
            idle.get("/_health")
            client.start()
            assert server.arrived.wait(WAIT_S)
            server.ask_to_stop()
            deadline = time.monotonic() + WAIT_S
            while time.monotonic() < deadline:
                try:
                    server.connect().close()
                except (ConnectionRefusedError, ConnectionResetError):  # reset: the listener was closing
                    break
            else:
                pytest.fail("the server goes on accepting connections")
            assert not answers
            server.release()
            client.join(WAIT_S)
        assert answers[0].text == "waited"
        assert server.stop() < WAIT_S

    def test_requests_that_do_not_end_are_cancelled(self, run: Any) -> None:
        server = run(grace_s=0.3)
        with server.connect() as connection:
            connection.sendall(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
            assert server.arrived.wait(WAIT_S)
            assert server.stop() < 5.0

    @pytest.mark.parametrize(
        "stuck",
        [
            b"",
            b"GET / HT",
            b"POST /swallow HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\na",
            b"POST /swallow HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
            b"GET /api/schema/ HTTP/1.1\r\nHost: x\r\n\r\n" * 50,
            b"GET /_health HTTP/1.1\r\nHost: x\r\n\r\n" * 500,
        ],
        ids=["silent", "head", "body", "chunks", "unread", "pipeline"],
    )
    def test_stuck_clients_do_not_delay_the_stop(self, run: Any, stuck: bytes) -> None:
        server = run(grace_s=0.3)
        connections = [server.connect() for _ in range(20)]
        try:
            for connection in connections:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.sendall(stuck)
            assert httpx.get(server.url + "/_health", timeout=WAIT_S).status_code == 200
            assert server.stop() < WAIT_S
        finally:
            for connection in connections:
                connection.close()

    def test_idle_connections_do_not_delay_the_stop(self, run: Any) -> None:
        server = run()
        with httpx.Client(base_url=server.url) as idle, server.connect():
            idle.get("/_health")
            assert server.stop() < 5.0


class TestAddress:
    def test_port_that_is_taken(self, run: Any) -> None:
        server = run()
        port = server.address.port
        taken = f"port {port} on 127.0.0.1 is taken by another program"
        with pytest.raises(ListenError, match=taken), claim("127.0.0.1", port):
            pass

    def test_any_free_port(self) -> None:
        with claim("localhost", 0) as address:
            assert address.host == "127.0.0.1"
            assert address.url == f"http://127.0.0.1:{address.port}"
        assert Address("::1", 8000).url == "http://[::1]:8000"

    def test_nobody_gets_a_port_that_is_claimed(self) -> None:
        """Not even a connection to itself, which the system makes of one from a port that nothing holds."""
        with claim("127.0.0.1", 0) as address, socket.socket() as other:
            with pytest.raises(OSError, match="in use"):
                other.bind((address.host, address.port))
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((address.host, address.port))

    @pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.1"])
    def test_address_that_is_not_ours(self, host: str) -> None:
        with pytest.raises(ListenError, match=r"cannot listen on .+"):
            claim(host, 0).__enter__()

    def test_enough_files_may_be_open(self) -> None:
        assert raise_file_limit() >= 1024


PROGRAM = """
import asyncio, sys, uvloop
from pathlib import Path
from hoglab.accounts.service import AccountService
from tests.apps import app_of
from hoglab.http.server import ListenError, claim, serve, stop_on_signals
from hoglab.storage.database import Database

async def main():
    stop = asyncio.Event()
    stop_on_signals(stop)
    app = app_of(AccountService(Database.open(Path(sys.argv[1]) / "hoglab.db")))
    with claim("127.0.0.1", int(sys.argv[2])) as address:
        await serve(app, address, stop=stop, ready=lambda address: print(address.port, flush=True))
    print("stopped", flush=True)

try:
    uvloop.run(main())
except ListenError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_the_process_in_order(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(
        [*command, "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        port = process.stdout.readline().strip()
        assert httpx.get(f"http://127.0.0.1:{port}/_readiness").status_code == 200
        second = subprocess.run(
            [*command, port], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert (second.returncode, second.stderr) == (
            1,
            f"port {port} on 127.0.0.1 is taken by another program\n",
        )
        process.send_signal(number)
        assert process.wait(WAIT_S) == 0
        assert process.stdout.read() == "stopped\n"
        assert process.stderr.read() == ""
