"""Outgoing HTTP requests of hog functions.

What is sent, and what programs get to see of the answer (spec hog-runtime 4.5 and 9). `connections` does the talking,
behind the guard, and `redirects` says which redirects are followed.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import unquote

import orjson
from yarl import URL

from hoglab import __version__
from hoglab.delivery.outbound.addresses import (
    ALLOW_CIDRS,
    ALLOW_HOSTS,
    METADATA_ADDRESSES,
    Address,
    AddressGuard,
    effective_address,
    literal_address,
)
from hoglab.delivery.outbound.connections import (
    BlockedAddressError,
    ConnectionLimits,
    ConnectionPool,
    ConnectTimeoutError,
    DisconnectedError,
    ExchangeProgress,
    HttpAnswer,
    InvalidAnswerError,
    Origin,
)
from hoglab.delivery.outbound.deadlines import SharedTimeout
from hoglab.delivery.outbound.redirects import MAX_REDIRECTS, next_url, refusal
from hoglab.delivery.outbound.urls import INVALID, UrlError, parse_url
from hoglab.fairness.fair_semaphore import Holder
from hoglab.patterns import anchored, searched

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
"""Maximum number of parsed URLs that a fetcher remembers: most functions send to the same one again and again."""
REMEMBERED_CHARS = 4_096
"""Maximum length of URLs and names of headers that are remembered, so that remembering takes little memory."""
_HEADER_NAME = anchored(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FORBIDDEN_IN_VALUE = searched(r"[\r\n\0]")
HEADER_NAMES = 1_000
"""Maximum number of names of headers that are remembered as checked."""
_DEFAULT_HEADERS = {
    "user-agent": f"User-Agent: hoglab/{__version__}\r\n",
    "accept": "Accept: */*\r\n",
    "accept-encoding": "Accept-Encoding: gzip, deflate\r\n",
}
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE"})
_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_VISIBLE = anchored(r"[!-~]+")
_METHOD = anchored(r"[A-Za-z]{1,32}")

NOBODY = Holder(0, "")
"""Holder of requests that no function sends."""


@dataclass(frozen=True, slots=True)
class FetchLimits(ConnectionLimits):
    """Named limits of outgoing requests (spec hog-runtime 4.1)."""

    total_s: float = 10.0
    max_request_bytes: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A request to send.

    ``redirect`` is the option of that name of the web's Fetch standard: ``follow`` follows the redirects that
    `hoglab.delivery.outbound.redirects` allows and has any other answer of the 3xx kind count as a failure, ``manual``
    takes a redirect for an answer. ``is_login``: the answer may be shared with other runs of the function.
    """

    url: str
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    redirect: Literal["follow", "manual"] = "follow"
    is_login: bool = False


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """An answer. ``body`` is JSON where it parses, else text; ``headers``: lower-case name to first value.

    ``undelivered`` says why an answer without an error status does not acknowledge the request; empty where it does.
    """

    status: int
    body: Any
    headers: dict[str, str]
    truncated: bool = False
    undelivered: str = ""


@dataclass(frozen=True, slots=True)
class FetchFailure:
    """No answer came.

    ``name`` and ``detail`` are fixed texts, which programs may compare with; ``reason`` says in full what happened.
    """

    kind: FailureKind
    name: str
    detail: str
    reason: str = field(default="", compare=False)

    @property
    def text(self) -> str:
        """The failure as a text for people."""
        return f"{self.detail}: {self.reason}" if self.reason else self.detail

    @property
    def retriable(self) -> bool:
        """Whether a later attempt may succeed: refused addresses and requests stay refused."""
        return self.kind in ("dns", "timeout", "network")


@dataclass(frozen=True, slots=True)
class _Target:
    """Target of a URL, by the URL alone. ``head`` is the common part of requests to it."""

    origin: Origin
    head: bytes
    authorization: str | None
    blocked: Address | None


