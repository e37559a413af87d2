"""From a record of the log to events with decoded properties, and from those to rows of the store."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import orjson

from hoglab.capture.envelope import NO_JSON, IncomingEvent, mend_surrogates
from hoglab.capture.records import DecodedRecord, derived_uuid
from hoglab.ingestion.elements import take_elements_chain
from hoglab.ingestion.timestamps import IN_FUTURE, event_time, sent_time
from hoglab.people.batch import IngestionWarning
from hoglab.storage.event_store import EventRow
from hoglab.storage.event_store.once.versions import SERVERS_OWN
from hoglab.storage.json_text import json_bytes

if TYPE_CHECKING:
    from hoglab.people import Attribution
    from hoglab.storage.event_log import SequenceNumber

MAX_UUID_CHARS = 45  # with braces and a prefix

MAX_WARNED_CHARS = 200
"""Maximum length of the value that a warning quotes."""

INTERNAL_IP = "127.0.0.1"
"""Address of events with the property ``capture_internal`` (spec: sdk-wire 1.8)."""


class Event(msgspec.Struct, eq=False, gc=False):
    """An event in the making: transformations and persons change ``event``, ``distinct_id``, ``properties``.

    Not for the garbage collector: nothing that was JSON leads back to it.
    """

    project_id: int
    uuid: UUID
    event: str
    distinct_id: str
    timestamp: datetime
    captured_at: datetime
    properties: dict[str, Any]
    historical: bool  # of a migration: stored, but nothing runs on it
    log_offset: SequenceNumber
    is_replayed: bool = False  # it was in quarantine: others that are before it in the log arrived after it

    def repeats(self, before: Event) -> bool:
        """Return whether it is the event before it, sent once more. The store asks the same of later events."""
        if (self.event, self.distinct_id) != (before.event, before.distinct_id):
            return False
        if self.timestamp != before.timestamp:
            return False
        return _without_sent_at(self.properties) == _without_sent_at(before.properties)


def _without_sent_at(properties: dict[str, Any]) -> bytes:
    sent = {name: value for name, value in properties.items() if name != SERVERS_OWN}
    return orjson.dumps(sent, option=orjson.OPT_SORT_KEYS)


def events_of(
    record: DecodedRecord, log_offset: SequenceNumber, warnings: list[IngestionWarning]
) -> list[Event]:
    """Return the events of a record in order. Events above the size limit are left out, with a warning."""
    header, envelope = record.header, record.envelope
    now = header.received_at
    sent_at = sent_time(envelope.sent_at, header.sent_at_ms)
    # Formatted once for all events of the request.
    sent_text = None if sent_at is None else sent_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    may_be_large = record.json_bytes > header.max_event_bytes
    # Who brings events of the past is not where they happened.
    ip = None if envelope.historical_migration else header.ip
    events: list[Event] = []
    uuids = _uuids(record)
    if uuids and sent_at is None and envelope.sent_at is not None:
        unread = ("sent_at", "cannot be read as a time")
        warnings.append(
            _time_ignored(header.project_id, uuids[0], envelope.events[0], envelope.sent_at, unread)
        )
    for uuid, incoming in zip(uuids, envelope.events, strict=True):
        if may_be_large and incoming.size_bytes > header.max_event_bytes:
            details = {
                "eventUuid": str(uuid),
                "distinctId": incoming.distinct_id,
                "event": incoming.event,
                "bytes": incoming.size_bytes,
            }
            kind = "message_size_too_large"
            warnings.append(IngestionWarning(header.project_id, kind, uuid, details))
            continue
        properties = _properties(incoming)
        if sent_text is not None:
            properties["$sent_at"] = sent_text
        if "capture_internal" in properties:
            properties.setdefault("$ip", INTERNAL_IP)
        elif ip is not None:
            properties.setdefault("$ip", ip)
        session_id = properties.get("$session_id")
        if type(session_id) is str and not session_id.islower():
            properties["$session_id"] = _lower_uuid(session_id)
        ignore_skew = properties.get("$ignore_sent_at") is True
        moment, ignored = event_time(
            incoming.timestamp, incoming.offset, now=now, sent_at=None if ignore_skew else sent_at
        )
        if ignored is not None:
            value = incoming.timestamp if ignored[0] == "timestamp" else incoming.offset
            warnings.append(_time_ignored(header.project_id, uuid, incoming, value, ignored))
        events.append(
            Event(
                header.project_id,
                uuid,
                incoming.event or "",
                incoming.distinct_id,
                moment,
                now,
                properties,
                envelope.historical_migration,
                log_offset,
                header.is_replayed,
            )
        )
    return events


def _time_ignored(
    project_id: int, uuid: UUID, incoming: IncomingEvent, value: Any, ignored: tuple[str, str]
) -> IngestionWarning:
    """Return the warning that a client's time was replaced, of the type by which PostHog calls it."""
    field, reason = ignored
    details = {
        "eventUuid": str(uuid),
        "distinctId": incoming.distinct_id,
        "event": incoming.event,
        "field": field,
        "value": str(value)[:MAX_WARNED_CHARS].encode("utf-8", "replace").decode(),
        "reason": reason,
    }
    kind = "event_timestamp_in_future" if reason == IN_FUTURE else "ignored_invalid_timestamp"
    return IngestionWarning(project_id, kind, uuid, details)


