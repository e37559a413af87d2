"""The whole server as one ASGI application."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog
from starlette.routing import Match
from uuid_utils import uuid4

from hoglab import __version__
from hoglab.http import errors
from hoglab.http.content_policy import missing_policy
from hoglab.http.cors import cors_headers, grant_preflight, is_preflight
from hoglab.http.documents.docs_page import docs_app
from hoglab.http.documents.explorer import explorer_apps
from hoglab.http.documents.openapi import Document, schema_app
from hoglab.http.health import probes
from hoglab.http.logs import bind_request_id, log_request, redact_keys, redact_query
from hoglab.http.management.endpoint import RECORD_KEY, ManagementApi, RequestRecord
from hoglab.http.metrics import observe
from hoglab.http.requests.body import ClientGoneError, discard_body, header
from hoglab.http.requests.budget import BodyBudget, release
from hoglab.http.requests.deadlines import Deadlines
from hoglab.http.requests.host import check_host
from hoglab.http.requests.unread import UnreadAnswers
from hoglab.http.responses import error_response
from hoglab.http.welcome import welcome_apps
from hoglab.patterns import anchored

if TYPE_CHECKING:
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from hoglab.http.health import Checks
    from hoglab.http.identity import Authenticator, Credentials
    from hoglab.http.management.config import HttpConfig, Surroundings
    from hoglab.http.management.idempotency import Idempotency
    from hoglab.http.management.routing import ResourceRouter
    from hoglab.http.streams import Streams

MAX_LOGGED = 500
"""Maximum number of characters of a path, and of a query, in a line of the log."""
PART_BYTES = 64 * 1024
"""Size of the parts in which longer answers are sent, each when the previous one is on its way."""
_REQUEST_ID = anchored(r"[A-Za-z0-9._:/+=-]{1,128}")

_log = structlog.get_logger("hoglab.http")


@dataclass(frozen=True, slots=True)
class Routes:
    """The routes of an application."""

    routers: Sequence[ResourceRouter] = ()
    """The management API."""
    hot: Mapping[str, ASGIApp] = field(default_factory=dict)
    """Exact paths, with CORS headers, served with and without a slash at the end before any other lookup."""
    sdk: Sequence[BaseRoute] = ()
    """Further endpoints of SDKs, with CORS headers, whose paths have parameters."""
    public: Sequence[BaseRoute] = ()
    """Pages, webhooks and other endpoints without CORS headers."""
    paths: Mapping[str, Any] = field(default_factory=dict)
    """Further ``paths`` of the OpenAPI document."""


@dataclass(frozen=True, slots=True)
class _Target:
    """Application behind a path."""

    app: ASGIApp
    route: str
    quiet: bool = False
    """Answers without fault are logged at the debug level only."""
    cors: bool = False


def build_app(
    routes: Routes,
    authenticator: Authenticator,
    config: HttpConfig,
    surroundings: Surroundings,
    *,
    checks: Checks,
    sessions: Credentials | None,
    idempotency: Idempotency | None,
) -> HoglabApp:
    """Build the application from all routes.

    ``sessions`` are the credentials of browsers' cookies, which only the routers' operations read.
    """
    management = ManagementApi(
        routes.routers, authenticator, config, surroundings, sessions=sessions, idempotency=idempotency
    )
    document = Document(management.table, routes.paths)
    exact: dict[str, _Target] = {}
    for path, app in probes(checks, config.metrics_token, late_blocks=config.late_check_blocks).items():
        exact[path] = _Target(app, path, quiet=True)
    schema = schema_app(document)
    for path, app in welcome_apps(schema, config.home).items():
        exact[path] = _Target(app, path, quiet=True)
    described = {"/api/schema": schema, "/api/docs": docs_app(document), **explorer_apps()}
    for path, app in described.items():
        exact[path] = exact[f"{path}/"] = _Target(app, path)
    for path, app in routes.hot.items():
        plain = path.rstrip("/")
        exact[plain] = exact[f"{plain}/"] = _Target(app, plain, quiet=True, cors=True)
    patterns = [(route, True) for route in routes.sdk] + [(route, False) for route in routes.public]
    return HoglabApp(management, exact, patterns, document, config, surroundings.streams)


class HoglabApp:
    """The ASGI application: finds the endpoint, gives every request an id, logs, measures, answers errors."""

    def __init__(
        self,
        management: ManagementApi,
        exact: Mapping[str, _Target],
        patterns: Sequence[tuple[BaseRoute, bool]],
        document: Document,
        config: HttpConfig,
        streams: Streams,
    ) -> None:
        self.management = management
        self.document = document
        self._exact = exact
        self._patterns = patterns
        self._access_log = config.access_log
        self._budget = BodyBudget(config.body_budget_bytes)
        self._unread = UnreadAnswers(config.answer_budget_bytes)
        self._write_timeout_s = config.write_timeout_s
        self._streams = streams
        self._in_flight: set[asyncio.Task[Any] | None] = set()
        self.is_crowded: Callable[[], bool] = lambda: False
        """Whether connections are scarce, so that none is kept for further requests."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    def end_streams(self) -> None:
        """End the answers that have no end of their own, so that a shutdown need not wait for them."""
        self._streams.close()

    def abort_requests(self) -> int:
        """Cancel unfinished requests, for a shutdown in haste. Return how many they were."""
        left = [task for task in self._in_flight if task is not None and not task.done()]
        for task in left:
            task.cancel()
        return len(left)

    def close(self) -> None:
        """Accept no more requests for the management API."""
        self.management.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        started_at = time.perf_counter()
        request_id = _request_id(scope)
        bind_request_id(request_id)
        target = self._target(scope)
        self._budget.watch(scope)
        added = _added_headers(scope, request_id, target.cors)
        if self.is_crowded():
            added.append(_CLOSING)
        answer = _Answer(scope, send, added, self._unread, self._write_timeout_s)
        reply = grant_preflight(answer.send) if target.cors and is_preflight(scope) else answer.send
        task = asyncio.current_task()
        self._in_flight.add(task)
        try:
            check_host(scope)
            await target.app(scope, receive, reply)
        except ClientGoneError:
            if not answer.started:  # a client may have closed only its own direction, and still read
                await error_response(errors.broken_body())(scope, receive, reply)
            answer.status = CLIENT_GONE
        except Exception as error:
            # A name for the error itself would keep it, and the body of the request with it, until a collection of
            # cycles: its traceback has this frame.
            response = error_response(_known_error(error, scope["method"], target.route))
            if answer.started:
                raise
            await response(scope, receive, reply)
        finally:
            self._in_flight.discard(task)
            release(scope)
            seconds = time.perf_counter() - started_at
            observe(scope["method"], target.route, answer.status, seconds)
            if self._access_log and (not target.quiet or answer.status >= 500):
                self._write_log(scope, target, answer.status, seconds)

    def _target(self, scope: Scope) -> _Target:
        path: str = scope["path"]
        exact = self._exact.get(path)
        if exact is not None:
            return exact
        entry_and_segments = self.management.table.find(path)
        if entry_and_segments is not None:
            entry, segments = entry_and_segments

            async def serve(scope: Scope, receive: Receive, send: Send) -> None:
                await self.management.serve(entry, segments, scope, receive, send)

            return _Target(serve, entry.template)
        for route, cors in self._patterns:
            match, child_scope = route.matches(scope)
            if match is not Match.NONE:
                scope.update(child_scope)
                return _Target(route.handle, getattr(route, "path", "pattern"), quiet=True, cors=cors)
        return _NOT_FOUND

    def _write_log(self, scope: Scope, target: _Target, status: int, seconds: float) -> None:
        client = scope.get("client")
        record: RequestRecord = scope.get(RECORD_KEY) or RequestRecord()
        log_request(
            _log,
            quiet=target.quiet,
            method=scope["method"],
            path=redact_keys(scope["path"][:MAX_LOGGED]),
            query=redact_query(scope["query_string"])[:MAX_LOGGED] or None,
            status=status,
            duration_ms=round(seconds * 1000, 2),
            client=client[0] if client else None,
            key_id=record.key_id,
            project_id=record.project_id,
            **{"session_id": record.session_id, **record.notes},
        )

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.close()
        await send({"type": "lifespan.shutdown.complete"})