class Fetcher:
    """A pooled HTTP client behind the guard. Created and used on one event loop; close it there."""

    def __init__(self, guard: AddressGuard, limits: FetchLimits | None = None) -> None:
        self._guard = guard
        self._limits = limits or FetchLimits()
        self._target = lru_cache(maxsize=TARGETS)(self._find_target)
        self._connections = ConnectionPool(guard, self._limits)
        self._deadlines = SharedTimeout(self._limits.total_s)

    async def fetch(self, request: FetchRequest, holder: Holder = NOBODY) -> FetchResponse | FetchFailure:
        """Send one request on a holder's account, and again to the place it is redirected to.

        Never raises for errors of the network or the server.
        """
        target = self._target_of(request.url)
        if isinstance(target, FetchFailure):
            return target
        progress = ExchangeProgress()
        try:
            with self._deadlines.limit():
                return await self._follow(request, target, holder, progress)
        except TimeoutError:
            detail = f"The request timed out after {self._limits.total_s:g} s"
            return FetchFailure("timeout", "TimeoutError", detail, f"it was {progress}")

    async def _follow(
        self, request: FetchRequest, target: _Target, holder: Holder, progress: ExchangeProgress
    ) -> FetchResponse | FetchFailure:
        """Send a request, and again wherever an answer redirects it to and may. Raises `TimeoutError`."""
        url, authorization = request.url, target.authorization
        for followed in range(MAX_REDIRECTS + 1):
            answer = await self._send(request, target, authorization, holder, progress)
            if isinstance(answer, FetchFailure) or not 300 <= answer.status < 400:
                return answer
            if request.redirect == "manual":
                return answer
            location = answer.headers.get("location")
            following = next_url(url, answer.status, location)
            if following is None or followed == MAX_REDIRECTS:
                reason = refusal(url, location, exhausted=following is not None)
                return replace(answer, undelivered=reason)
            url = following
            next_target = self._target_of(url)
            if isinstance(next_target, FetchFailure):
                return next_target
            target = next_target
        raise AssertionError("the last redirect is refused")

    async def _send(
        self,
        request: FetchRequest,
        target: _Target,
        authorization: str | None,
        holder: Holder,
        progress: ExchangeProgress,
    ) -> FetchResponse | FetchFailure:
        """Send a request to one target, once. Raises `TimeoutError` when the time for all of it is over."""
        method = request.method.upper()
        raw = self._bytes_of(request, method, target, authorization)
        if isinstance(raw, FetchFailure):
            return raw
        origin = target.origin
        if target.blocked is not None:
            return _blocked(origin, target.blocked)
        try:
            answer = await self._connections.exchange(
                origin, raw, bodiless=method == "HEAD", holder=holder, progress=progress
            )
        except TimeoutError:
            raise
        except (OSError, InvalidAnswerError) as error:
            return _network_failure(error, origin)
        except ValueError:  # a name that is not valid
            return _invalid_url()
        return _response(answer)

    def destination_of(self, text: str) -> str:
        """Return the host and the port that a URL leads to, the same for all spellings of an address.

        Empty for a URL that leads nowhere.
        """
        target = self._target_of(text)
        return "" if isinstance(target, FetchFailure) else target.origin.destination

    async def close(self) -> None:
        await self._connections.close()
        self._deadlines.close()

    def _target_of(self, text: str) -> _Target | FetchFailure:
        return self._target(text) if len(text) <= REMEMBERED_CHARS else self._find_target(text)

    def _find_target(self, text: str) -> _Target | FetchFailure:
        try:
            url = parse_url(text)
        except UrlError as error:
            return _invalid_url(str(error))
        host = url.raw_host or ""
        allowed = self._guard.allows_host(host)
        literal = literal_address(host)
        blocked = None
        if literal is not None:
            blocked = None if self._guard.allows(literal, host_allowed=allowed) else literal
            url = url.with_host(str(literal))
        origin = Origin(url.scheme == "https", url.raw_host or "", url.port or 0, allowed)
        path, name = url.raw_path_qs, url.host_port_subcomponent or ""
        if not _VISIBLE.fullmatch(path) or not _VISIBLE.fullmatch(name):
            return _invalid_url()  # only the path and the host may get into the head of the request
        head = f" {path} HTTP/1.1\r\nHost: {name}\r\n".encode()
        return _Target(origin, head, _authorization(url), blocked)

    def _bytes_of(
        self, request: FetchRequest, method: str, target: _Target, authorization: str | None
    ) -> bytes | FetchFailure:
        """Return the bytes of a request."""
        if not _METHOD.fullmatch(request.method) or method == "CONNECT":
            return FetchFailure("invalid_url", "TypeError", f"'{request.method}' is not a valid HTTP method")
        head = _head_of(request.headers, authorization)
        if isinstance(head, FetchFailure):
            return head
        body = b""
        if request.body is not None and method not in ("GET", "HEAD"):
            body = request.body.encode("utf-8", "replace")
            if len(body) > self._limits.max_request_bytes:
                return FetchFailure(
                    "invalid_url", "TypeError", f"Request body exceeds {self._limits.max_request_bytes} bytes"
                )
        length = b"Content-Length: %d\r\n" % len(body) if body or method not in _WITHOUT_BODY else b""
        return b"".join((method.encode(), target.head, head, length, b"\r\n", body))


