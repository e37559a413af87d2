"""Outgoing HTTP requests of hog functions (spec hog-runtime 4.5 and 9).

Each new connection is checked where its socket is made, so that neither an odd spelling of an address nor
a name that resolves differently the second time gets past. Redirects are not followed.
"""

from __future__ import annotations

import contextlib
import re
import socket
import zlib
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Literal

import aiohttp
import orjson
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from hoglab import __version__
from hoglab.delivery.addresses import AddressGuard, literal_address

FailureKind = Literal["invalid_url", "invalid_header", "blocked", "dns", "timeout", "network"]

_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# Computed here, or a way to reach another virtual host than the one whose address was checked.
_OURS = frozenset({"content-length", "host"})
TARGETS = 1_000
"""URLs that a fetcher has parsed and remembers: most functions send to the same one again and again."""
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FORBIDDEN_IN_VALUE = re.compile(r"[\r\n\0]")
_METHOD = re.compile(r"[A-Za-z]{1,32}")

# The name of the request at hand is one that the operator allowed. Connections are pooled by name, so one
# that was opened under this mark is used for the same name only.
_host_allowed: ContextVar[bool] = ContextVar("host_allowed", default=False)


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Named limits of outgoing requests (spec hog-runtime 4.1)."""

    total_s: float = 10.0
    connect_s: float = 3.0
    max_response_bytes: int = 2 * 1024 * 1024
    max_request_bytes: int = 1024 * 1024
    connections: int = 500
    connections_per_host: int = 100
    keepalive_s: float = 10.0


@dataclass(frozen=True, slots=True)
class FetchRequest:
    url: str
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """An answer. ``body`` is JSON where it parses, else text; ``headers``: lower-case name to first value."""

    status: int
    body: Any
    headers: dict[str, str]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class FetchFailure:
    """No answer came. ``name`` and ``detail`` are what the program and the log get to see."""

    kind: FailureKind
    name: str
    detail: str

    @property
    def retriable(self) -> bool:
        """Whether a later try may succeed: addresses and requests that are refused stay refused."""
        return self.kind in ("dns", "timeout", "network")


@dataclass(frozen=True, slots=True)
class _Target:
    """Where a URL leads, as far as it says so itself."""

    url: URL
    host_allowed: bool  # by name, by the operator
    blocked: bool


class BlockedAddressError(OSError):
    """The guard refused to connect."""


class Fetcher:
    """A pooled HTTP client behind the guard. Made and used on one event loop; close it there."""

    def __init__(self, guard: AddressGuard, limits: FetchLimits | None = None) -> None:
        self._guard = guard
        self._limits = limits or FetchLimits()
        self._target = lru_cache(maxsize=TARGETS)(self._find_target)
        connector = aiohttp.TCPConnector(
            resolver=_GuardedResolver(guard),
            socket_factory=self._make_socket,
            limit=self._limits.connections,
            limit_per_host=self._limits.connections_per_host,
            keepalive_timeout=self._limits.keepalive_s,
            use_dns_cache=False,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(
                total=self._limits.total_s,
                sock_connect=self._limits.connect_s,
            ),
            trust_env=False,  # a proxy would connect in our place, past the guard
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Content-Type", "User-Agent"),
        )

    async def fetch(self, request: FetchRequest) -> FetchResponse | FetchFailure:
        """Send one request. Never raises for what the network or the other side does."""
        target = self._target(request.url)
        if isinstance(target, FetchFailure):
            return target
        headers = _outgoing_headers(request.headers)
        if isinstance(headers, FetchFailure):
            return headers
        if not _METHOD.fullmatch(request.method):
            return FetchFailure("invalid_url", "TypeError", f"'{request.method}' is not a valid HTTP method")
        method = request.method.upper()
        body = None
        if request.body is not None and method not in ("GET", "HEAD"):
            body = request.body.encode("utf-8", "replace")
            if len(body) > self._limits.max_request_bytes:
                return FetchFailure(
                    "invalid_url", "TypeError", f"Request body exceeds {self._limits.max_request_bytes} bytes"
                )
        if target.blocked:
            return _blocked()

        token = _host_allowed.set(target.host_allowed)
        try:
            answer = await self._attempt(method, target.url, headers, body)
            if isinstance(answer, FetchFailure) and answer.name in _BROKEN_CONNECTION:
                # A kept-alive connection that the other side had closed; tells nothing about the request.
                answer = await self._attempt(method, target.url, headers, body)
            return answer
        finally:
            _host_allowed.reset(token)

    def host_of(self, text: str) -> str:
        """The host that a URL leads to, the same for all spellings of an address; empty when it leads nowhere."""
        target = self._target(text)
        return "" if isinstance(target, FetchFailure) else target.url.raw_host or ""

    def _find_target(self, text: str) -> _Target | FetchFailure:
        url = parse_url(text)
        if isinstance(url, FetchFailure):
            return url
        host = url.raw_host or ""
        allowed = self._guard.allows_host(host)
        literal = literal_address(host)
        if literal is None:
            return _Target(url, allowed, blocked=False)
        blocked = not self._guard.allows(literal, host_allowed=allowed)
        return _Target(url.with_host(str(literal)), allowed, blocked)

    async def _attempt(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None
    ) -> FetchResponse | FetchFailure:
        try:
            async with self._session.request(
                method, url, headers=headers, data=body, allow_redirects=False
            ) as response:
                raw, truncated = await self._read(response)
                return _response(response, raw, truncated)
        except TimeoutError:
            return FetchFailure(
                "timeout", "TimeoutError", f"The request timed out after {self._limits.total_s:g} s"
            )
        except aiohttp.InvalidURL:
            return _invalid_url()
        except (aiohttp.ClientError, OSError) as error:  # before ValueError, which certificate errors are too
            return _network_failure(error)
        except ValueError:
            return _invalid_url()

    async def _read(self, response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
        """The body up to the limit, and whether there was more. Decompression stops at the limit too."""
        limit, content = self._limits.max_response_bytes, response.content
        encoding = response.headers.get("Content-Encoding", "").lower().strip()
        inflater = _inflater(encoding)
        if inflater is None and content.is_eof() and content.total_bytes <= limit:  # all came at once
            return content.read_nowait(), False
        parts = bytearray()
        async for chunk in content.iter_any():
            parts += inflater.decompress(chunk, limit + 1 - len(parts)) if inflater else chunk
            if len(parts) > limit:
                response.close()  # the rest is not wanted, and the connection cannot be used again
                return bytes(parts[:limit]), True
        return bytes(parts), False

    def _make_socket(self, info: Any) -> socket.socket:
        """The one place where sockets come from: refuses addresses that the guard refuses."""
        family, kind, protocol, _, sockaddr = info
        if not self._guard.allows(
            ip_address(sockaddr[0].partition("%")[0]), host_allowed=_host_allowed.get()
        ):
            raise BlockedAddressError(f"{sockaddr[0]} is not allowed")
        made = socket.socket(family=family, type=kind, proto=protocol)
        with contextlib.suppress(OSError):
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    async def close(self) -> None:
        await self._session.close()


class _GuardedResolver(AbstractResolver):
    """Resolves names and refuses those with any address that is not allowed (hog-runtime 9)."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._resolver = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        results = await self._resolver.resolve(host, port, family)
        allowed = _host_allowed.get()
        for result in results:
            if not self._guard.allows(ip_address(result["host"].partition("%")[0]), host_allowed=allowed):
                raise BlockedAddressError(f"{host} leads to {result['host']}, which is not allowed")
        return results

    async def close(self) -> None:
        await self._resolver.close()


