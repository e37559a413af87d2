"""HTTP/1.1 exchanges over kept-alive connections that are opened behind the guard (spec hog-runtime 4.5, 9; RFC 9112).

It has only what delivery needs, which makes it several times cheaper than a general client: requests are ready-made
bytes, answers are read whole, and there are no redirects, cookies and proxies. ``httptools`` parses the answers.

Each address is checked where its socket is made, so that neither an odd spelling nor a name that resolves
differently the second time gets past.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple

import httptools
from aiohappyeyeballs import start_connection

from hoglab.delivery.outbound.resolver import NameResolver

if TYPE_CHECKING:
    from hoglab.delivery.outbound.addresses import AddressGuard
    from hoglab.fairness.fair_semaphore import Holder

EYEBALLS_S = 0.25
"""Time in seconds for which one address of a host is tried before the next one is tried beside it (RFC 8305)."""
FRAMING_FACTOR = 8
"""Maximum number of bytes around each byte of a body: chunks of one byte need five."""


class Origin(NamedTuple):
    """Endpoint of connections and the key under which they are shared.

    ``host_allowed``: the operator allowed it by name.
    """

    tls: bool
    host: str
    port: int
    host_allowed: bool = False

    @property
    def destination(self) -> str:
        """The destination of its requests: host and port."""
        return f"{self.host.removesuffix('.')}:{self.port}"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Named limits of connections (spec hog-runtime 4.1). Times in seconds.

    ``max_head_bytes``: of a response, its trailers and the framing of its body. ``connections``: maximum number of
    open connections; with fewer than there may be requests under way, requests would wait for each other without
    turns.
    """

    connect_s: float = 3.0
    max_response_bytes: int = 2 * 1024 * 1024
    max_head_bytes: int = 64 * 1024
    connections: int = 512
    keepalive_s: float = 10.0


class HttpAnswer(NamedTuple):
    """An answer.

    ``headers``: lower-case name to first value. ``body`` is decompressed, and cut at the limit if ``truncated``.
    """

    status: int
    headers: dict[str, str]
    body: bytearray
    truncated: bool


