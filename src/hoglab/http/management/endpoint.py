"""The management API as an ASGI application: the checks in their order, then the handler.

spec: experiments-api 1.4
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from hoglab.fairness.fair_semaphore import Holder, TooManyWaitingError
from hoglab.fairness.fair_threads import FairThreads
from hoglab.http import errors
from hoglab.http.compression import compress
from hoglab.http.fields.unknown_keys import warnings_of_body, with_warnings
from hoglab.http.identity import Principal, Project, Unknown
from hoglab.http.management import access
from hoglab.http.management.call import Call, holder_of
from hoglab.http.management.idempotency import HEADER as IDEMPOTENCY_KEY
from hoglab.http.management.preconditions import EntityTags, entity_tag, tag_of
from hoglab.http.management.routing import LAG_HEADER
from hoglab.http.management.session_cookie import is_foreign, is_same_origin, session_token
from hoglab.http.management.table import Entry, RoutingTable
from hoglab.http.management.throttling import Throttle
from hoglab.http.requests import budget
from hoglab.http.requests.body import (
    JSON,
    MULTIPART,
    URLENCODED,
    Body,
    ContentType,
    announces_body,
    decode,
    decoded_bytes,
    discard_body,
    empty_body,
    header,
    read_body,
)
from hoglab.http.requests.client_ip import nearest_address
from hoglab.http.responses import EncodedObject, empty_response, encode_json, json_response
from hoglab.http.streams import EventStream
from hoglab.storage.database import repeat_conflicts

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from hoglab.http.identity import Authenticator, Credentials
    from hoglab.http.management.config import HttpConfig, Surroundings
    from hoglab.http.management.idempotency import Idempotency
    from hoglab.http.management.routing import Operation, ResourceRouter

CROWDED_RETRY_S = 5.0
"""Value of ``Retry-After`` when too much waits for a thread."""

DECODING_THREADS = 2
"""Maximum number of large bodies that are decoded at the same time."""
STRANGER_BODY_BYTES = 64 * 1024
"""Largest body that is read to look for a key in it: what is longer comes with its key in the header."""

RECORD_KEY = "hoglab.record"
"""Key of the scope under which facts about a request are kept for the access log and the metrics."""

_NOT_KEPT = "no-store"
_REVALIDATED = "private, no-cache"
"""Value of ``Cache-Control`` for a response without its own: it is for the holder of a key, and may be secret."""
_READING = frozenset({"GET", "HEAD"})
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_WITH_KEY = frozenset({JSON, URLENCODED, MULTIPART})
"""Media types of bodies that may hold a key."""
_KEY_ELSEWHERE = (
    f" A key in the body is looked for in bodies of up to {STRANGER_BODY_BYTES} bytes; "
    "send it as `Authorization: Bearer <key>`."
)
_JSON_ALONE = f" Without a key, the body must be {JSON}."


@dataclass(slots=True)
class RequestRecord:
    """Facts about a request that are collected while it is served."""

    key_id: str | None = None
    session_id: str | None = None
    project_id: int | None = None
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Arrived:
    """A request under way: what has been read of it so far."""

    scope: Scope
    receive: Receive
    raw: bytes | None = None
    untouched: bool = True
    """Whether nobody has begun to read the body."""


class ManagementApi:
    """Serves the operations of all routers.

    Checks happen in this order: route, key, scope, the key's limits, project, membership, throttle, method,
    body, then the handler with its lookups and validation. Handlers that are plain functions run in threads.
    """

    def __init__(
        self,
        routers: Iterable[ResourceRouter],
        authenticator: Authenticator,
        config: HttpConfig,
        surroundings: Surroundings,
        *,
        sessions: Credentials | None,
        idempotency: Idempotency | None,
    ) -> None:
        self.table = RoutingTable(operation for router in routers for operation in router.operations)
        self._authenticator = authenticator
        self._sessions = sessions
        self._throttle = Throttle() if config.rate_limit_enabled else None
        self._idempotency = idempotency
        self._max_body_bytes = config.max_body_bytes
        self._body_timeout_s = config.body_timeout_s
        self._public_url = config.public_url
        self._lag_s = surroundings.lag_s
        self._catch_up = surroundings.catch_up
        self._now = surroundings.now
        self._threads = FairThreads(config.handler_threads, "hoglab-http")
        self._heavy_threads = FairThreads(config.heavy_threads, "hoglab-heavy")
        self._decoders = ThreadPoolExecutor(DECODING_THREADS, thread_name_prefix="hoglab-decode")

    def close(self) -> None:
        """Accept no more work. Running handlers are not waited for."""
        self._threads.close()
        self._heavy_threads.close()
        self._decoders.shutdown(wait=False, cancel_futures=True)

    async def serve(
        self, entry: Entry, segments: dict[str, str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer a request whose path was found in `table`. Errors are raised, for the caller to answer."""
        arrived = _Arrived(scope, receive)
        try:
            response = await self._answer(entry, segments, arrived)
        finally:
            if arrived.untouched:
                await discard_body(scope, receive)
        record: RequestRecord = scope[RECORD_KEY]
        operation = entry.operation(scope["method"])
        kept = operation is not None and operation.versioned and record.session_id is None
        response.headers.setdefault("Cache-Control", _REVALIDATED if kept else _NOT_KEPT)
        if not isinstance(response, EventStream):  # which asks again who its client is
            del arrived  # the body makes room for others', however slowly this answer is read
            budget.release(scope)
        await response(scope, receive, send)

    async def _answer(self, entry: Entry, segments: dict[str, str], arrived: _Arrived) -> Response:
        scope = arrived.scope
        method: str = scope["method"]
        record: RequestRecord = scope.setdefault(RECORD_KEY, RequestRecord())
        operation = entry.operation(method)
        if operation is not None and operation.is_open:
            return await self._answer_anybody(operation, arrived, record)
        if self._catch_up is not None:
            await asyncio.to_thread(self._catch_up)

        recognised = await self._recognised(arrived)
        if recognised is None:
            if operation is not None and operation.for_strangers and self._reads_at_home(scope):
                return await self._answer_anybody(operation, arrived, record)
            ended = self._sessions is not None and session_token(scope, self._public_url) is not None
            raise errors.session_ended() if ended else errors.not_authenticated()
        principal, counted = recognised
        record.key_id, record.session_id = principal.key_id, principal.session_id
        if operation is not None:
            access.check_scopes(principal, operation.needs)
        project = None
        if entry.project_scoped:
            project = self._project(segments.pop("project_id"), principal)
            principal = principal.at(project.organization_id)
            record.project_id = project.id
        else:
            access.check_outside_projects(principal, operation)
        holder = holder_of(principal, project)
        budget.known_owner(scope, str(holder.owner))
        self._credentials(principal).used(principal)
        if self._throttle is not None and counted:
            wait_s = self._throttle.admit(principal.credential)
            if wait_s is not None:
                raise errors.throttled(wait_s)

        if operation is None:
            raise errors.method_not_allowed(method, entry.allow)
        if operation.handler is None:
            return empty_response(405, {"Allow": entry.allow})
        if method == "OPTIONS":
            return _options(entry, operation)
        body = await self._body(arrived, self._max_body_bytes) if method in _WITH_BODY else empty_body()
        request = Request(scope, arrived.receive)
        call = Call(request, principal, self._now(), body, project, self._public_url, record.notes)
        response = await self._handled(
            operation, operation.handler, call, segments, arrived.raw or b"", holder
        )
        if isinstance(response, EventStream) and project is not None:
            response.is_allowed = partial(self._is_allowed, arrived, operation, project)
        if operation.reads_events:
            response.headers[LAG_HEADER] = f"{await asyncio.to_thread(self._lag_s):.1f}"
        return response

    async def _is_allowed(self, arrived: _Arrived, operation: Operation, project: Project) -> bool:
        """Return whether the sender of an earlier request might send it now, too."""
        try:
            recognised = await self._recognised(arrived)
            if recognised is None:
                return False
            principal, _ = recognised
            access.check_scopes(principal, operation.needs)
            self._project(str(project.id), principal)
        except errors.ApiError:
            return False
        return True

    async def _answer_anybody(
        self, operation: Operation, arrived: _Arrived, record: RequestRecord
    ) -> Response:
        """Answer an operation that is open to everybody, or to somebody who is not known."""
        scope = arrived.scope
        if is_foreign(scope, self._public_url):
            raise errors.foreign_page()
        _check_json(scope)
        body = await self._body(arrived, min(self._max_body_bytes, STRANGER_BODY_BYTES))
        assert operation.handler is not None  # noqa: S101 - those that refuse ask for a scope
        request = Request(scope, arrived.receive)
        call = Call(request, None, self._now(), body, None, self._public_url, record.notes)
        holder = Holder(f"address:{nearest_address(scope)}")
        return await self._handled(operation, operation.handler, call, {}, b"", holder)

    def _reads_at_home(self, scope: Scope) -> bool:
        """Return whether a request only reads, and comes from no page of another origin."""
        return scope["method"] in _READING and is_same_origin(scope, self._public_url)

    async def _recognised(self, arrived: _Arrived) -> tuple[Principal, bool] | None:
        """Return caller, and whether the place of the key makes the request count for throttles.

        None where no key came, nor the cookie of a session. A key that is wrong raises 401.
        """
        scope = arrived.scope
        key = access.key_from_header(header(scope, b"authorization"))
        if key is not None:
            return await self._principal(access.HEADER, key), True
        key = access.key_from_query(scope["query_string"])
        principal = None if key is None else await self._principal(access.QUERY, key)
        session = None
        if key is None and self._sessions is not None:
            token = session_token(scope, self._public_url)
            session = None if token is None else await self._known(self._sessions, token)
        in_body = await self._key_in_body(arrived, known=principal is not None or session is not None)
        if in_body is not None:
            return await self._principal(access.BODY, in_body), False
        if principal is not None:
            return principal, True
        if session is not None:
            _check_json(scope)
            return session, True
        return None

    async def _principal(self, place: str, key: str) -> Principal:
        principal = await self._known(self._authenticator, key)
        if principal is None:
            raise errors.authentication_failed(place, access.no_key(key))
        return principal

    async def _known(self, credentials: Credentials, secret: str) -> Principal | None:
        remembered = credentials.recall(secret)
        if isinstance(remembered, Unknown):
            # Not in the handlers' threads: keys can then be checked even while all of these are busy.
            return await asyncio.to_thread(credentials.authenticate, secret)
        return remembered

    def _credentials(self, principal: Principal) -> Credentials:
        """Return the credentials by which a principal was authenticated."""
        if principal.session_id is not None and self._sessions is not None:
            return self._sessions
        return self._authenticator

    async def _key_in_body(self, arrived: _Arrived, *, known: bool) -> str | None:
        """Return the key inside a body, which is read for it. Of a stranger's, no more than `STRANGER_BODY_BYTES`."""
        scope = arrived.scope
        content_type = ContentType.of(header(scope, b"content-type"))
        if content_type.media_type not in _WITH_KEY or not announces_body(scope):
            return None
        limit = self._max_body_bytes if known else min(self._max_body_bytes, STRANGER_BODY_BYTES)
        try:
            return access.key_from_body((await self._body(arrived, limit)).value)
        except errors.ApiError as error:
            if error.status == 413 and not known:
                raise errors.not_authenticated(_KEY_ELSEWHERE) from None
            # A body that cannot be understood holds no key; it is complained about when its turn comes.
            if error.status not in (400, 415) or arrived.raw is None:
                raise
            return None

    def _project(self, segment: str, principal: Principal) -> Project:
        project_id = access.requested_project_id(segment, principal)
        access.check_project_limit(principal, project_id)
        project = self._authenticator.project(project_id)
        if project is None:
            raise errors.project_not_found()
        access.check_organization_limit(principal, project.organization_id)
        access.check_membership(principal, project)
        return project

    async def _body(self, arrived: _Arrived, limit_bytes: int) -> Body:
        scope = arrived.scope
        if arrived.raw is None:
            arrived.untouched = False
            arrived.raw = await read_body(scope, arrived.receive, limit_bytes, self._body_timeout_s)
        content_type = ContentType.of(header(scope, b"content-type"))
        if len(arrived.raw) <= _INLINE_BYTES:
            return decode(arrived.raw, content_type)
        loop = asyncio.get_running_loop()
        budget.charge(
            scope, await loop.run_in_executor(self._decoders, decoded_bytes, arrived.raw, content_type)
        )
        return await loop.run_in_executor(self._decoders, decode, arrived.raw, content_type)

    async def _handled(
        self,
        operation: Operation,
        handler: Callable[..., Any],
        call: Call,
        segments: dict[str, str],
        raw_body: bytes,
        holder: Holder,
    ) -> Response:
        values: dict[str, int | str] = {}
        for name, kind in operation.params.items():
            value = kind.read(segments[name])
            if value is None:
                raise errors.not_found()
            values[name] = value
        if operation.recall is not None:
            recalled = operation.recall(call, **values)
            if recalled is not None:
                return await self._finished(_encoded(recalled, operation, call), operation, call)
        if operation.is_async:
            return await self._finished(
                _encoded(await handler(call, **values), operation, call), operation, call
            )

        def run() -> Response:
            work = partial(handler, call, **values)
            # A slow handler may have asked others, or run a function, before it writes.
            return _encoded(work() if operation.heavy else repeat_conflicts(work), operation, call)

        idempotency = self._idempotency
        repeatable = operation.method == "POST" and not operation.is_open
        if idempotency is not None and repeatable and IDEMPOTENCY_KEY in call.request.headers:
            run = partial(idempotency.answer, call, raw_body, run)
        pool = self._heavy_threads if operation.heavy else self._threads
        answered = partial(_finished, run, operation, call)
        try:
            return await pool.run(holder, partial(contextvars.copy_context().run, answered))
        except TooManyWaitingError:
            raise errors.throttled(CROWDED_RETRY_S) from None

    async def _finished(self, response: Response, operation: Operation, call: Call) -> Response:
        """Return the answer to send, from one that was made on the event loop; see the function `_finished`."""
        finish = partial(_finished, lambda: response, operation, call)
        return finish() if len(response.body) <= _INLINE_BYTES else await asyncio.to_thread(finish)