def parse_url(text: str) -> URL | FetchFailure:
    """A URL that can be fetched, or why it cannot."""
    try:
        url = URL(text.strip())
    except (ValueError, UnicodeError):
        return _invalid_url()
    if not url.scheme:
        return _invalid_url()
    if url.scheme.lower() not in ("http", "https"):
        return FetchFailure("invalid_url", "TypeError", "Scheme must be either HTTP or HTTPS")
    if not url.raw_host:
        return FetchFailure("invalid_url", "TypeError", "No hostname")
    return url


def _outgoing_headers(wanted: Mapping[str, str]) -> dict[str, str] | FetchFailure:
    headers = {}
    for name, value in wanted.items():
        if not _HEADER_NAME.fullmatch(name) or _FORBIDDEN_IN_VALUE.search(value):
            return FetchFailure("invalid_header", "TypeError", f"Invalid header {name[:100]!r}")
        if name.lower() not in _HOP_BY_HOP and name.lower() not in _OURS:
            headers[name] = value
    names = {name.lower() for name in headers}
    if "user-agent" not in names:
        headers["User-Agent"] = f"hoglab/{__version__}"
    if "accept" not in names:
        headers["Accept"] = "*/*"
    if "accept-encoding" not in names:
        headers["Accept-Encoding"] = "gzip, deflate"
    return headers


def _inflater(encoding: str) -> Any:
    match encoding:
        case "gzip" | "x-gzip":
            return zlib.decompressobj(zlib.MAX_WBITS | 16)
        case "deflate":
            return zlib.decompressobj()
        case _:
            return None


def _response(response: aiohttp.ClientResponse, raw: bytes, truncated: bool) -> FetchResponse:
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        headers.setdefault(name.lower(), value)
    text = raw.decode("utf-8", "replace")
    body: Any = text
    if not truncated:
        with contextlib.suppress(orjson.JSONDecodeError):
            body = orjson.loads(raw)
    return FetchResponse(response.status, body, headers, truncated)


_BROKEN_CONNECTION = frozenset({"ServerDisconnectedError", "ConnectionResetError", "BrokenPipeError"})


def _network_failure(error: BaseException) -> FetchFailure:
    causes = list(_causes(error))
    if any(isinstance(cause, BlockedAddressError) for cause in causes):
        return _blocked()
    if any(isinstance(cause, (aiohttp.ClientConnectorDNSError, socket.gaierror)) for cause in causes):
        return FetchFailure("dns", "ResolutionError", "Invalid hostname")
    if any(isinstance(cause, TimeoutError) for cause in causes):
        return FetchFailure("timeout", "TimeoutError", "The connection timed out")
    for cause in causes:
        if type(cause).__name__ in _BROKEN_CONNECTION:
            return FetchFailure("network", type(cause).__name__, "The other side closed the connection")
        if isinstance(cause, ConnectionRefusedError):
            return FetchFailure("network", "ConnectionRefusedError", "The connection was refused")
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        return FetchFailure("network", "CertificateError", "The TLS connection could not be verified")
    return FetchFailure("network", type(error).__name__, str(error)[:200] or "The request failed")


def _causes(error: BaseException | None) -> Any:
    """An error, what it wraps, and what those were raised from."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        waiting += [current.__cause__, current.__context__, getattr(current, "os_error", None)]
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions


def _invalid_url() -> FetchFailure:
    return FetchFailure("invalid_url", "TypeError", "Invalid URL")


def _blocked() -> FetchFailure:
    return FetchFailure("blocked", "SecureRequestError", "Hostname is not allowed")
