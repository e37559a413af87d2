"""Too many connections, from one address or from all, and clients that do not read what they asked for."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import Response
from tests.http.test_server import WAIT_S, Running

from hoglab.http import connections as module
from hoglab.http.app import PART_BYTES
from hoglab.http.connections import Connections
from hoglab.http.management.config import HttpConfig

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at sockets by way of /proc")

HEALTH = b"GET /_health HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE_BYTES = 32 * 1024 * 1024


@pytest.fixture
def run(make_client: Callable[..., Any]) -> Iterator[Callable[..., Running]]:
    """Starts servers that have ``/large``, an answer that no buffer of the system holds."""
    running: list[Running] = []

    def start(settings: HttpConfig | None = None, **options: Any) -> Running:
        async def large(scope: Any, receive: Any, send: Any) -> None:
            await Response(bytes(LARGE_BYTES))(scope, receive, send)

        server = Running(make_client(settings, hot={"/large": large}).app, options)
        running.append(server)
        return server.start()

    yield start
    for server in running:
        server.stop()


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def answered(connection: socket.socket) -> bool:
    """Whether a further request on a connection is answered."""
    with contextlib.suppress(OSError):
        connection.sendall(HEALTH)
        return connection.recv(65536).startswith(b"HTTP/1.1 200")
    return False


class TestReading:
    def test_an_answer_in_parts_arrives_whole(self, run: Any) -> None:
        server = run()
        assert len(httpx.get(server.url + "/large", timeout=WAIT_S).content) == LARGE_BYTES
        head = httpx.head(server.url + "/large", timeout=WAIT_S)
        assert (head.headers["content-length"], head.content) == (str(LARGE_BYTES), b"")

    def test_who_does_not_read_is_left(self, run: Any) -> None:
        server = run(HttpConfig(write_timeout_s=0.2))
        with server.connect() as connection:
            connection.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
            eventually(lambda: bool(server.app._in_flight))
            eventually(lambda: not server.app._in_flight)
            received = 0
            with contextlib.suppress(ConnectionResetError):
                while part := connection.recv(1 << 20):
                    received += len(part)
        assert PART_BYTES < received < LARGE_BYTES  # the end is missing, and the client can tell

    def test_what_is_never_read_is_cut(self, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also where the application has long handed over everything."""
        monkeypatch.setattr(module, "UNREAD_TIMEOUT_S", 1)
        server = run()
        with server.connect() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            mine = connection.getsockname()

            def is_open() -> bool:
                return any(_peer(each) == mine for _, each in module._sockets())

            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(2000):
                    connection.sendall(b"GET /api/schema/ HTTP/1.1\r\nHost: x\r\n\r\n")
            eventually(is_open)
            eventually(lambda: not is_open())

    def test_connections_inherit_the_bounds_of_the_listener(self, run: Any) -> None:
        server = run()
        with server.connect() as connection:
            assert answered(connection)
            mine = connection.getsockname()
            found = [
                (
                    each.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
                    each.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
                )
                for _, each in module._sockets()
                if _peer(each) == mine
            ]
        assert found == [(module.UNREAD_TIMEOUT_S * 1000, 2 * module.SEND_BUFFER_BYTES)]


def _peer(each: socket.socket) -> Any:
    with contextlib.suppress(OSError):
        return each.getpeername()
    return None