_INLINE_BYTES = 64 * 1024
"""Bodies up to this size are decoded on the event loop: a thread would cost more."""


def _check_json(scope: Scope) -> None:
    """Raise 415 for a body that is no JSON: a form of any page brings one that looks like a form's."""
    media_type = ContentType.of(header(scope, b"content-type")).media_type
    if scope["method"] in _WITH_BODY and media_type != JSON and (media_type or announces_body(scope)):
        raise errors.unsupported_media_type(media_type, _JSON_ALONE)


def _encoded(result: Any, operation: Operation, call: Call) -> Response:
    if isinstance(result, Response):
        return result
    if result is None:
        return empty_response(operation.status)
    if isinstance(result, EncodedObject):
        return _versioned(result, operation, call)
    warnings = warnings_of_body(operation.body, operation.response, call.decoded.value)
    answer = with_warnings(result, warnings) if isinstance(result, dict) else result
    if operation.versioned:
        return _versioned(EncodedObject(encode_json(answer), entity_tag(result)), operation, call)
    return json_response(answer, operation.status)


def _finished(answer: Callable[[], Response], operation: Operation, call: Call) -> Response:
    """Return the answer to send: with a tag after a read, without a body when the client has it, else compressed."""
    response = answer()
    if operation.is_tagged and response.status_code == 200 and "etag" not in response.headers:
        tag = tag_of(bytes(response.body))
        response.headers["ETag"] = tag
        known = EntityTags.of(call.request.headers.get("if-none-match"))
        if known is not None and known.name(tag):
            return empty_response(304, {"ETag": tag})
    if not operation.shows_secret:
        compress(response, call.request.scope)
    return response


def _versioned(shown: EncodedObject, operation: Operation, call: Call) -> Response:
    headers = {"ETag": shown.tag}
    known = EntityTags.of(call.request.headers.get("if-none-match"))
    if known is not None and operation.method == "GET" and known.name(shown.tag):
        return empty_response(304, headers)
    return Response(shown.body, operation.status, headers, JSON)


def _options(entry: Entry, operation: Operation) -> Response:
    body = {
        "name": operation.tag,
        "description": operation.summary,
        "renders": [JSON],
        "parses": [JSON, URLENCODED, MULTIPART],
    }
    return json_response(body, headers={"Allow": entry.allow})
