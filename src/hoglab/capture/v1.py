"""The v1 protocol: a result for every event (spec: sdk-wire 1.15).

A v1 batch is turned into the v0 body that says the same, so that the log and everything behind it know one
form only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import orjson

from hoglab.capture.decoding import is_utf8
from hoglab.capture.envelope import (
    MAX_DEPTH,
    MAX_DISTINCT_ID_CHARS,
    MAX_EVENTS,
    NO_JSON,
    PERFORMANCE_EVENT,
    check_objects,
    checked_token,
    nested_deeper_than,
    too_many_events,
)
from hoglab.capture.refusal import Refusal
from hoglab.http.requests.decompression import BY_NAME, BrokenDataError, TooLargeError
from hoglab.patterns import ASCII, anchored

MAX_EVENT_NAME_BYTES = 200
RETRY_AFTER_S = 1

REQUIRED_HEADERS = (
    b"authorization",
    b"content-type",
    b"user-agent",
    b"posthog-sdk-info",
    b"posthog-attempt",
    b"posthog-request-id",
    b"posthog-request-timestamp",
)
NOBODY = frozenset(
    (
        "0",
        "00000000-0000-0000-0000-000000000000",
        "[object object]",
        "anonymous",
        "anonymous-user",
        "backend",
        "distinct_id",
        "distinctid",
        "email",
        "false",
        "guest",
        "id",
        "nan",
        "none",
        "not_authenticated",
        "null",
        "system",
        "true",
        "undefined",
        "user",
    )
)
"""Distinct ids, in lower case, that stand for no particular person: their events are stored without one."""

_MOMENT = anchored(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)", ASCII).fullmatch
PERFORMANCE_DROPPED = "dropped_performance_event"
_PERSONLESS = b'"$process_person_profile":false'


class V1Refusal(Exception):  # noqa: N818 - an answer to the client, not a fault of the server
    """An answer other than 200: nothing was stored. ``tag`` is for programs, ``description`` for people.

    ``closes``: what is left of the body is not read.
    """

    def __init__(self, status: int, tag: str, description: str, *, closes: bool = False) -> None:
        super().__init__(description)
        self.closes = closes
        self.status = status
        self.tag = tag
        self.description = description


@dataclass(frozen=True, slots=True)
class V1Head:
    """Headers of a request."""

    token: str
    encoding: str  # of the body; empty for none
    request_id: bytes
    sent_at: str
    library: str
    library_version: str


@dataclass(frozen=True, slots=True)
class V1Batch:
    """Result for a batch. ``body`` is the v0 body of the ``accepted`` events; ``results`` the answer."""

    body: bytes
    accepted: int
    results: dict[str, dict[str, str]]

    def refused(self) -> Mapping[str, int]:
        """Return the number of events that are left out, by the reason, without those that nobody misses."""
        outcomes = [outcome for outcome in self.results.values() if outcome["result"] == "drop"]
        reasons = Counter(outcome["details"] for outcome in outcomes)
        del reasons[PERFORMANCE_DROPPED]
        return reasons


class _Options(msgspec.Struct, gc=False):
    process_person_profile: bool | None = None
    cookieless_mode: bool | None = None
    disable_skew_correction: bool | None = None
    disable_skew_adjustment: bool | None = None  # the older name of the same
    product_tour_id: str | None = None


class _Event(msgspec.Struct, gc=False):
    event: str | None = None
    uuid: str | None = None
    distinct_id: str | None = None
    timestamp: str | None = None
    session_id: str | None = None
    window_id: str | None = None
    options: msgspec.Raw = NO_JSON
    properties: msgspec.Raw = NO_JSON
    set: msgspec.Raw = msgspec.field(default=NO_JSON, name="$set")
    set_once: msgspec.Raw = msgspec.field(default=NO_JSON, name="$set_once")
    unset: msgspec.Raw = msgspec.field(default=NO_JSON, name="$unset")

    def objects(self) -> dict[str, bytes]:
        """Return the fields with structure that are there, by their names on the wire."""
        beside = {"$set": self.set, "$set_once": self.set_once, "$unset": self.unset}
        given = {name: text for name, raw in beside.items() if (text := bytes(raw)) not in (b"", b"null")}
        return given if self.properties is NO_JSON else {"properties": bytes(self.properties), **given}


class _Body(msgspec.Struct, gc=False):
    batch: list[_Event]
    created_at: str | None = None
    historical_migration: bool | None = None


_BODY = msgspec.json.Decoder(_Body)
_OPTIONS = msgspec.json.Decoder(_Options)
_ENCODER = msgspec.json.Encoder()


def read_head(headers: Mapping[bytes, bytes]) -> V1Head:
    """Check the headers of a request (names in lower case). Raises `V1Refusal`."""
    missing = [name.decode() for name in REQUIRED_HEADERS if not headers.get(name, b"").strip()]
    if missing:
        raise V1Refusal(400, "missing_required_headers", f"these headers are missing: {', '.join(missing)}")
    texts = {name: headers[name].decode("latin-1").strip() for name in REQUIRED_HEADERS}
    token = _token(texts[b"authorization"])
    if texts[b"content-type"].partition(";")[0].strip().lower() != "application/json":
        raise V1Refusal(415, "unsupported_content_type", "the body must be application/json")
    encoding = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
    if encoding not in ("", "identity") and encoding not in BY_NAME:
        names = ", ".join(BY_NAME)
        raise V1Refusal(415, "unsupported_encoding", f"the body may be compressed with {names}")
    library, _, version = texts[b"posthog-sdk-info"].partition("/")
    if not library or not version:
        raise _bad_header("PostHog-Sdk-Info", "name/version")
    attempt = texts[b"posthog-attempt"]
    if not (attempt.isascii() and attempt.isdigit() and len(attempt) < 10 and int(attempt) >= 1):
        raise _bad_header("PostHog-Attempt", "a number from 1 on")
    if _uuid(texts[b"posthog-request-id"]) is None:
        raise _bad_header("PostHog-Request-Id", "a UUID")
    sent_at = texts[b"posthog-request-timestamp"]
    if not _is_moment(sent_at):
        raise _bad_header("PostHog-Request-Timestamp", "a moment as in RFC 3339")
    return V1Head(
        token,
        "" if encoding == "identity" else encoding,
        headers[b"posthog-request-id"],
        sent_at,
        library,
        version,
    )


def _bad_header(name: str, wanted: str) -> V1Refusal:
    return V1Refusal(400, "invalid_header_value", f"{name} must be {wanted}")


def _token(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise V1Refusal(401, "invalid_api_token", "the Authorization header must be: Bearer <project token>")
    try:
        return checked_token(token)
    except Refusal as refusal:
        raise V1Refusal(401, "invalid_api_token", refusal.reason) from None


def read_batch(raw: bytes, head: V1Head, *, limit_bytes: int, max_event_bytes: int) -> V1Batch:
    """Return decompress, decode and judge every event of a body.

    Raises `V1Refusal` for what refuses the whole batch.
    """
    if not raw:
        raise V1Refusal(400, "empty_body", "the request has no body")
    body = _decoded(raw, head.encoding, limit_bytes)
    if not body.batch:
        raise V1Refusal(400, "empty_batch", "the batch holds no event")
    if len(body.batch) > MAX_EVENTS:
        raise _too_many()
    if body.created_at is not None and not _is_moment(body.created_at):
        raise V1Refusal(400, "invalid_batch", "created_at must be a moment as in RFC 3339")
    _check_uuids(body.batch)
    library = orjson.dumps({"$lib": head.library, "$lib_version": head.library_version})[1:-1]
    results: dict[str, dict[str, str]] = {}
    accepted: list[dict[str, Any]] = []
    for event in body.batch:
        reason = _fault(event, max_event_bytes)
        options = _options(event) if reason is None else None
        if options is None:
            results[event.uuid or ""] = {"result": "drop", "details": reason or "invalid_options"}
            continue
        is_nobody = (event.distinct_id or "").strip().lower() in NOBODY
        accepted.append(
            {
                "event": event.event,
                "uuid": event.uuid,
                "distinct_id": event.distinct_id,
                "timestamp": event.timestamp,
                **{name: msgspec.Raw(raw) for name, raw in event.objects().items()},
                "properties": _properties(event, options, library, personless=is_nobody),
            }
        )
        results[event.uuid or ""] = (
            {"result": "warning", "details": "person_processing_disabled"} if is_nobody else {"result": "ok"}
        )
    v0 = {
        "api_key": head.token,
        "historical_migration": bool(body.historical_migration),
        "sent_at": head.sent_at,
        "batch": accepted,
    }
    return V1Batch(_ENCODER.encode(v0) if accepted else b"", len(accepted), results)


def _decoded(raw: bytes, encoding: str, limit_bytes: int) -> _Body:
    try:
        text = BY_NAME[encoding](raw, limit_bytes) if encoding else raw
    except TooLargeError:
        raise too_large(limit_bytes) from None
    except BrokenDataError as error:
        raise V1Refusal(400, "request_decoding_error", f"the {encoding} data is broken: {error}") from None
    if not is_utf8(text):
        raise V1Refusal(400, "request_parsing_error", "the body is not valid UTF-8")
    try:
        check_objects(text)
        return _BODY.decode(text)
    except Refusal:
        raise _too_many() from None
    except (msgspec.DecodeError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise V1Refusal(400, "request_parsing_error", f"the body is not valid: {reason}") from None


def too_large(limit_bytes: int) -> V1Refusal:
    """Return the refusal (413) of a body above its limit."""
    return V1Refusal(
        413, "payload_too_large", f"the request body exceeds the limit of {limit_bytes} bytes", closes=True
    )


def _too_many() -> V1Refusal:
    return V1Refusal(413, "payload_too_large", too_many_events().reason)


def _check_uuids(events: list[_Event]) -> None:
    seen: set[UUID] = set()
    for event in events:
        if not event.uuid:
            raise V1Refusal(400, "missing_event_uuid", "every event needs a uuid")
        uuid = _uuid(event.uuid)
        if uuid is None:
            raise V1Refusal(400, "invalid_event_uuid", "the uuid of an event is not a UUID")
        if uuid in seen:
            raise V1Refusal(400, "duplicate_event_uuid", f"two events have the uuid {uuid}")
        seen.add(uuid)


def _fault(event: _Event, max_event_bytes: int) -> str | None:
    """Return the reason for which an event is dropped; None when it is kept."""
    if not event.event:
        return "missing_event_name"
    if len(event.event.encode()) > MAX_EVENT_NAME_BYTES:
        return "event_name_too_long"
    if event.event == PERFORMANCE_EVENT:
        return PERFORMANCE_DROPPED
    if not event.distinct_id:
        return "missing_distinct_id"
    if len(event.distinct_id) > MAX_DISTINCT_ID_CHARS:
        return "distinct_id_too_large"
    if not event.timestamp or not _is_moment(event.timestamp):
        return "invalid_event_timestamp"
    objects = event.objects()
    if sum(map(len, objects.values())) > max_event_bytes:
        return "event_too_large"
    for name, raw in objects.items():
        if raw[:1] not in ((b"{", b"[") if name == "$unset" else (b"{",)) or nested_deeper_than(
            raw, MAX_DEPTH
        ):
            return "malformed_event_properties"
    return None


def _options(event: _Event) -> _Options | None:
    """Return the options of an event; None when they cannot be read."""
    raw = bytes(event.options)
    if not raw or raw == b"null":
        return _Options()
    try:
        return _OPTIONS.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def _properties(event: _Event, options: _Options, library: bytes, *, personless: bool) -> msgspec.Raw:
    """Return the properties that a v0 event would have. Of a name that is there twice, readers take the last value."""
    skew = options.disable_skew_correction
    given = {
        "$session_id": event.session_id,
        "$window_id": event.window_id,
        "$cookieless_mode": options.cookieless_mode,
        "$ignore_sent_at": options.disable_skew_adjustment if skew is None else skew,
        "$product_tour_id": options.product_tour_id,
        "$process_person_profile": options.process_person_profile,
    }
    parts = [library]
    moved = orjson.dumps({name: value for name, value in given.items() if value is not None})[1:-1]
    inner = bytes(event.properties).strip()[1:-1].strip()
    parts += [part for part in (moved, inner) if part]
    if personless:
        parts.append(_PERSONLESS)
    return msgspec.Raw(b"{" + b",".join(parts) + b"}")


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _is_moment(text: str) -> bool:
    if _MOMENT(text) is None:
        return False
    try:
        datetime.fromisoformat(text.upper())
    except ValueError:
        return False
    return True