class TestMany:
    def test_more_clients_than_connections_are_all_answered(self, run: Any) -> None:
        """None keeps its connection while others wait for one."""
        server = run(max_connections=16)
        clients = [server.connect() for _ in range(60)]
        try:
            for client in clients:
                client.sendall(HEALTH)
            for client in clients:
                assert client.recv(65536).startswith(b"HTTP/1.1 200")
        finally:
            for client in clients:
                client.close()

    def test_one_address_does_not_keep_others_out(self, run: Any) -> None:
        server = run(max_connections=20)
        silent = [server.connect() for _ in range(40)]
        try:
            for connection in silent:
                connection.sendall(b"GET / HT")
            with socket.create_connection(
                (server.address.host, server.address.port), WAIT_S, source_address=("127.0.0.2", 0)
            ) as other:
                assert answered(other)  # long before the time for headers is over
        finally:
            for connection in silent:
                connection.close()

    def test_connections_are_counted_where_closed_ones_leave_gaps(self) -> None:
        with Connections.on(0) as bounded:
            others = bounded._open()  # of the process that tests
            bounded.most = int((others + 5) / module.CROWDED_PART) + 1
            assert not bounded.are_crowded()
            files = [os.dup(bounded.first) for _ in range(10)]
            try:
                os.close(files.pop(0))  # one of the lowest numbers is free now, and nine more are open
                assert [bounded.are_crowded() for _ in range(20)].count(False) <= 6
                assert bounded.are_crowded()
            finally:
                for file in files:
                    os.close(file)
            bounded.look_at = 0.0
            assert not bounded.are_crowded()

    def test_a_look_that_others_held_up_does_not_make_them_crowded(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        really = module._open_files

        def held_up() -> list[int]:
            time.sleep(0.2)
            return really()

        monkeypatch.setattr(module, "_open_files", held_up)
        with Connections.on(0) as bounded:
            assert not bounded.are_crowded()
            bounded.spare = 0  # as after many requests in a short time
            time.sleep(0.1)
            assert not bounded.are_crowded()

    def test_those_that_were_silent_longest_are_cut(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as opened:
            port = listener.getsockname()[1]
            pairs = []
            for _ in range(10):
                client = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
                pairs.append((client, opened.enter_context(listener.accept()[0])))
            other = opened.enter_context(
                socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0))
            )
            theirs = opened.enter_context(listener.accept()[0])
            time.sleep(0.05)  # what is told apart are milliseconds
            for client, _ in pairs[:4]:
                client.sendall(b"x")
            with Connections.on(port, most=8) as bounded:
                files = len(module._open_files())
                assert bounded.cut_excess() == {"127.0.0.1": 6}
                assert len(module._open_files()) == files
            for _, server in pairs[:4]:
                assert server.recv(10, socket.MSG_DONTWAIT) == b"x"
            for _, server in pairs[4:]:
                assert server.recv(10) == b""
            other.sendall(b"y")
            assert theirs.recv(10) == b"y"


PROGRAM = """
import asyncio, resource, sys, uvloop
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from hoglab.accounts.service import AccountService
from tests.apps import app_of
from hoglab.http.server import claim, serve
from hoglab.storage.database import Database

async def main():
    app = app_of(AccountService(Database.open(Path(sys.argv[1]) / "hoglab.db")))
    with claim("127.0.0.1", 0) as address:
        ready = lambda address: print(address.port, flush=True)
        await serve(app, address, stop=asyncio.Event(), ready=ready)

uvloop.run(main())
"""


def test_sixty_clients_with_sixty_four_files(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        contextlib.ExitStack() as opened,
    ):
        opened.callback(process.kill)
        assert process.stdout is not None
        port = int(process.stdout.readline())
        clients = [
            opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=WAIT_S))
            for _ in range(60)
        ]
        for client in clients:
            client.sendall(HEALTH)
        for client in clients:
            assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_looking_at_connections_leaves_the_locks_of_other_files(tmp_path: Path) -> None:
    """Closing any copy of a file gives up the locks of the process on it: those by which databases know each other."""
    held = tmp_path / "held"
    locked = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with held.open("w") as file, socket.create_server(("127.0.0.1", 0)) as listener:
        fcntl.lockf(file, fcntl.LOCK_EX)
        with Connections.on(listener.getsockname()[1]) as connections:
            connections.bound_buffers()
            connections.cut_excess()
            connections.are_crowded()
        other = subprocess.run([sys.executable, "-c", locked, held], capture_output=True, text=True)
        assert "BlockingIOError" in other.stderr
        assert listener.fileno() > 0
        assert listener.getsockname()
