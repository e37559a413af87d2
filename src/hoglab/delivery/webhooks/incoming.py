"""Incoming webhooks: functions turn requests of others into events and answers (spec: hog-runtime 7.5).

The first turn of a function runs while the sender waits, in a few threads of its own. A program that calls out
continues in the worker, and its sender is told so. Captured events, and runs that are left to the worker, are
durable before the sender gets its answer; when that cannot be done, a 503 asks to send again.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl
from uuid import uuid4

import orjson
import structlog

from hoglab.delivery.bodies.hosted import CHAIN_PROPERTY
from hoglab.delivery.dispatch import DEGRADED_PRIORITY, OVERFLOW_QUEUE
from hoglab.delivery.execution import CHAIN_HEADER, CaptureRefusedError, Turn, TurnResult, chain_of, clipped
from hoglab.delivery.limits.function_breaker import cost_of
from hoglab.delivery.runs.globals import NO_PERSON, milliseconds
from hoglab.delivery.runs.state import RunState, encode_state, raw_json
from hoglab.fairness.fair_semaphore import FairSemaphore, Holder
from hoglab.fairness.fair_threads import FairThreads
from hoglab.hog.values import stringify
from hoglab.http.errors import ApiError
from hoglab.http.fields.fields import parse_uuid
from hoglab.http.requests.body import MAX_FORM_FIELDS, ContentType, decode, decode_json
from hoglab.http.requests.decompression import BY_NAME, BrokenDataError, TooLargeError
from hoglab.storage.database.errors import DatabaseError
from hoglab.storage.invocations import (
    AppMetric,
    ClaimedInvocation,
    InvocationBatch,
    InvocationResult,
    LogEntry,
    NewInvocation,
)

if TYPE_CHECKING:
    from hoglab.delivery.bodies.pool import BodyPool
    from hoglab.delivery.execution import EventSink, RunContext
    from hoglab.delivery.limits.function_breaker import FunctionBreakers
    from hoglab.functions.runtime import CompiledFunction
    from hoglab.http.identity import Project
    from hoglab.storage.invocations import InvocationQueue

WEBHOOK = "source_webhook"
INCOMING = "$incoming_webhook"
"""Name of the event that programs of webhooks run on. It is never stored."""

UNSEEN_HEADERS = frozenset(
    {
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-forwarded-port",
        "cookie",
        "x-csrftoken",
        "proxy-authorization",
        "referer",
        "forwarded",
        "x-real-ip",
        "true-client-ip",
        CHAIN_HEADER.lower(),
    }
)
"""Headers that programs do not see."""

TEXT_TYPE = "text/plain"
REPLY_TYPES = frozenset(
    {
        TEXT_TYPE,
        "text/csv",
        "application/json",
        "application/octet-stream",
        "application/xml",
        "image/gif",
        "image/png",
        "image/jpeg",
        "image/webp",
    }
)
"""Content types that programs may answer with: none that a browser would execute."""
REPLY_POLICY = "default-src 'none'; sandbox; form-action 'none'"
"""Content security policy of a response: XML may be a page with a form."""

LOWEST_STATUS, HIGHEST_STATUS = 200, 599
BODILESS = frozenset({204, 205, 304})
RETRY_AFTER_S = 5

DEFERRED = "Function scheduled for future execution due to degraded state"

_logger = structlog.get_logger(__name__)


UNKNOWN_OWNER = "unknown"


@dataclass(frozen=True, slots=True)
class WebhookLimits:
    """Limits of webhooks. Sizes in bytes, times in seconds."""

    body: int = 512_000
    body_timeout_s: float = 30.0
    threads: int = 2
    waiting: int = 256
    """Maximum number of requests that are worked on or wait.

    Further ones are asked to come again, and those of a project that is alone beyond three quarters.
    """


@dataclass(frozen=True, slots=True)
class IncomingRequest:
    """A whole request. ``headers`` as they came, ``query`` without its question mark, ``ip`` of the sender."""

    method: str
    headers: Sequence[tuple[str, str]] = ()
    query: str = ""
    body: bytes = b""
    ip: str | None = None

    def header(self, name: str) -> str | None:
        return next((value for known, value in self.headers if known.lower() == name), None)


@dataclass(frozen=True, slots=True)
class Reply:
    """Response to the sender."""

    status: int
    body: bytes = b""
    content_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, status: int, value: Any, **headers: str) -> Reply:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return cls(status, orjson.dumps(value), "application/json", named)


NOT_FOUND = Reply.json(404, {"error": "Not found"})
STOPPED = Reply.json(429, {"error": "Disabled"})
TOO_LARGE = Reply.json(413, {"error": "Request entity too large"}, connection="close")
TOO_SLOW = Reply.json(408, {"error": "The request did not arrive in time"}, connection="close")
BROKEN = Reply.json(400, {"error": "The request body cannot be read"}, connection="close")
CROWDED = Reply.json(
    503,
    {"error": "The server is receiving too much at a time. Try again."},
    retry_after="1",
    connection="close",
)
BUSY = Reply.json(503, {"error": "Too many requests at a time. Try again."}, retry_after="1")
NOT_STORED = Reply.json(
    503, {"error": "Nothing can be stored now. Try again."}, retry_after=str(RETRY_AFTER_S)
)
FAILED = Reply.json(500, {"status": "Unhandled error"})
QUEUED = Reply.json(201, {"status": "queued"})
DONE = Reply.json(200, {"status": "ok"})


class UnreadableRequestError(ValueError):
    """A request that no program could use; ``reply`` is for the sender."""

    def __init__(self, reply: Reply | str) -> None:
        """Create the error; ``reply`` is the text of a 400, or the whole answer."""
        self.reply = Reply.json(400, {"error": reply}) if isinstance(reply, str) else reply
        super().__init__(str(reply))


def unpacked(request: IncomingRequest, limit_bytes: int) -> IncomingRequest:
    """Return the request with its body decompressed. Raises `UnreadableRequestError`, also for more than the limit."""
    encoding = (request.header("content-encoding") or "identity").strip().lower()
    if encoding == "identity":
        return request
    decompress = BY_NAME.get(encoding.removeprefix("x-"))
    if decompress is None:
        known = ", ".join(BY_NAME)
        raise UnreadableRequestError(
            Reply.json(415, {"error": f"Bodies may be compressed by one of {known}."}, accept_encoding=known)
        )
    try:
        return replace(request, body=decompress(request.body, limit_bytes) if request.body else b"")
    except BrokenDataError as error:
        raise UnreadableRequestError(f"The body is no {encoding} data: {error}.") from None
    except TooLargeError:
        raise UnreadableRequestError(TOO_LARGE) from None


def request_global(request: IncomingRequest) -> dict[str, Any]:
    """Return ``request`` of the globals. Raises `UnreadableRequestError`."""
    headers: dict[str, str] = {}
    for name, value in request.headers:
        if name.lower() not in UNSEEN_HEADERS:
            headers.setdefault(name.lower(), value)
    return {
        "method": request.method,
        "headers": headers,
        "query": _query(request.query),
        "body": _body(request),
        "stringBody": request.body.decode("utf-8", "replace"),
        "ip": request.ip,
    }


def _query(text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)
    except ValueError:
        raise UnreadableRequestError(f"The query has more than {MAX_FORM_FIELDS} parameters.") from None
    query: dict[str, str] = {}
    for name, value in pairs:
        query[name] = f"{query[name]},{value}" if name in query else value
    return query


def _body(request: IncomingRequest) -> Any:
    """Return the body as data: JSON, a form, or JSON that is sent as something else.

    ``{}`` for any other body.
    """
    content_type = ContentType.of(request.header("content-type"))
    is_json = content_type.media_type == "application/json" or content_type.media_type.endswith("+json")
    try:
        if is_json and request.body:
            return decode_json(request.body, content_type.parameters.get("charset"))
        return decode(request.body, content_type).value
    except ApiError as error:
        if error.status == 400:
            raise UnreadableRequestError(error.detail) from None
    try:
        sent = decode_json(request.body)
    except ApiError:
        return {}
    return sent if isinstance(sent, (dict, list)) else {}


def reply_of(returned: Any) -> Reply | None:
    """Return the answer that a program returned as ``{'httpResponse': {…}}``; None when it returned something else."""
    wanted = returned.get("httpResponse") if isinstance(returned, Mapping) else None
    if not isinstance(wanted, Mapping):
        return None
    status = _status(wanted.get("status"))
    body, content_type = wanted.get("body"), wanted.get("contentType")
    headers = {"content-security-policy": REPLY_POLICY}
    if body is None or status in BODILESS:
        return Reply(status, headers=headers)
    if not isinstance(body, str):
        return Reply(status, stringify(body).encode("utf-8", "replace"), "application/json", headers)
    if content_type not in REPLY_TYPES:
        content_type = TEXT_TYPE
    if wanted.get("isBase64Encoded") is True:
        try:
            return Reply(status, base64.b64decode(body, validate=True), content_type, headers)
        except (binascii.Error, ValueError):
            return Reply(500, b"", None, headers)
    return Reply(status, body.encode("utf-8", "replace"), content_type, headers)


def _status(wanted: Any) -> int:
    """Return a status that may be sent; 500 for an invalid one."""
    if isinstance(wanted, bool) or not isinstance(wanted, (int, float)) or wanted != wanted // 1:
        return 500
    return int(wanted) if LOWEST_STATUS <= wanted <= HIGHEST_STATUS else 500


@dataclass(slots=True)
class _WebhookRequest:
    """One request at work: the answer, and what has to be written before it is sent."""

    reply: Reply
    project_id: int = 0
    function_id: str = ""
    run_id: str = ""
    captured: dict[str, Any] | None = None
    invocations: list[NewInvocation] = field(default_factory=list)
    logs: list[LogEntry] = field(default_factory=list)
    metrics: list[AppMetric] = field(default_factory=list)
    results: list[InvocationResult] = field(default_factory=list)


class Webhooks:
    """Answers requests to functions. Used on an event loop, which it never blocks."""

    def __init__(
        self,
        queue: InvocationQueue,
        context: RunContext,
        function_breakers: FunctionBreakers,
        bodies: BodyPool,
        capture: EventSink,
        *,
        has_capacity: Callable[[str], bool],
        limits: WebhookLimits,
    ) -> None:
        """Create the service. ``has_capacity`` says whether the queue accepts more work of a function."""
        self.limits = limits
        self._queue = queue
        self._context = context
        self._function_breakers = function_breakers
        self._bodies = bodies
        self._capture = capture
        self._has_capacity = has_capacity
        self._pool = FairThreads(self.limits.threads, "webhook", waiting=self.limits.waiting)
        self._places = FairSemaphore(self.limits.waiting)

    async def answer(self, address: str, request: IncomingRequest) -> Reply:
        """Return the response to the sender of a request. ``address``: a function's id, perhaps with an extension."""
        function_id = parse_uuid(address.partition(".")[0])
        if function_id is None:
            return NOT_FOUND
        owner = self.owner_of(address) or UNKNOWN_OWNER
        holder = Holder(owner)
        place = self._places.try_enter("", holder)
        if place is None:
            return BUSY
        try:
            return await self._answer(holder, function_id, request)
        finally:
            self._places.leave(place)

    def owner_of(self, address: str) -> str | None:
        """Return the owner on whose account requests to an address are; None before the first of them was answered."""
        function_id = parse_uuid(address.partition(".")[0])
        project_id = None if function_id is None else self._context.registry.known_project(function_id)
        return None if project_id is None else f"project:{project_id}"

    async def _answer(self, holder: Holder, function_id: str, request: IncomingRequest) -> Reply:
        webhook = await self._pool.run(holder, partial(self._handle, function_id, request))
        if webhook.captured is not None:
            try:
                await self._capture(webhook.project_id, webhook.captured)
            except CaptureRefusedError as refusal:
                webhook = (
                    self._not_captured(webhook) if refusal.for_now else self._refused(webhook, str(refusal))
                )
            except Exception as error:
                _logger.warning("webhook_event_not_stored", function_id=function_id, error=str(error))
                webhook = self._not_captured(webhook)
        return await self._pool.run(holder, partial(self._leave, webhook))

    def close(self) -> None:
        """Accept no more requests. Current ones are finished."""
        self._pool.close(wait=True)

    # --- in a thread

    def _handle(self, function_id: str, request: IncomingRequest) -> _WebhookRequest:
        registered = self._context.registry.find(function_id)
        if registered is None or registered[1].type != WEBHOOK:
            return _WebhookRequest(NOT_FOUND)
        project, function = registered
        webhook = _WebhookRequest(DONE, project.id, function.id, str(uuid4()))
        if self._function_breakers.is_disabled(function.id):
            self._count(webhook, "failure", "disabled_permanently")
            webhook.reply = STOPPED
            return webhook
        try:
            state = self._state(project, request)
        except UnreadableRequestError as error:
            return _WebhookRequest(error.reply)
        self._count(webhook, "other", "triggered")
        if self._function_breakers.is_degraded(function.id):
            self._defer(webhook, state)
        else:
            self._run(webhook, function, state)
        return webhook

    def _state(self, project: Project, request: IncomingRequest) -> RunState:
        """Return the state that the program runs on.

        The request is sealed: it may stay in the queue and hold credentials.
        """
        seen = request_global(unpacked(request, self.limits.body))
        body = seen["body"]
        distinct_id = body.get("distinct_id") if isinstance(body, dict) else None
        event_uuid = str(uuid4())
        chain = chain_of(request.header(CHAIN_HEADER.lower()))
        globals_ = {
            "project": {"id": project.id, "name": "", "url": ""},
            "event": {
                "uuid": event_uuid,
                "event": INCOMING,
                "distinct_id": distinct_id,
                "properties": {CHAIN_PROPERTY: chain} if chain else {},
                "elements_chain": "",
                "timestamp": milliseconds(self._context.now()),
                "url": "",
            },
            "person": NO_PERSON,
        }
        return RunState(
            globals=raw_json(globals_),
            event_uuid=event_uuid,
            distinct_id=distinct_id if isinstance(distinct_id, str) else None,
            sealed_request=self._context.box.encrypt_text(orjson.dumps(seen).decode()),
        )

    def _defer(self, webhook: _WebhookRequest, state: RunState) -> None:
        """Leave the run of a slow function to the worker, behind the others."""
        webhook.invocations.append(
            NewInvocation(
                webhook.run_id,
                webhook.project_id,
                webhook.function_id,
                encode_state(state),
                queue=OVERFLOW_QUEUE,
                priority=DEGRADED_PRIORITY,
            )
        )
        self._log(webhook, "warn", DEFERRED)
        webhook.reply = Reply(200)

    def _run(self, webhook: _WebhookRequest, function: CompiledFunction, state: RunState) -> None:
        now = self._context.now()
        claimed = ClaimedInvocation(
            webhook.run_id,
            webhook.project_id,
            function.id,
            None,
            "hog",
            0,
            now,
            0,
            encode_state(state),
            lock_token="",
            created_at=now,
        )
        turn = Turn(self._context, claimed)
        settled = self._bodies.call(turn.inline, function.id)
        assert isinstance(settled, TurnResult)  # noqa: S101 - it may perform nothing
        webhook.captured = settled.captured
        webhook.logs += settled.logs
        webhook.metrics += settled.metrics
        webhook.results += settled.results
        if settled.timings:
            self._function_breakers.observe(Counter({function.id: cost_of(settled.timings)}))
        webhook.reply = self._reply(webhook, turn, settled)

    def _reply(self, webhook: _WebhookRequest, turn: Turn, settled: TurnResult) -> Reply:
        outcome, run = settled.outcome, turn.program_run
        if outcome.status == "available":
            webhook.invocations.append(
                NewInvocation(
                    webhook.run_id,
                    webhook.project_id,
                    webhook.function_id,
                    outcome.state or b"",
                    scheduled_at=outcome.scheduled_at,
                )
            )
            return QUEUED
        if outcome.status == "cancelled":  # it was disabled a moment ago
            return NOT_FOUND
        if outcome.status == "failed" or run is None:
            return FAILED
        reply = reply_of(run.value)
        if reply is None:
            return DONE
        text = f"Responded with response status - {reply.status}"
        if reply.status >= 400:
            reason = reply.body.decode("utf-8", "replace")
            self._log(webhook, "warn", run.cleaned(f"{text}, reason: {reason}"))
        else:
            self._log(webhook, "info", text)
        return reply

    def _refused(self, webhook: _WebhookRequest, reason: str) -> _WebhookRequest:
        """Return the answer for a captured event that is invalid, also when it is sent again; log the reason."""
        self._log(webhook, "error", f"The captured event was not stored: {reason}.")
        return webhook

    def _not_captured(self, webhook: _WebhookRequest) -> _WebhookRequest:
        """Return the answer that asks to send again, and store nothing but the reason."""
        metrics = [metric for metric in webhook.metrics if metric.metric_kind == "other"]
        unanswered = replace(
            webhook, reply=NOT_STORED, captured=None, invocations=[], metrics=metrics, results=[]
        )
        self._log(
            unanswered, "error", "The captured event could not be stored; the sender was asked to try again."
        )
        self._count(unanswered, "failure", "failed")
        return unanswered

    def _leave(self, webhook: _WebhookRequest) -> Reply:
        """Write the outcome of a request. Return the answer, which is another when that cannot be done."""
        traces: dict[str, Any] = {
            "logs": webhook.logs,
            "metrics": webhook.metrics,
            "results": webhook.results,
        }
        try:
            if webhook.invocations:
                if not self._has_capacity(webhook.function_id):
                    return NOT_STORED
                self._queue.enqueue(InvocationBatch(webhook.invocations, **traces))
            elif any(traces.values()):
                self._queue.finish([], **traces)
        except DatabaseError as error:
            _logger.warning("webhook_traces_lost", function_id=webhook.function_id, error=str(error))
            return NOT_STORED if webhook.invocations else webhook.reply
        return webhook.reply

    def _log(self, webhook: _WebhookRequest, level: str, text: str) -> None:
        webhook.logs.append(
            LogEntry(
                webhook.project_id,
                webhook.function_id,
                webhook.run_id,
                self._context.now(),
                level,
                clipped(text),
            )
        )

    def _count(self, webhook: _WebhookRequest, kind: str, name: str) -> None:
        webhook.metrics.append(
            AppMetric(webhook.project_id, webhook.function_id, kind, name, 1, self._context.now())
        )