def _uuids(record: DecodedRecord) -> list[UUID]:
    """Return the uuids of the events of a record, those that capture has checked together: a third of one by one."""
    given = msgspec.convert([event.uuid for event in record.envelope.events], list[UUID | None])
    return [derived_uuid(record.header, index) if uuid is None else uuid for index, uuid in enumerate(given)]


def _properties(incoming: IncomingEvent) -> dict[str, Any]:
    properties = decode_object(memoryview(incoming.properties))
    if incoming.set is not NO_JSON:
        _lay_over(properties, "$set", incoming.set)
    if incoming.set_once is not NO_JSON:
        _lay_over(properties, "$set_once", incoming.set_once)
    if incoming.unset is not NO_JSON:
        names = [*_names(properties.get("$unset")), *_names(_decoded_names(incoming.unset))]
        properties["$unset"] = [*dict.fromkeys(names)]
    return properties


def _lay_over(properties: dict[str, Any], name: str, raw: msgspec.Raw) -> None:
    """Merge a field beside the properties of an event over the property of that name."""
    inner, outer = properties.get(name), decode_object(memoryview(raw))
    properties[name] = {**inner, **outer} if isinstance(inner, dict) else outer


def _decoded_names(raw: msgspec.Raw) -> Any:
    """Decode an array or object by the rules of `decode_object`."""
    return decode_object(memoryview(b'{"names":' + bytes(raw) + b"}"))["names"]


def _names(unset: Any) -> list[str]:
    """Return the property names in a ``$unset``: the texts of an array, or the keys of an object."""
    return [name for name in unset if isinstance(name, str)] if isinstance(unset, (list, dict)) else []


def decode_object(text: memoryview) -> dict[str, Any]:
    """Return a JSON object whose syntax is known to be right; numbers that no engine can hold become null.

    Whole numbers beyond 64 bits become floating-point numbers.
    """
    if not text:
        return {}
    decoded: dict[str, Any]
    try:
        decoded = orjson.loads(text)
    except orjson.JSONDecodeError:
        mended = mend_surrogates(bytes(text))
        decoded = json.loads(mended, parse_int=_whole, parse_float=_fractional)
    return decoded


def _whole(text: str) -> int | float | None:
    if len(text) < 19:
        return int(text)
    if len(text) < 22:
        number = int(text)
        if -(2**63) <= number < 2**64:
            return number
    return _fractional(text)


def _fractional(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _lower_uuid(text: str) -> str:
    """Return a UUID in lower case; any other text as it is."""
    if len(text) > MAX_UUID_CHARS:
        return text
    try:
        UUID(text)
    except ValueError:
        return text
    return text.lower()


def row_of(event: Event, attribution: Attribution, *, anonymize_ip: bool, partition: int = 0) -> EventRow:
    """Return the row of an event whose person is known. Takes the elements out of the properties."""
    properties = event.properties
    chain = ""
    if "$elements" in properties or "$elements_chain" in properties:
        chain = take_elements_chain(properties)
    if anonymize_ip:
        properties.pop("$ip", None)
    person = attribution.person
    flag = properties.get("$feature_flag")
    response = properties.get("$feature_flag_response")
    session_id = properties.get("$session_id")
    return EventRow(
        event.project_id,
        event.uuid,
        event.event,
        event.distinct_id,
        event.timestamp,
        event.captured_at,
        json_bytes(properties),
        person.person_id,
        person.properties,
        person.created_at,
        person.mode,
        chain,
        attribution.groups,
        event.log_offset,
        None if flag is None else _text_form(flag),
        None if response is None else _text_form(response),
        None if session_id is None else _text_form(session_id),
        partition,
    )


def _text_form(value: Any) -> str:
    """Return a property that has a column of its own, as text."""
    return value if type(value) is str else orjson.dumps(value).decode()
