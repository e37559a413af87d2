"""From JSON text to the events of one request, validated as a whole (spec: sdk-wire 1.3-1.5, 1.7).

``properties`` stay raw bytes: they are decoded once, by ingestion. The same function reads a request when
it is captured and when its record is taken from the log, so both see the same events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec
import orjson

from hoglab.capture.refusal import Refusal, bad_token, undecodable
from hoglab.patterns import DOTALL, anchored, searched

MAX_DEPTH = 100
"""Levels of nesting inside one event: what every engine behind us can write again."""
MAX_EVENTS = 50_000
"""Events of one request; clients send up to a few hundred."""
MAX_OBJECTS = 500_000
"""Objects of one request, those in texts as well: each may be an event, which takes memory before it is checked."""
MAX_ODD_VALUES = 100_000
"""Values of a request in which a distinct id or a time is neither a text nor a number, and so becomes objects."""
MAX_DISTINCT_ID_CHARS = 200
MAX_TOKEN_CHARS = 64

NO_JSON = msgspec.Raw(b"")
PERFORMANCE_EVENT = "$performance_event"

_OPEN_BRACE = 0x7B
_NAMES_FOLLOW = b"[{"
_UUID = anchored("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").fullmatch
_ESCAPES = searched(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    DOTALL,
)
"""Escapes in JSON text; the group is half of a surrogate pair that stands alone."""
_LONE_SURROGATE = searched(rb"\\u[dD][89a-fA-F]")
_TO_BRACES = bytes.maketrans(b"[]", b"{}")
_NO_STRUCTURE = bytes(code for code in range(256) if code not in b'[]{}"')
_STRIDE = 256 * 1024  # how much is looked at in one step, where a step makes objects

if TYPE_CHECKING:
    Scalar = Any  # `read_envelope` makes of it what it should be
else:
    Scalar = str | int | float | bool | None


class IncomingEvent(msgspec.Struct, gc=False):
    """One event as a client sent it. After `read_envelope` ``distinct_id`` is a valid string.

    ``uuid`` is then None or in canonical lower-case form; the raw fields are empty or JSON objects, and ``unset`` may
    be an array, too.
    """

    event: str | None = None
    distinct_id: Scalar = None
    uuid: str | None = None
    timestamp: Scalar = None
    properties: msgspec.Raw = NO_JSON
    set: msgspec.Raw = msgspec.field(default=NO_JSON, name="$set")
    set_once: msgspec.Raw = msgspec.field(default=NO_JSON, name="$set_once")
    unset: msgspec.Raw = msgspec.field(default=NO_JSON, name="$unset")
    offset: Scalar = None
    token: str | None = None
    api_key: str | None = None
    dollar_distinct_id: Scalar = msgspec.field(default=None, name="$distinct_id")
    dollar_token: str | None = msgspec.field(default=None, name="$token")

    @property
    def size_bytes(self) -> int:
        """Approximate size of the event: its JSON objects, without the small fixed fields."""
        return sum(map(_length, self.objects().values()))

    def objects(self) -> dict[str, msgspec.Raw]:
        """Return the fields with structure, by their names on the wire."""
        return {
            "properties": self.properties,
            "$set": self.set,
            "$set_once": self.set_once,
            "$unset": self.unset,
        }


class _Body(IncomingEvent):
    """The object forms of a body: one event, or a batch when ``batch`` is there."""

    batch: list[IncomingEvent] | None = None
    historical_migration: bool | None = None
    sent_at: Scalar = None


class _OddEvent(IncomingEvent):
    """An event whose distinct id or times may be anything: the first becomes text, others are ignored later."""

    distinct_id: Any = None
    timestamp: Any = None
    offset: Any = None
    dollar_distinct_id: Any = msgspec.field(default=None, name="$distinct_id")


class _OddBody(_OddEvent):
    batch: list[_OddEvent] | None = None
    historical_migration: bool | None = None
    sent_at: Any = None


class _Fallbacks(msgspec.Struct):
    """Fields in the places where posthog-js puts them."""

    distinct_id: Scalar = None
    token: Scalar = None


class _OddFallbacks(msgspec.Struct):
    distinct_id: Any = None
    token: Any = None


class _Form(NamedTuple):
    """Decoders of a text; ``odd``: for fields that are no text or number where they usually are."""

    usual: msgspec.json.Decoder[Any]
    odd: msgspec.json.Decoder[Any]

    def decode(self, text: bytes | msgspec.Raw) -> Any:
        try:
            return self.usual.decode(text)
        except msgspec.ValidationError:
            if _is_small(bytes(text)):
                return self.odd.decode(text)
            raise


_BODY = _Form(msgspec.json.Decoder(_Body), msgspec.json.Decoder(_OddBody))
_EVENTS = _Form(msgspec.json.Decoder(list[IncomingEvent]), msgspec.json.Decoder(list[_OddEvent]))
_FALLBACKS = _Form(msgspec.json.Decoder(_Fallbacks), msgspec.json.Decoder(_OddFallbacks))


def _is_small(text: bytes) -> bool:
    return text.count(b",") + text.count(b"[") + text.count(b"{") <= MAX_ODD_VALUES


@dataclass(frozen=True, slots=True)
class Envelope:
    """A request after validation. ``sent_at`` is what the batch says, not yet read as a time."""

    token: str
    events: list[IncomingEvent]
    historical_migration: bool
    sent_at: Any


def read_envelope(text: bytes, *, engage: bool = False, is_new: bool = True) -> Envelope:
    """Read and validate the events of one request; one bad event refuses all of them.

    ``engage``: on ``/engage`` an event without a name is an ``$identify``. ``is_new``: more than `MAX_EVENTS` or
    `MAX_OBJECTS` are refused, which must not happen to what was accepted before. Raises `Refusal` 400, 401 or 413.
    """
    if is_new:
        check_objects(text)
    try:
        envelope = _read(text, engage=engage)
    except LoneSurrogateError:
        envelope = _read(mend_surrogates(text), engage=engage)
    if is_new and len(envelope.events) > MAX_EVENTS:
        raise too_many_events()
    return envelope


def check_objects(text: bytes) -> None:
    """Refuse a text with more objects than memory allows to decode: 413, after which clients split the request.

    Raises 400 when they are rather one in the other.
    """
    if len(text) > MAX_OBJECTS and _braces(text) > MAX_OBJECTS:
        # An event is as deep as it may be when the batch, and the body around that, are two levels more.
        raise _too_deep() if nested_deeper_than(text, MAX_DEPTH + 2) else too_many_events()


def too_many_events() -> Refusal:
    """Return 413: SDKs send the events again in smaller batches."""
    return Refusal(413, f"request holds more than {MAX_EVENTS} events")


def mend_surrogates(text: bytes | msgspec.Raw) -> bytes:
    """Return JSON text with U+FFFD in place of escaped halves of surrogate pairs.

    Browsers send them when they cut a string inside an emoji; no engine behind us can hold them.
    """
    text = bytes(text)
    if _LONE_SURROGATE.search(text) is None:
        return text
    mended = bytearray(
        text
    )  # in place, for both escapes have six bytes: a list of pieces would be many times larger
    for match in _ESCAPES.finditer(text):
        if match[1]:
            mended[match.start() : match.end()] = b"\\ufffd"
    return bytes(mended)


class LoneSurrogateError(Exception):
    """A string holds half of a surrogate pair."""


def _read(text: bytes, *, engage: bool) -> Envelope:
    body: _Body | None = None
    try:
        if text.lstrip()[:1] == b"[":
            events = _EVENTS.decode(text)
        else:
            body = _BODY.decode(text)
            events = [body] if body.batch is None else body.batch
    except RecursionError:
        raise _too_deep() from None
    except msgspec.DecodeError as error:
        if mend_surrogates(text) != text:
            raise LoneSurrogateError from None
        raise undecodable(f"the payload is not valid: {error}") from None
    except UnicodeDecodeError:
        raise undecodable("the payload is not valid UTF-8") from None
    if not events:
        raise undecodable("request holds no event")
    _validate_events(events, text, engage=engage)
    in_batch = body is not None and body.batch is not None
    token = (body.api_key or body.token or body.dollar_token) if body is not None and in_batch else None
    token = _token(events) if token is None else checked_token(token)
    if body is None or not in_batch:
        return Envelope(token, _kept(events), historical_migration=False, sent_at=None)
    return Envelope(token, _kept(events), bool(body.historical_migration), body.sent_at)


def _kept(events: list[IncomingEvent]) -> list[IncomingEvent]:
    if PERFORMANCE_EVENT in [event.event for event in events]:
        return [event for event in events if event.event != PERFORMANCE_EVENT]
    return events


def _validate_events(events: list[IncomingEvent], text: bytes, *, engage: bool) -> None:
    objects = len(events)
    for event in events:
        name = event.event
        if not name or "\0" in name:
            event.event = _event_name(name, engage=engage)
        distinct_id = event.distinct_id
        if (
            type(distinct_id) is not str
            or not distinct_id
            or len(distinct_id) > MAX_DISTINCT_ID_CHARS
            or "\0" in distinct_id
        ):
            event.distinct_id = _distinct_id(event)
        raw = event.properties
        if raw is not NO_JSON:
            if memoryview(raw)[0] == _OPEN_BRACE:
                objects += 1
            else:
                event.properties = _no_object(raw, "properties")
        raw = event.set
        if raw is not NO_JSON and memoryview(raw)[0] != _OPEN_BRACE:
            event.set = _no_object(raw, "$set")
        raw = event.set_once
        if raw is not NO_JSON and memoryview(raw)[0] != _OPEN_BRACE:
            event.set_once = _no_object(raw, "$set_once")
        raw = event.unset
        if raw is not NO_JSON and memoryview(raw)[0] not in _NAMES_FOLLOW:
            event.unset = NO_JSON  # null, or what names no property
    given = [event.uuid for event in events if event.uuid is not None]
    if not _are_canonical(given):
        for event in events:
            if event.uuid is not None and _UUID(event.uuid) is None:
                event.uuid = _canonical_uuid(event.uuid)
    # Every event opens its own object, nearly always properties too. When all brackets together, less
    # those, cannot make one deep event, which is the rule, nothing is counted event by event.
    shared = objects - 2
    if _brackets(text, enough=MAX_DEPTH + shared) > MAX_DEPTH + shared:
        for event in events:
            _check_depth(event)


def _event_name(name: str | None, *, engage: bool) -> str:
    if name is None and engage:
        return "$identify"
    if name is None:
        raise undecodable("event submitted without an event name")
    if not name:
        raise undecodable("event submitted with an empty event name")
    return name.replace("\0", "\ufffd")


def _length(raw: msgspec.Raw) -> int:
    return len(memoryview(raw))


def _no_object(raw: msgspec.Raw, name: str) -> msgspec.Raw:
    """Return null and the empty array (of PHP) stand for an object that is missing; all else is refused."""
    text = bytes(raw)
    if text == b"null" or (text[:1] == b"[" and not text[1:-1].strip()):
        return NO_JSON
    raise undecodable(f"the {name} of an event must be an object")


def _distinct_id(event: IncomingEvent) -> str:
    value = event.distinct_id if event.distinct_id is not None else event.dollar_distinct_id
    if value is None:
        value = _fallbacks(event).distinct_id
    if value is None:
        raise undecodable("event submitted without a distinct_id")
    text = value if isinstance(value, str) else _json_text(value)
    if not text:
        raise undecodable("event submitted without a distinct_id")
    return text[:MAX_DISTINCT_ID_CHARS].replace("\0", "\ufffd")


def _json_text(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    try:
        return orjson.dumps(value).decode()
    except (TypeError, RecursionError):
        raise undecodable("the distinct_id of an event cannot be read") from None


def _fallbacks(event: IncomingEvent) -> _Fallbacks:
    if not _length(event.properties):
        return _Fallbacks()
    try:
        fallbacks: _Fallbacks = _FALLBACKS.decode(event.properties)
    except (msgspec.DecodeError, RecursionError):
        if mend_surrogates(event.properties) != bytes(event.properties):
            raise LoneSurrogateError from None
        raise undecodable("the properties of an event cannot be read") from None
    return fallbacks


def _are_canonical(uuids: list[str]) -> bool:
    """Return whether all are UUIDs in canonical lower-case form.

    They are checked as one text, column by column, which costs a quarter of a match for each.
    """
    count = len(uuids)
    text = ";".join([*uuids, ""])
    if len(text) != 37 * count or text[36::37] != ";" * count or text != text.lower():
        return False
    if not text[8::37] == text[13::37] == text[18::37] == text[23::37] == "-" * count:
        return False
    try:
        # Blanks are passed over, so the number of bytes counts too.
        return len(bytes.fromhex(text.replace("-", "").replace(";", ""))) == 16 * count
    except ValueError:
        return False


def _canonical_uuid(text: str) -> str | None:
    if not text:
        return None
    try:
        parsed = UUID(text)
    except ValueError:
        parsed = None
    # Python also takes blanks, signs and underscores for parts of a number.
    if parsed is None or parsed.hex not in text.replace("-", "").lower():
        raise undecodable("the uuid of an event is not a UUID")
    return str(parsed)


def _token(events: list[IncomingEvent]) -> str:
    """Return the one token that all events name."""
    common: str | None = None
    for event in events:
        token: Any = event.token or event.dollar_token or event.api_key or _fallbacks(event).token
        if not token or not isinstance(token, str):
            raise Refusal(401, "event submitted without an api_key")
        if common is None:
            common = token
        elif common != token:
            raise Refusal(401, "batch submitted with inconsistent api_key values")
    return checked_token(common or "")


def checked_token(token: str) -> str:
    """Refuse a text that no project can have as its token."""
    token = token.strip()
    if not token:
        raise bad_token("empty")
    if len(token) > MAX_TOKEN_CHARS:
        raise bad_token("too_long")
    if not token.isascii():
        raise bad_token("not_ascii")
    if token.startswith("phx_"):
        raise bad_token("personal_api_key")
    if "\0" in token:
        raise bad_token("null_byte")
    return token


def _braces(text: bytes) -> int:
    return len(text) - len(text.replace(b"{", b""))  # faster than to count them


def _brackets(text: bytes, enough: int) -> int:
    """Return the number of opening brackets in a text; when there are more than ``enough``, some number above it."""
    count = _braces(text)
    # Arrays are rare in events, and finding a rare byte is much faster than counting it.
    at = text.find(b"[")
    while at >= 0 and count <= enough:
        count += 1
        at = text.find(b"[", at + 1)
    return count


def _check_depth(event: IncomingEvent) -> None:
    for raw in event.objects().values():
        if nested_deeper_than(bytes(raw), MAX_DEPTH):
            raise _too_deep()


def nested_deeper_than(text: bytes, levels: int) -> bool:
    """Return whether valid JSON text nests objects and arrays more than ``levels`` deep.

    Linear in time, and in memory at most a few times the text.
    """
    if _brackets(text, enough=levels) <= levels:
        return False
    brackets = _outside_of_strings(text).translate(_TO_BRACES)
    for _ in range(levels):
        if not brackets:
            return False
        brackets = brackets.replace(b"{}", b"")
    return bool(brackets)


def _outside_of_strings(text: bytes) -> bytes:
    """Return the brackets of JSON text that are not part of its strings."""
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    text = text.translate(None, _NO_STRUCTURE)
    outside: list[bytes] = []
    in_string = 0
    for start in range(0, len(text), _STRIDE):
        parts = text[start : start + _STRIDE].split(b'"')
        outside.append(b"".join(parts[in_string::2]))
        in_string ^= (len(parts) - 1) & 1
    return b"".join(outside)


def _too_deep() -> Refusal:
    return undecodable(f"the payload is nested more than {MAX_DEPTH} levels deep")