CLIENT_GONE = 499
"""Status in logs and metrics of a request whose client disconnected early, or did not read its answer."""


class _Answer:
    """Sends an answer to the client, with the headers that every answer has."""

    __slots__ = ("_added", "_is_head", "_scope", "_send", "_timeout_s", "_unread", "started", "status")

    def __init__(
        self,
        scope: Scope,
        send: Send,
        added: list[tuple[bytes, bytes]],
        unread: UnreadAnswers,
        timeout_s: float,
    ) -> None:
        self._scope = scope
        self._send = send
        self._added = added
        self._unread = unread
        self._timeout_s = timeout_s
        self._is_head = scope["method"] == "HEAD"
        self.started = False
        self.status = 500

    def send(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            headers = message.get("headers", ())
            message["headers"] = [*headers, *missing_policy(headers), *self._added]
        elif self._is_head:
            message = {**message, "body": b""}
        elif message.get("more_body") or len(message.get("body", b"")) > PART_BYTES:
            return self._send_parts(message.get("body", b""), more=message.get("more_body", False))
        return self._send(message)

    async def _send_parts(self, body: bytes, *, more: bool) -> None:
        """Send in parts, so that a connection holds little that its client has not read.

        Raises `ClientGoneError` when the client does not read, or not before others need the memory.
        """
        if len(body) <= PART_BYTES:
            await self._send_in_time({"type": "http.response.body", "body": bytes(body), "more_body": more})
            return
        with self._unread.kept(self._scope, body):
            await self._send_long(memoryview(body), more=more)

    async def _send_long(self, view: memoryview, *, more: bool) -> None:
        for start in range(0, len(view), PART_BYTES):
            end = start + PART_BYTES
            part: Message = {
                "type": "http.response.body",
                "body": bytes(view[start:end]),
                "more_body": more or end < len(view),
            }
            await self._send_in_time(part)

    async def _send_in_time(self, message: Message) -> None:
        deadlines = Deadlines.here()
        task = asyncio.current_task(deadlines.loop)
        assert task is not None  # noqa: S101 - requests are served in tasks
        try:
            await deadlines.within(task, self._send(message), self._timeout_s)
        except TimeoutError:
            raise ClientGoneError from None


async def _not_found(scope: Scope, receive: Receive, _send: Send) -> None:
    await discard_body(scope, receive)
    raise errors.endpoint_not_found(scope["path"])


_NOT_FOUND = _Target(_not_found, "none")


def _known_error(error: Exception, method: str, route: str) -> errors.WireError:
    """Return the error in the wire's form for an exception; an unexpected one is logged."""
    known = errors.known_error(error)
    if known is None:
        _log.exception("unhandled_exception", method=method, route=route)
        known = errors.server_error()
    return known


def _request_id(scope: Scope) -> str:
    sent = header(scope, b"x-request-id")
    if sent is not None and _REQUEST_ID.fullmatch(sent):
        return sent
    return uuid4().hex  # its generator asks the system only for a seed


_CLOSING = (b"connection", b"close")
_VERSION = (b"x-hoglab-version", __version__.encode())
"""Pages that a browser still shows notice by it that the server was updated. SDKs have no use for it."""
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")


def _added_headers(scope: Scope, request_id: str, cors: bool) -> list[tuple[bytes, bytes]]:
    added = [(b"x-request-id", request_id.encode("ascii")), _NO_SNIFFING]
    return added + cors_headers(scope) if cors else [*added, _VERSION]
