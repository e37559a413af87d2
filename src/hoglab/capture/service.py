"""Accepting one request: decode, validate, find its project, make it durable."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import orjson
import structlog

from hoglab.capture.decoding import Query, decode_payload
from hoglab.capture.envelope import read_envelope
from hoglab.capture.partitioning import append_record
from hoglab.capture.records import encode_record, new_header
from hoglab.capture.refusal import Refusal, bad_token, unread
from hoglab.capture.refused import is_told, tokens_in
from hoglab.capture.v1 import V1Batch, V1Head, V1Refusal, read_batch
from hoglab.delivery.execution import CaptureRefusedError
from hoglab.http.errors import ApiError
from hoglab.http.fields.dates import utc_now
from hoglab.http.requests.body import BODY_TIMEOUT_S
from hoglab.http.requests.budget import charge, known_owner
from hoglab.http.requests.decompression import GZIP_MAGIC
from hoglab.storage.event_log import EventLogFullError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, MutableMapping
    from datetime import datetime

    from hoglab.capture.envelope import Envelope
    from hoglab.capture.refused import RefusedRequests
    from hoglab.http.identity import Project
    from hoglab.storage.event_log import LogWriter


MIB = 1024 * 1024
STORAGE_RETRY_S = 5
"""Value of ``Retry-After`` when the log fails for a reason that it does not name."""

_INLINE_WIRE_BYTES = 64 * 1024
_INLINE_JSON_BYTES = 256 * 1024

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CaptureLimits:
    """Sizes in bytes (spec: sdk-wire 1.9) and what happens to tokens that no project has."""

    batch_body: int = 20 * MIB
    event_body: int = 2 * MIB  # of the old single-event paths
    discarded_body: int = 25 * MIB
    event: int = 1_000_000
    ai_event: int = 8 * MIB
    v1_wire_body: int = 10 * MIB
    body_timeout_s: float = BODY_TIMEOUT_S
    unknown_projects: Literal["reject", "drop"] = "reject"


@dataclass(frozen=True, slots=True)
class PathRules:
    """Rules of a capture path (spec: sdk-wire 1.1, 1.3, 1.9)."""

    body_limit: int
    event_limit: int
    legacy: bool = False
    engage: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """A complete request, as far as capture looks at it. ``ip`` is the client's address."""

    body: bytes
    query: Query
    content_type: bytes
    content_encoding: bytes
    ip: str | None
    scope: MutableMapping[str, Any] = field(default_factory=dict)
    """Scope in which the memory of the request is booked (`hoglab.http.requests.budget`)."""


