"""Serving the application with Granian inside this process's own event loop."""

from __future__ import annotations

import asyncio
import errno
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server

from hoglab.http.connections import MAX_CONNECTIONS, Connections

if TYPE_CHECKING:
    from types import FrameType

    from hoglab.http.app import HoglabApp

_ENDING = (signal.SIGTERM, signal.SIGINT)
"""Signals that ask the process to end."""
GRACE_S = 8.0
"""Time for requests to finish once the server is asked to stop."""
ABORT_S = 1.0
"""Time for cancelled requests to unwind after that."""
HEADER_TIMEOUT_S = 15.0
"""Time limit for the headers of a request to arrive; idle connections are closed after it too."""
MAX_HEADER_BYTES = 64 * 1024
"""Size of the buffer that headers are read into; requests with much larger ones get 431."""
BACKLOG = 1024
START_TIMEOUT_S = 60.0
"""Time for the server to accept connections."""
POLL_S = 0.005

_log = structlog.get_logger("hoglab.http")


class ListenError(Exception):
    """The address cannot be listened on; the text is one line for the operator."""


@dataclass(frozen=True, slots=True)
class Address:
    """Address that the server listens on."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """``http://127.0.0.1:8000``; IPv6 hosts in brackets."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    @property
    def local_url(self) -> str:
        """The URL for a browser on this machine: nobody can connect to the address that stands for all."""
        return replace(self, host=_LOOPBACK.get(self.host, self.host)).url


_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what is listened on, not what is chosen here


@contextmanager
def claim(host: str, port: int) -> Iterator[Address]:
    """Keep an address for this process during the block, a free port when ``port`` is 0. Raises `ListenError`.

    The server shares ports (``SO_REUSEPORT``), so a second one would start beside the first and take half of its
    requests: the claim itself does not share. Nobody gets the port between it and the server either, not even an
    outgoing connection to which the system gives any port that is free.
    """
    try:
        candidates = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ListenError(f"cannot listen on {host}: {error.strerror or error}") from error
    # A name may stand for several addresses; IPv4 is what clients of "localhost" try everywhere.
    family, _, _, _, place = min(candidates, key=lambda candidate: candidate[0] != socket.AF_INET)
    with socket.socket(family, socket.SOCK_STREAM) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind(place)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise ListenError(f"port {port} on {host} is taken by another program") from error
            raise ListenError(f"cannot listen on {host} port {port}: {error.strerror}") from error
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # now the server itself may have it too
        bound = held.getsockname()
        yield Address(str(bound[0]), int(bound[1]))


async def serve(
    app: HoglabApp,
    address: Address,
    *,
    stop: asyncio.Event,
    ready: Callable[[Address], None] = lambda _: None,
    grace_s: float = GRACE_S,
    header_timeout_s: float = HEADER_TIMEOUT_S,
    max_connections: int | None = None,
) -> None:
    """Serve until ``stop`` is set, then finish the requests under way and return.

    ``address`` is one that the caller has by `claim`, and keeps until this ends. ``ready`` is called once
    connections are accepted. ``max_connections``: instead of what the system's limit on open files suggests. After
    ``grace_s`` unfinished requests are cancelled. Raises `ListenError`.
    """
    raise_file_limit()
    with Connections.on(address.port, most=max_connections) as connections:
        await _serve(app, address, connections, stop, ready, grace_s, header_timeout_s)


async def _serve(
    app: HoglabApp,
    address: Address,
    connections: Connections,
    stop: asyncio.Event,
    ready: Callable[[Address], None],
    grace_s: float,
    header_timeout_s: float,
) -> None:
    server = Server(
        app,
        address=address.host,
        port=address.port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=False,
        log_enabled=False,
        backlog=BACKLOG,
        backpressure=connections.most,
        http1_settings=HTTP1Settings(
            header_read_timeout=round(header_timeout_s * 1000), max_buffer_size=MAX_HEADER_BYTES
        ),
    )
    serving = asyncio.create_task(server.serve())
    stopping = asyncio.create_task(stop.wait())
    watching: asyncio.Task[None] | None = None
    try:
        await _listening(address, serving)
        connections.bound_buffers()
        app.is_crowded = connections.are_crowded
        watching = asyncio.create_task(connections.watch())
        ready(address)
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
            raise ListenError(f"the server on {address.url} ended by itself")
        server.stop()  # type: ignore[no-untyped-call]
        app.end_streams()
        await _finish(app, serving, grace_s)
    finally:
        stopping.cancel()
        if watching is not None:
            watching.cancel()


async def _listening(address: Address, serving: asyncio.Task[None]) -> None:
    """Wait until connections are accepted: the server itself does not say when. Raises `ListenError`."""
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while not serving.done():
                try:
                    _, writer = await asyncio.open_connection(address.host, address.port)
                except OSError:
                    await asyncio.sleep(POLL_S)
                else:
                    writer.close()
                    return
    except TimeoutError:
        raise ListenError(f"nothing listened on {address.url} after {START_TIMEOUT_S:g} s") from None
    await serving
    raise ListenError(f"the server on {address.url} ended while it was starting")


async def _finish(app: HoglabApp, serving: asyncio.Task[None], grace_s: float) -> None:
    done, _ = await asyncio.wait({serving}, timeout=grace_s)
    if not done:
        _log.warning("requests_aborted", count=app.abort_requests(), grace_s=grace_s)
        done, _ = await asyncio.wait({serving}, timeout=ABORT_S)
    if done:
        await serving


class AskedToEndError(BaseException):
    """The process was asked to end while it was starting. No ``except Exception`` takes it for a failure."""


@contextmanager
def ended_by_signals(stop: asyncio.Event) -> Iterator[None]:
    """Raise `AskedToEndError` in the block when the process is asked to end (SIGTERM, SIGINT), and set ``stop`` then.

    A start waits for databases and other processes in the thread of the event loop, which takes no signals
    meanwhile. After the block signals set ``stop`` alone.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        if not stop.is_set():  # a second signal does not disturb the clearing up
            stop.set()
            raise AskedToEndError

    for number in _ENDING:
        signal.signal(number, end)
    try:
        yield
    finally:
        stop_on_signals(stop)


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set ``stop`` when the process is asked to end (SIGTERM, SIGINT)."""
    loop = asyncio.get_running_loop()
    for number in _ENDING:
        loop.add_signal_handler(number, stop.set)


def raise_file_limit() -> int:
    """Let the process open as many files as the system allows, and return how many: each connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS * 2 if hard == resource.RLIM_INFINITY else min(hard, MAX_CONNECTIONS * 2)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(soft, wanted)