def _sent_as(name: str) -> str | None:
    """Return a header's name in lower case; empty when functions may not set it, None when it is not a name."""
    if not _HEADER_NAME.fullmatch(name):
        return None
    lower = name.lower()
    return "" if lower in _HOP_BY_HOP or lower in _OURS else lower


_sent_as_known = lru_cache(maxsize=HEADER_NAMES)(_sent_as)


def _head_of(wanted: Mapping[str, str], authorization: str | None) -> bytes | FetchFailure:
    """Return the lines of a function's headers, and of the headers that it leaves to this client."""
    names = set()
    head = ""
    for name, value in wanted.items():
        lower = _sent_as_known(name) if len(name) <= REMEMBERED_CHARS else _sent_as(name)
        if lower is None or _FORBIDDEN_IN_VALUE.search(value):
            return FetchFailure("invalid_header", "TypeError", f"Invalid header {name[:100]!r}")
        if lower:
            names.add(lower)
            head += f"{name}: {value}\r\n"
    for name, line in _DEFAULT_HEADERS.items():
        if name not in names:
            head += line
    if authorization is not None and "authorization" not in names:
        head += f"Authorization: {authorization}\r\n"
    return head.encode("utf-8", "replace")


def _authorization(url: URL) -> str | None:
    """Return the value of ``Authorization`` for the user and password in a URL; None without either."""
    if not url.raw_user and not url.raw_password:
        return None
    pair = f"{unquote(url.raw_user or '')}:{unquote(url.raw_password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _response(answer: HttpAnswer) -> FetchResponse:
    if not answer.truncated:
        with contextlib.suppress(orjson.JSONDecodeError):
            return FetchResponse(answer.status, orjson.loads(answer.body), answer.headers)
    body = answer.body.decode("utf-8", "replace")
    return FetchResponse(answer.status, body, answer.headers, answer.truncated)


def _network_failure(error: Exception, origin: Origin) -> FetchFailure:
    match error:
        case BlockedAddressError(address=address):
            return _blocked(origin, ip_address(address.partition("%")[0]))
        case socket.gaierror(errno=number):
            is_for_now = number in (socket.EAI_AGAIN, socket.EAI_FAIL)
            reason = "the name servers gave no answer for" if is_for_now else "there is no address for"
            return FetchFailure("dns", "ResolutionError", "Invalid hostname", f"{reason} {origin.host}")
        case ConnectTimeoutError():
            return FetchFailure("timeout", "TimeoutError", "The connection timed out", f"it was {error}")
        case DisconnectedError():
            name = "ServerDisconnectedError"
            return FetchFailure("network", name, "The other side closed the connection", "it sent no answer")
        case ConnectionRefusedError():
            reason = f"nothing accepts connections at {origin.destination}"
            return FetchFailure("network", "ConnectionRefusedError", "The connection was refused", reason)
        case ssl.SSLError():
            detail = "The TLS connection could not be verified"
            return FetchFailure("network", "CertificateError", detail, _tls_reason(error, origin.host))
    return FetchFailure("network", type(error).__name__, str(error)[:200] or "The request failed")


def _tls_reason(error: ssl.SSLError, host: str) -> str:
    """Return the problem of a certificate, or of the response that arrived in place of a handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {host}: {error.verify_message}"
    if error.reason in _NO_TLS:
        return f"{host} does not speak TLS at this port"
    return (error.reason or "the handshake failed").lower().replace("_", " ")


def _invalid_url(reason: str = INVALID) -> FetchFailure:
    return FetchFailure("invalid_url", "TypeError", reason)


def _blocked(origin: Origin, address: Address) -> FetchFailure:
    reached = effective_address(address)
    where = f"{reached}" if literal_address(origin.host) else f"{origin.host} leads to {reached}, which"
    if reached in METADATA_ADDRESSES:
        reason = f"{where} is an address of cloud metadata, which is never reached"
    else:
        settings = f"{ALLOW_CIDRS} or {ALLOW_HOSTS}"
        reason = f"{where} is not a public address; the operator of the server may allow it with {settings}"
    return FetchFailure("blocked", "SecureRequestError", "Hostname is not allowed", reason)