class Capture:
    """Takes requests of the event endpoints into the event log.

    Used on an event loop. Large bodies are decoded in a worker thread so that other requests go on.
    """

    def __init__(
        self,
        log: LogWriter,
        project_by_token: Callable[[str], Project | None],
        project_by_id: Callable[[int], Project | None] = lambda _: None,
        *,
        has_several_projects: Callable[[], bool] = lambda: False,
        limits: CaptureLimits | None = None,
        now: Callable[[], datetime] = utc_now,
        refused: RefusedRequests | None = None,
    ) -> None:
        """Create the service. ``refused`` tells owners of what is refused; None where nobody is told."""
        self.limits = limits or CaptureLimits()
        self._log = log
        self._project_by_token = project_by_token
        self._project_by_id = project_by_id
        self._has_several_projects = has_several_projects
        self._now = now
        self._refused = refused
        self._decoders = ThreadPoolExecutor(max_workers=2, thread_name_prefix="capture-decode")

    async def accept(self, request: Request, rules: PathRules) -> int:
        """Make the events of a request durable, and return how many there were. Raises `Refusal`."""
        try:
            return await self._accept(request, rules)
        except Refusal as refusal:
            self.tell(refusal.tokens, request.scope, refusal.status, refusal.reason)
            raise

    def tell(self, tokens: Iterable[str], scope: MutableMapping[str, Any], status: int, reason: str) -> None:
        """Tell the owner of the first known token that a request was refused."""
        if self._refused is None or not is_told(status):
            return
        for token in tokens:
            project = self._project_by_token(token)
            if project is not None:
                self._refused.note(project.id, _path(scope), reason, status=status)
                return

    async def _accept(self, request: Request, rules: PathRules) -> int:
        received_at = self._now()
        if _is_large(request.body):
            loop = asyncio.get_running_loop()
            read = await loop.run_in_executor(self._decoders, _read, request, rules)
        else:
            read = _read(request, rules)
        project = self._project(read.token)
        if project is None or not read.events:
            return 0
        _book(request.scope, project, len(read.stored))
        header = new_header(
            project_id=project.id,
            received_at=received_at,
            is_gzip=read.is_gzip,
            is_engage=rules.engage,
            ip=request.ip,
            sent_at_ms=request.query.sent_at_ms,
            max_event_bytes=rules.event_limit,
        )
        await self._append(project, encode_record(header, read.stored))
        return read.events

    def recognise(self, head: V1Head, scope: MutableMapping[str, Any]) -> Project | None:
        """Return the project of a v1 request, before its body is read; None when its events are to be dropped.

        Raises `V1Refusal` 401.
        """
        try:
            project = self._project(head.token)
        except Refusal as refusal:
            raise V1Refusal(401, "invalid_api_token", refusal.reason) from None
        if project is not None:
            known_owner(scope, f"project:{project.id}")
        return project

    async def accept_v1(
        self, raw: bytes, head: V1Head, *, ip: str | None, scope: MutableMapping[str, Any] | None = None
    ) -> V1Batch:
        """Make the events of a v1 body durable that are not at fault. Raises `V1Refusal`, and `Refusal` 503."""
        received_at = self._now()
        scope = {} if scope is None else scope
        project = self.recognise(head, scope)
        read = partial(
            read_batch,
            raw,
            head,
            limit_bytes=self.limits.batch_body,
            max_event_bytes=self.limits.event,
        )
        if head.encoding or _is_large(raw):
            batch = await asyncio.get_running_loop().run_in_executor(self._decoders, read)
        else:
            batch = read()
        if project is not None and self._refused is not None:
            for reason, events in batch.refused().items():
                self._refused.note(project.id, _path(scope), reason, events=events)
        if project is not None and batch.accepted:
            _book(scope, project, len(batch.body))
            header = new_header(
                project_id=project.id,
                received_at=received_at,
                is_gzip=False,
                is_engage=False,
                ip=ip,
                sent_at_ms=None,
                max_event_bytes=self.limits.event,
            )
            await self._append(project, encode_record(header, batch.body))
        return batch

    def _project(self, token: str) -> Project | None:
        """Return the project of a token; None when its events are to be dropped. Raises `Refusal` 401."""
        project = self._project_by_token(token)
        if project is None and self.limits.unknown_projects == "reject":
            raise bad_token("unknown")
        return project

    async def accept_own(self, project_id: int, event: dict[str, Any], *, insist: bool = False) -> None:
        """Make an event of the server's own durable: what a hog function captured. Raises `CaptureRefusedError`.

        ``event`` is what an SDK would send, with a ``uuid``: it is stored once, however often it comes.
        """
        project = self._project_by_id(project_id)
        if project is None:
            return
        body = orjson.dumps({"api_key": project.api_token, "batch": [event]})
        if len(body) > self.limits.event:
            raise CaptureRefusedError(f"it is larger than {self.limits.event} bytes")
        try:
            read_envelope(body, engage=False)  # what the log takes must be readable later
        except Refusal as refusal:
            raise CaptureRefusedError(refusal.reason) from None
        header = new_header(
            project_id=project_id,
            received_at=self._now(),
            is_gzip=False,
            is_engage=False,
            ip=None,
            sent_at_ms=None,
            max_event_bytes=self.limits.event,
        )
        try:
            await self._append(project, encode_record(header, body), insist=insist)
        except Refusal as refusal:
            raise CaptureRefusedError(refusal.reason, for_now=True) from refusal

    async def _append(self, project: Project, record: bytes, *, insist: bool = False) -> None:
        """Append a request to the log. Raises `Refusal` 503, and 413 for an event that the log cannot take."""
        try:
            alone = not self._has_several_projects()
            await append_record(self._log, record, insist=insist, owner=project.id, alone=alone)
        except Refusal as refusal:
            refusal.tokens = (project.api_token,)
            raise
        except EventLogFullError as error:
            _logger.warning("event log is full", reason=str(error))
            raise Refusal(503, "transient error, please retry", error.retry_after_s) from error
        except (OSError, RuntimeError) as error:
            _logger.exception("event log failed")
            raise Refusal(503, "transient error, please retry", STORAGE_RETRY_S) from error

    def close(self) -> None:
        """Stop the worker threads. Requests that they work on are finished."""
        self._decoders.shutdown()


def _book(scope: MutableMapping[str, Any], project: Project, stored_bytes: int) -> None:
    """Charge the request, and what of it waits to be stored, to its project. Raises `Refusal` 503."""
    try:
        known_owner(scope, f"project:{project.id}")
        charge(scope, stored_bytes)
    except ApiError as error:
        raise unread(error, 0) from None


def _is_large(body: bytes) -> bool:
    if len(body) > _INLINE_WIRE_BYTES:
        # Plain JSON is read so fast that the hop to a thread pays off later than for compressed bodies.
        return len(body) > _INLINE_JSON_BYTES or body[:1] not in b"{["
    # The last four bytes of gzip data tell (truthfully or not) how long it was.
    return body.startswith(GZIP_MAGIC) and int.from_bytes(body[-4:], "little") > _INLINE_JSON_BYTES


class _Read(NamedTuple):
    """Remainder of a request that was found valid: ``events`` is their number.

    The events themselves are not held while the record waits for the disk. With many requests waiting, the
    memory of each would be cold when it is used again, and that costs more than decoding.
    """

    token: str
    events: int
    stored: bytes
    is_gzip: bool


def _envelope(text: bytes, rules: PathRules) -> Envelope:
    envelope = read_envelope(text, engage=rules.engage)
    # In a batch only the event that is too large is lost, with a warning, when it is ingested.
    only = envelope.events[0] if len(envelope.events) == 1 else None
    if only is not None and len(text) > rules.event_limit and only.size_bytes > rules.event_limit:
        raise Refusal(413, "maximum event size exceeded")
    return envelope


def _path(scope: MutableMapping[str, Any]) -> str:
    return str(scope.get("path", "")).rstrip("/")


def _read(request: Request, rules: PathRules) -> _Read:
    text = request.body or request.query.data.encode()
    try:
        payload = decode_payload(
            request.body,
            request.query,
            content_type=request.content_type,
            content_encoding=request.content_encoding,
            legacy=rules.legacy,
            limit_bytes=rules.body_limit,
        )
        text = payload.json
        envelope = _envelope(text, rules)
    except Refusal as refusal:
        refusal.tokens = refusal.tokens or tokens_in(text)
        raise
    return _Read(envelope.token, len(envelope.events), payload.stored, payload.is_gzip)
