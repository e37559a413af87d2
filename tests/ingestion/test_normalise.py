"""From a log record to events, and to rows (spec: sdk-wire 1.4, 1.6, 1.8)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.capture.records import RecordHeader, decode_record, derived_uuid, encode_record, new_header
from hoglab.capture.v1 import read_batch, read_head
from hoglab.ingestion.normalise import Event, decode_object, events_of, row_of
from hoglab.people import Attribution, IngestionWarning, Resolution

NOW = datetime(2023, 1, 1, 12, 0, 0, tzinfo=UTC)
SESSION = "01A1FBA2-A20F-724B-AE47-4E40B2FE5C02"


def header(
    *,
    ip: str | None = "10.1.1.1",
    sent_at_ms: int | None = None,
    limit: int = 10_000,
    received_at: datetime = NOW,
) -> RecordHeader:
    return new_header(
        project_id=3,
        received_at=received_at,
        is_gzip=False,
        is_engage=False,
        ip=ip,
        sent_at_ms=sent_at_ms,
        max_event_bytes=limit,
    )


def read(
    *events: dict[str, Any], head: RecordHeader | None = None, **batch: Any
) -> tuple[list[Event], list[IngestionWarning]]:
    body = {"api_key": "t", "batch": [{"event": "e", "distinct_id": "u", **each} for each in events], **batch}
    record = decode_record(encode_record(head or header(), json.dumps(body).encode()))
    warnings: list[IngestionWarning] = []
    return events_of(record, 17, warnings), warnings


def properties_of(event: dict[str, Any], **batch: Any) -> dict[str, Any]:
    ((only,), _) = read(event, **batch)
    return only.properties


def test_an_event() -> None:
    uuid = "01a1fba2-a20f-724b-ae47-4e40b2fe5c02"
    head = header(sent_at_ms=1672578000000)  # an hour ahead
    ((event, second), warnings) = read(
        {"uuid": uuid, "timestamp": "2023-01-01T11:00:00Z", "properties": {"k": [1, 2.5, None]}},
        {},
        head=head,
    )
    assert (event.project_id, event.event, event.distinct_id, event.log_offset) == (3, "e", "u", 17)
    assert (event.uuid, event.captured_at, event.historical) == (UUID(uuid), NOW, False)
    assert event.timestamp == datetime(2023, 1, 1, 10, 0, 0, tzinfo=UTC)
    assert event.properties == {
        "k": [1, 2.5, None],
        "$ip": "10.1.1.1",
        "$sent_at": "2023-01-01T13:00:00.000Z",
    }
    assert (second.uuid, second.timestamp) == (derived_uuid(head, 1), NOW)
    assert warnings == []


def test_history_is_marked() -> None:
    ((event,), _) = read({}, historical_migration=True)
    assert event.historical
    assert "$ip" not in event.properties  # the address of who migrates, not of the event


def test_a_client_may_ask_to_leave_its_clock_alone() -> None:
    sent = {"timestamp": "2023-01-01T11:00:00Z", "properties": {"$ignore_sent_at": True}}
    ((event,), _) = read(sent, sent_at="2023-01-01T13:00:00Z")
    assert event.timestamp == datetime(2023, 1, 1, 11, 0, 0, tzinfo=UTC)


def v0_moment(happened: datetime, sent: datetime, received: datetime) -> datetime:
    head = header(received_at=received)
    ((event,), _) = read({"timestamp": happened.isoformat()}, head=head, sent_at=sent.isoformat())
    return event.timestamp


def v1_moment(happened: datetime, sent: datetime, received: datetime) -> datetime:
    headers = {
        b"authorization": b"Bearer phc_t",
        b"content-type": b"application/json",
        b"user-agent": b"tests",
        b"posthog-sdk-info": b"posthog-python/7.0.0",
        b"posthog-attempt": b"1",
        b"posthog-request-id": str(uuid4()).encode(),
        b"posthog-request-timestamp": sent.isoformat().encode(),
    }
    event = {"event": "e", "uuid": str(uuid4()), "distinct_id": "u", "timestamp": happened.isoformat()}
    body = {"created_at": sent.isoformat(), "batch": [event]}
    batch = read_batch(
        json.dumps(body).encode(), read_head(headers), limit_bytes=100_000, max_event_bytes=10_000
    )
    record = decode_record(encode_record(header(received_at=received), batch.body))
    (stored,) = events_of(record, 17, [])
    return stored.timestamp


@pytest.mark.parametrize("moment", [v0_moment, v1_moment])
def test_a_slow_request_leaves_an_exposure_before_its_conversion(
    moment: Callable[[datetime, datetime, datetime], datetime],
) -> None:
    converted = 0
    for number in range(40):
        exposed = NOW + timedelta(minutes=number)
        sent = exposed + timedelta(seconds=1)
        exposure = moment(exposed, sent, sent + timedelta(seconds=39 if number % 2 else 0))
        bought = exposed + timedelta(seconds=20)
        conversion = moment(bought, bought, bought + timedelta(milliseconds=50))
        converted += exposure < conversion
    assert converted == 40


@pytest.mark.parametrize(
    ("fields", "kind", "field"),
    [
        ({"timestamp": "yesterday-ish"}, "ignored_invalid_timestamp", "timestamp"),
        ({"timestamp": ""}, "ignored_invalid_timestamp", "timestamp"),
        ({"timestamp": True}, "ignored_invalid_timestamp", "timestamp"),
        ({"timestamp": -5}, "ignored_invalid_timestamp", "timestamp"),
        ({"timestamp": "\0" + "x" * 5000}, "ignored_invalid_timestamp", "timestamp"),
        ({"timestamp": "2023-13-01T00:00:00Z"}, "ignored_invalid_timestamp", "timestamp"),
        ({"timestamp": "12023-01-01T00:00:00Z"}, "ignored_invalid_timestamp", "timestamp"),
        ({"timestamp": "2024-01-01T00:00:00Z"}, "event_timestamp_in_future", "timestamp"),
        ({"offset": "5000"}, "ignored_invalid_timestamp", "offset"),
        ({"offset": 5.5}, "ignored_invalid_timestamp", "offset"),
        ({"offset": 10**14}, "ignored_invalid_timestamp", "offset"),
        ({"offset": -(10**9)}, "event_timestamp_in_future", "offset"),
    ],
)
def test_a_time_that_is_replaced_is_warned_of(fields: dict[str, Any], kind: str, field: str) -> None:
    ((event,), (warning,)) = read(fields)
    assert (warning.type, warning.event_uuid, warning.details["field"]) == (kind, event.uuid, field)
    assert warning.details["value"] == str(fields[field])[:200]
    assert warning.details["reason"]


@pytest.mark.parametrize("sent_at", ["soon", "", True, "12023-01-01T00:00:00Z"])
def test_a_time_of_sending_that_cannot_be_read_is_warned_of_once(sent_at: Any) -> None:
    (events, (warning,)) = read({}, {}, sent_at=sent_at)
    assert (warning.type, warning.event_uuid) == ("ignored_invalid_timestamp", events[0].uuid)
    assert (warning.details["field"], warning.details["value"]) == ("sent_at", str(sent_at))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"timestamp": None, "offset": None},
        {"timestamp": "2023-01-01"},
        {"timestamp": 1672570800},
        {"offset": 0},
        {"timestamp": "yesterday-ish", "offset": 5000},  # which overrides it
    ],
)
def test_a_time_that_counts_is_not_warned_of(fields: dict[str, Any]) -> None:
    (_, warnings) = read(fields)
    assert warnings == []


def test_set_beside_the_properties_wins() -> None:
    event = {
        "properties": {"$set": {"a": 1, "b": 1}, "$set_once": 5},
        "$set": {"b": 2},
        "$set_once": {"c": 3},
    }
    properties = properties_of(event)
    assert (properties["$set"], properties["$set_once"]) == ({"a": 1, "b": 2}, {"c": 3})


@pytest.mark.parametrize("beside", [["a", "b"], {"a": "", "b": 1}, ["a", 5, None, ["c"], {"d": 1}, "b"]])
@pytest.mark.parametrize("inside", [None, [], ["z", "a"], {"z": 1}, "z", 5, [["y"], "z"]])
def test_unset_beside_the_properties_is_added(beside: Any, inside: Any) -> None:
    properties = properties_of({"properties": {"$unset": inside}, "$unset": beside})
    assert sorted(properties["$unset"]) == (
        ["a", "b", "z"] if isinstance(inside, (list, dict)) and inside else ["a", "b"]
    )


@pytest.mark.parametrize("unset", [None, "plan", 5, True])
def test_unset_beside_the_properties_that_names_nothing_is_left_out(unset: Any) -> None:
    assert "$unset" not in properties_of({"$unset": unset})


@pytest.mark.parametrize(
    ("properties", "ip", "expected"),
    [
        ({}, "10.1.1.1", "10.1.1.1"),
        ({"$ip": "1.2.3.4"}, "10.1.1.1", "1.2.3.4"),
        ({"$ip": None}, "10.1.1.1", None),
        ({"capture_internal": 1}, "10.1.1.1", "127.0.0.1"),
        ({}, None, "absent"),
    ],
)
def test_addresses(properties: dict[str, Any], ip: str | None, expected: str | None) -> None:
    assert properties_of({"properties": properties}, head=header(ip=ip)).get("$ip", "absent") == expected


@pytest.mark.parametrize(
    ("session_id", "expected"),
    [(SESSION, SESSION.lower()), ("S1", "S1"), (SESSION + "X", SESSION + "X"), (7, 7), (None, None)],
)
def test_session_ids(session_id: Any, expected: Any) -> None:
    assert properties_of({"properties": {"$session_id": session_id}})["$session_id"] == expected


def test_large_events_are_dropped_with_a_warning() -> None:
    large = {"properties": {"a": "x" * 600}}
    (events, warnings) = read({}, large, {"$set": large["properties"]}, head=header(limit=500))
    assert [event.event for event in events] == ["e"]
    assert [(warning.type, warning.project_id) for warning in warnings] == [("message_size_too_large", 3)] * 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"a":1e999,"b":-1e999,"c":1}', {"a": None, "b": None, "c": 1}),
        (b'{"a":1e999,"b":18446744073709551615}', {"a": None, "b": 18446744073709551615}),
        (b'{"a":1e999,"b":18446744073709551616}', {"a": None, "b": 18446744073709551616.0}),
        (b'{"a":123456789012345678901234567890}', {"a": 1.2345678901234568e29}),
        (b'{"a":' + b"9" * 5000 + b"}", {"a": None}),
        (b'{"a":"\\u0000"}', {"a": "\0"}),
        (b"", {}),
    ],
)
def test_hostile_numbers(text: bytes, expected: dict[str, Any]) -> None:
    decoded = decode_object(memoryview(text))
    assert decoded == expected
    assert orjson.loads(orjson.dumps(decoded)) == expected


documents = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=5,
)


@given(documents)
def test_properties_can_always_be_written_again(document: dict[str, Any]) -> None:
    text = json.dumps(document).replace("Infinity", "1e999").encode()
    decoded = decode_object(memoryview(text))
    assert orjson.loads(orjson.dumps(decoded)) == decoded


def test_a_row() -> None:
    ((event,), _) = read(
        {
            "properties": {
                "$feature_flag": "f",
                "$feature_flag_response": True,
                "$session_id": None,
                "$elements": [{"tag_name": "p"}],
            }
        }
    )
    person = Resolution(UUID(int=5), b'{"a":1}', NOW, "full")
    row = row_of(event, Attribution(person, {1: "acme"}), anonymize_ip=True)
    assert orjson.loads(row.properties) == {
        "$feature_flag": "f",
        "$feature_flag_response": True,
        "$session_id": None,
    }
    assert (row.feature_flag, row.feature_flag_response, row.session_id) == ("f", "true", None)
    assert row.elements_chain == 'p:nth-child="0"nth-of-type="0"'
    assert (row.person_id, row.person_properties, row.person_created_at) == (UUID(int=5), b'{"a":1}', NOW)
    assert (row.groups, row.log_offset, row.person_mode) == ({1: "acme"}, 17, "full")