class BlockedAddressError(OSError):
    """The guard refused to connect to ``address``."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address


class ConnectTimeoutError(OSError):
    """No connection was made in time; the text says how far it came."""


class ExchangeProgress:
    """Progress of an exchange, reported when it is given up."""

    __slots__ = ("connection", "step")

    def __init__(self) -> None:
        self.step = "waiting for a free connection"
        self.connection: _Connection | None = None

    def __str__(self) -> str:
        if self.connection is None:
            return self.step
        came = self.connection.received
        return f"reading the answer, of which {came} bytes had come" if came else "waiting for an answer"


class DisconnectedError(ConnectionError):
    """The connection was closed before an answer began, which says nothing about the request."""


class InvalidAnswerError(Exception):
    """Error for an invalid response."""


class ConnectionPool:
    """Pool of connections. Created and used on one event loop; close it there."""

    def __init__(self, guard: AddressGuard, limits: ConnectionLimits) -> None:
        self._guard = guard
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Semaphore(limits.connections)
        self._idle: dict[Origin, list[_Connection]] = {}
        self._open: set[_Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None
        self._opening = 0
        self._resolver = NameResolver()

    async def exchange(
        self, origin: Origin, request: bytes, *, bodiless: bool, holder: Holder, progress: ExchangeProgress
    ) -> HttpAnswer:
        """Send a request, once more when its connection breaks before an answer begins. Return the answer.

        Waits while too many are open. ``bodiless``: the answer has no body, whatever its head says (HEAD).
        ``holder``: the function on whose account it is sent.

        Raises `DisconnectedError`, `InvalidAnswerError`, `BlockedAddressError`, `ConnectTimeoutError` and the
        errors of names, connections and certificates (`OSError`).
        """
        async with self._room:
            for connection in (self._take(origin), None):
                progress.connection = connection or await self._connect(origin, holder, progress)
                with contextlib.suppress(DisconnectedError):
                    return await self._attempt(progress.connection, origin, request, bodiless)
            raise DisconnectedError

    async def close(self) -> None:
        """Close all connections; none is opened afterwards."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._idle.clear()
        closing = [connection.closed for connection in self._open]
        for connection in list(self._open):
            connection.abort()
        if closing:
            await asyncio.wait(closing)
        self._resolver.close()

    async def _attempt(
        self, connection: _Connection, origin: Origin, request: bytes, bodiless: bool
    ) -> HttpAnswer:
        try:
            return await connection.exchange(request, bodiless)
        finally:  # also when nobody waits any longer
            if connection.is_reusable:
                self._keep(origin, connection)
            else:
                connection.abort()

    # --- idle connections

    def _take(self, origin: Origin) -> _Connection | None:
        """Return the idle connection that was used last; the longer one is idle, the likelier the server gave it up."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.is_reusable:
                return connection
        return None

    def _keep(self, origin: Origin, connection: _Connection) -> None:
        connection.idle_since = self._loop.time()
        self._idle.setdefault(origin, []).append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._limits.keepalive_s / 2, self._let_go)

    def _let_go(self) -> None:
        """Close connections that were idle for too long."""
        self._sweep = None
        before = self._loop.time() - self._limits.keepalive_s / 2
        for origin, idle in list(self._idle.items()):
            for connection in idle:
                if connection.idle_since <= before:
                    connection.abort()
            left = [connection for connection in idle if connection.is_reusable]
            if left:
                self._idle[origin] = left
            else:
                del self._idle[origin]
        if self._idle:
            self._sweep = self._loop.call_later(self._limits.keepalive_s / 2, self._let_go)

    def _make_room(self) -> None:
        """Close an idle connection when the maximum number is open, or about to be.

        Fewer than that are in use, or this request would wait.
        """
        if len(self._open) + self._opening <= self._limits.connections:
            return
        waiting = (
            next((connection for connection in idle if connection.is_reusable), None)
            for idle in self._idle.values()
        )
        oldest = min(
            (connection for connection in waiting if connection is not None),
            key=lambda connection: connection.idle_since,
            default=None,
        )
        if oldest is not None:
            oldest.abort()

    # --- new connections

    async def _connect(self, origin: Origin, holder: Holder, progress: ExchangeProgress) -> _Connection:
        self._opening += 1
        try:
            self._make_room()
            progress.connection = None
            progress.step = f"looking up the address of {origin.host}"
            addresses = await self._addresses(origin, holder)
            progress.step = f"connecting to {origin.destination}"
            async with asyncio.timeout(self._limits.connect_s):
                return await self._connect_to(origin, addresses, progress)
        except TimeoutError:
            raise ConnectTimeoutError(str(progress)) from None
        finally:
            self._opening -= 1

    async def _connect_to(
        self, origin: Origin, addresses: list[Any], progress: ExchangeProgress
    ) -> _Connection:
        sock = await start_connection(
            addresses,
            happy_eyeballs_delay=EYEBALLS_S,
            interleave=1,
            loop=self._loop,
            socket_factory=partial(self._make_socket, origin),
        )
        try:
            connection = _Connection(self._limits, self._loop, self._open.discard)
            tls: dict[str, Any] = {}
            if origin.tls:
                progress.step = f"shaking hands with {origin.destination} for TLS"
                self._tls = self._tls or tls_context()
                tls = {"ssl": self._tls, "server_hostname": origin.host.rstrip(".")}
            await self._loop.create_connection(lambda: connection, sock=sock, **tls)
        except BaseException:
            sock.close()
            raise
        if not connection.closed.done():
            self._open.add(connection)
        return connection

    async def _addresses(self, origin: Origin, holder: Holder) -> list[Any]:
        """Return the addresses of a host, all of which must be allowed (hog-runtime 9)."""
        addresses = await self._resolver.resolve(origin.host, origin.port, holder)
        for info in addresses:
            self._check(info[4][0], origin)
        return addresses

    def _make_socket(self, origin: Origin, info: Any) -> socket.socket:
        """Return a new socket, unless the guard refuses its address. No other function makes sockets."""
        family, kind, protocol, _, sockaddr = info
        self._check(sockaddr[0], origin)
        new_socket = socket.socket(family=family, type=kind, proto=protocol)
        new_socket.setblocking(False)
        with contextlib.suppress(OSError):
            new_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return new_socket

    def _check(self, address: str, origin: Origin) -> None:
        if not self._guard.allows(ip_address(address.partition("%")[0]), host_allowed=origin.host_allowed):
            raise BlockedAddressError(address)


def tls_context() -> ssl.SSLContext:
    """Return the TLS context of connections, which trusts the certificates that the system trusts."""
    return ssl.create_default_context()


class _Connection(asyncio.Protocol):
    """One connection: one request at a time, and the answer to it."""

    def __init__(
        self,
        limits: ConnectionLimits,
        loop: asyncio.AbstractEventLoop,
        lost: Callable[[_Connection], None],
    ) -> None:
        self.is_reusable = False
        self.idle_since = 0.0
        self.closed: asyncio.Future[None] = loop.create_future()
        self._limits = limits
        self._loop = loop
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._waiter: asyncio.Future[HttpAnswer] | None = None
        self._begin(bodiless=False)

    def _begin(self, *, bodiless: bool) -> None:
        self._bodiless = bodiless
        self._status = 0
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._received = 0
        self._body = bytearray()
        self._body_bytes = 0
        self._inflater: Any = None
        self._is_framed = False  # the head says where the body ends
        self._has_head = False
        self._is_complete = False
        self._is_truncated = False
        self._goes_on = False  # the other side keeps the connection open

    @property
    def received(self) -> int:
        """Number of bytes of the answer received so far."""
        return self._received

    def exchange(self, request: bytes, bodiless: bool) -> asyncio.Future[HttpAnswer]:
        """Send a request and return the answer."""
        self.is_reusable = False
        self._begin(bodiless=bodiless)
        self._waiter = self._loop.create_future()
        if self._transport is None:
            self._fail(DisconnectedError())
        else:
            self._transport.write(request)
        return self._waiter

    def abort(self) -> None:
        """Close the connection at once."""
        self.is_reusable = False
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._parser = httptools.HttpResponseParser(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_reusable = False
        self._transport = self._parser = None
        if self._waiter is not None:
            if not self._has_head:
                self._fail(DisconnectedError())
            elif self._is_framed or exc is not None:
                self._fail(InvalidAnswerError("The answer ended too early"))
            else:
                self._goes_on = False
                self._finish()  # without a length, the end of the connection is that of the body
        self._lost(self)
        if not self.closed.done():
            self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._parser is None:
            self.abort()  # nobody asked for it
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._goes_on = False
            if not self._is_complete:
                self._fail(_reason_of(error))
                return
        if self._is_complete:
            self._finish()
        elif (
            self._received - self._body_bytes
            > self._limits.max_head_bytes + FRAMING_FACTOR * self._body_bytes
        ):
            self._fail(InvalidAnswerError("The head of the answer is too large"))

    # --- what the parser finds

    def on_message_begin(self) -> None:
        if self._is_complete:
            self._goes_on = False  # an answer that nobody asked for

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > self._limits.max_head_bytes:
            raise InvalidAnswerError("The head of the answer is too large")
        if self._has_head:
            return  # a trailer, or of an answer that nobody asked for
        lower = name.decode("latin-1").lower()
        if lower == "content-length" or (lower == "transfer-encoding" and b"chunked" in value.lower()):
            self._is_framed = True
        self._headers.setdefault(lower, value.decode("utf-8", "replace"))

    def on_headers_complete(self) -> None:
        if self._has_head:
            return
        self._status = self._parser.get_status_code()
        if 100 <= self._status < 200:
            return
        self._has_head = True
        self._inflater = _inflater(self._headers.get("content-encoding", ""))
        if self._bodiless:
            self._is_complete = (
                True  # the parser would wait for the body: the connection cannot be used again
            )

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._is_complete:
            return
        limit = self._limits.max_response_bytes
        if self._inflater is not None:
            body = self._inflater.decompress(body, limit + 1 - len(self._body))
        self._body += body
        if len(self._body) > limit:
            del self._body[limit:]
            self._is_truncated = self._is_complete = True  # the rest is not needed

    def on_message_complete(self) -> None:
        if self._is_complete:
            self._goes_on = False
        elif self._has_head:
            self._is_complete = True
            self._goes_on = self._parser.should_keep_alive()
        else:  # an interim answer: the real one follows
            self._headers.clear()
            self._is_framed = False

    # --- its end

    def _finish(self) -> None:
        waiter, self._waiter = self._waiter, None
        transport = self._transport
        self.is_reusable = (
            self._goes_on
            and transport is not None
            and not transport.is_closing()
            and not transport.get_write_buffer_size()  # it answered before it had read the request
        )
        answer = HttpAnswer(self._status, self._headers, self._body, self._is_truncated)
        self._begin(bodiless=False)  # an idle connection keeps nothing of an answer, which may be large
        if waiter is not None and not waiter.done():
            waiter.set_result(answer)

    def _fail(self, error: Exception) -> None:
        waiter, self._waiter = self._waiter, None
        self.abort()
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)


def _reason_of(error: Exception) -> Exception:
    """Return the error to report for an error of the parser, or of the callbacks it called."""
    cause = error.__context__
    if isinstance(cause, InvalidAnswerError):
        return cause
    if isinstance(cause, zlib.error):
        return InvalidAnswerError("The body of the answer cannot be decompressed")
    return InvalidAnswerError("The answer is not valid HTTP")


def _inflater(encoding: str) -> Any:
    match encoding.lower().strip():
        case "gzip" | "x-gzip":
            return zlib.decompressobj(zlib.MAX_WBITS | 16)
        case "deflate":
            return zlib.decompressobj()
        case _:
            return None
