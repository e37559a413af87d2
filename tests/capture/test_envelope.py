"""Events of a request: shapes, fields, tokens, and what refuses a batch (spec: sdk-wire 1.3-1.5)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.capture.envelope import MAX_DEPTH, Envelope, nested_deeper_than, read_envelope
from hoglab.capture.refusal import Refusal

UUID = "01a1fba2-a20f-724b-ae47-4e40b2fe5c02"


def read(body: Any, *, engage: bool = False) -> Envelope:
    return read_envelope(body if isinstance(body, bytes) else json.dumps(body).encode(), engage=engage)


def refusal(body: Any, *, engage: bool = False) -> tuple[int, str]:
    with pytest.raises(Refusal) as refused:
        read(body, engage=engage)
    return refused.value.status, refused.value.reason


def event(**fields: Any) -> dict[str, Any]:
    return {"event": "e", "distinct_id": "u", **fields}


def batch(*events: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"api_key": "phc_x", "batch": list(events), **fields}


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (rb"a\ud83d", "a\ufffd"),
        (rb"\ude00\ud83d", "\ufffd\ufffd"),
        (rb"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (rb"\uD83D\uDE00", "\U0001f600"),
        (rb"\\ud83d \" \\\ud83d", '\\ud83d " \\\ufffd'),
    ],
)
def test_halves_of_surrogate_pairs_are_replaced(sent: bytes, read: str) -> None:
    envelope = read_envelope(b'{"api_key":"phc_x","event":"%b","distinct_id":"u"}' % sent)
    assert envelope.events[0].event == read
    inside = b'{"event":"e","properties":{"token":"phc_x","distinct_id":"u%b","k":"%b"}}' % (sent, sent)
    assert read_envelope(inside).events[0].distinct_id == f"u{read}"


@pytest.mark.parametrize(
    "body",
    [
        batch(event()),
        {"token": "phc_x", "batch": [event(token="phc_other")]},  # the batch's token wins
        {"batch": [event(api_key="phc_x"), event(token="phc_x")]},
        event(api_key="phc_x"),
        event(token=" phc_x "),
        {**event(), "$token": "phc_x"},
        event(properties={"token": "phc_x"}),
        [event(token="phc_x")],
        [event(token="phc_x"), event(properties={"token": "phc_x"})],
        {"event": "e", "$distinct_id": "u", "token": "phc_x"},
        {"event": "e", "properties": {"distinct_id": "u", "token": "phc_x"}},
    ],
)
def test_shapes(body: Any) -> None:
    envelope = read(body)
    assert envelope.token == "phc_x"
    assert {(each.event, each.distinct_id) for each in envelope.events} == {("e", "u")}


def test_a_batch_says_when_it_was_sent_and_whether_it_is_history() -> None:
    envelope = read(batch(event(), sent_at="2023-01-01T12:00:00Z", historical_migration=True))
    assert (envelope.sent_at, envelope.historical_migration) == ("2023-01-01T12:00:00Z", True)
    envelope = read(event(api_key="phc_x", sent_at="2023-01-01T12:00:00Z", historical_migration=True))
    assert (envelope.sent_at, envelope.historical_migration) == (None, False)


def test_engage_names_its_events() -> None:
    body = {"token": "phc_x", "distinct_id": "u", "$set": {"a": 1}}
    assert [each.event for each in read(body, engage=True).events] == ["$identify"]
    assert refusal(body) == (400, "event submitted without an event name")


@pytest.mark.parametrize(
    ("distinct_id", "expected"),
    [
        (17, "17"),
        (10**30, "1" + "0" * 30),
        (1.5, "1.5"),
        (True, "true"),
        ({"a": [1]}, '{"a":[1]}'),
        ("x" * 250, "x" * 200),
        ("é" * 250, "é" * 200),
        ("a\0b", "a\ufffdb"),
    ],
)
def test_distinct_ids_become_text(distinct_id: Any, expected: str) -> None:
    assert read(batch(event(distinct_id=distinct_id))).events[0].distinct_id == expected


@pytest.mark.parametrize(
    ("given_uuid", "expected"),
    [
        (UUID, UUID),
        (UUID.upper(), UUID),
        (UUID.replace("-", ""), UUID),
        ("", None),
        (None, None),
    ],
)
def test_uuids(given_uuid: str | None, expected: str | None) -> None:
    assert read(batch(event(uuid=given_uuid))).events[0].uuid == expected


@pytest.mark.parametrize(
    "odd",
    [
        UUID[:-1] + " ",
        UUID[:-1] + "-",
        UUID[:-1] + ";",
        UUID[:-1] + "é",
        UUID[:-1] + "g",
        UUID.replace("-", ";"),
        UUID[:-1],
        UUID + "0",
        f"{UUID};{UUID}",
    ],
)
@pytest.mark.parametrize("place", range(3))
def test_an_odd_uuid_among_sound_ones_is_found(odd: str, place: int) -> None:
    uuids = [UUID, UUID]
    uuids.insert(place, odd)
    assert refusal(batch(*(event(uuid=each) for each in uuids))) == (
        400,
        "the uuid of an event is not a UUID",
    )


def test_uuids_whose_lengths_only_add_up_are_found() -> None:
    assert refusal(batch(event(uuid=UUID[:-1]), event(uuid="0" + UUID)))[0] == 400


def test_uuids_of_a_batch_are_read_one_by_one() -> None:
    sent = [UUID, None, UUID.upper(), "", UUID.replace("-", ""), UUID]
    events = read(batch(*(event(uuid=each) for each in sent))).events
    assert [each.uuid for each in events] == [UUID, None, UUID, None, UUID, UUID]


def test_properties_stay_raw() -> None:
    text = (
        b'{"api_key":"phc_x","batch":[{"event":"e","distinct_id":"u","properties": {"n":1e999, "a" : [1]} }]}'
    )
    assert bytes(read(text).events[0].properties) == b'{"n":1e999, "a" : [1]}'


@pytest.mark.parametrize("missing", [None, [], {}])
def test_objects_that_are_missing(missing: Any) -> None:
    body = batch(
        {"event": "e", "distinct_id": "u", "properties": missing, "$set": missing, "$set_once": missing}
    )
    assert read(body).events[0].size_bytes in {0, 6}


def test_performance_events_are_removed() -> None:
    body = batch({"event": "$performance_event", "distinct_id": "u"}, event())
    assert [each.event for each in read(body).events] == ["e"]
    assert read(batch({"event": "$performance_event", "distinct_id": "u"})).events == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (batch(), (400, "request holds no event")),
        ([], (400, "request holds no event")),
        (batch(event(event="")), (400, "event submitted with an empty event name")),
        (batch(event(), {"distinct_id": "u"}), (400, "event submitted without an event name")),
        (batch(event(distinct_id="")), (400, "event submitted without a distinct_id")),
        (batch(event(distinct_id=None)), (400, "event submitted without a distinct_id")),
        (
            batch({"event": "e", "properties": {"distinct_id": ""}}),
            (400, "event submitted without a distinct_id"),
        ),
        (batch(event(uuid="seven")), (400, "the uuid of an event is not a UUID")),
        (batch(event(properties=[1])), (400, "the properties of an event must be an object")),
        (batch(event(properties="x")), (400, "the properties of an event must be an object")),
        (batch({**event(), "$set": 3}), (400, "the $set of an event must be an object")),
        (batch({**event(), "$set_once": True}), (400, "the $set_once of an event must be an object")),
        (event(), (401, "event submitted without an api_key")),
        (event(properties={"token": 3}), (401, "event submitted without an api_key")),
        ([event(token="a"), event(token="b")], (401, "batch submitted with inconsistent api_key values")),
        ([event(token="a"), event()], (401, "event submitted without an api_key")),
        (event(token=" "), (401, "API key is not valid: empty")),
        (event(token="p" * 65), (401, "API key is not valid: too_long")),
        (event(token="phc_é"), (401, "API key is not valid: not_ascii")),
        (event(token="phx_secret"), (401, "API key is not valid: personal_api_key")),
        (event(token="a\0b"), (401, "API key is not valid: null_byte")),
    ],
)
def test_refusals(body: Any, expected: tuple[int, str]) -> None:
    assert refusal(body) == expected


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"nonsense",
        b"null",
        b"17",
        b'"text"',
        b"{",
        b'{"event":"e","distinct_id":"u","token":"t"',
        b'{"event":"e","distinct_id":"u","token":"t","properties":{"a":NaN}}',
        b'{"event":"e","distinct_id":"u","token":"t","properties":{"a":01}}',
        b'{"event":"e","distinct_id":"u","token":"t","properties":{"a":"\n"}}',
        b'{"event":1e999,"distinct_id":"u","token":"t"}',
        b'{"event":["e"],"distinct_id":"u","token":"t"}',
        b'{"event":"e","distinct_id":1e999,"token":"t"}',
        b'{"event":"\xff","distinct_id":"u","token":"t"}',
        b'{"batch":{},"token":"t"}',
        b'{"batch":[1],"token":"t"}',
        b'{"batch":[null],"token":"t"}',
        b'\xef\xbb\xbf{"event":"e","distinct_id":"u","token":"t"}',
    ],
)
def test_what_is_no_event_is_a_400(text: bytes) -> None:
    assert refusal(text)[0] == 400


def nested(levels: int, opening: str = '{"a":', closing: str = "}") -> str:
    return opening * levels + "1" + closing * levels


@pytest.mark.parametrize("levels", [1, 10, MAX_DEPTH])
def test_nesting_within_the_limit(levels: int) -> None:
    text = f'{{"api_key":"t","batch":[{{"event":"e","distinct_id":"u","properties":{nested(levels)}}}]}}'
    assert len(read(text.encode()).events) == 1


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 500, 10_000, 1_000_000])
@pytest.mark.parametrize("field", ["properties", "$set", "$set_once", "distinct_id", "ignored"])
def test_nesting_beyond_the_limit(levels: int, field: str) -> None:
    text = f'{{"api_key":"t","batch":[{{"event":"e","{field}":{nested(levels)},"distinct_id":"u"}}]}}'
    if field in {"distinct_id", "ignored"} and levels <= 500:
        assert read(text.encode()).events[0].distinct_id == "u"  # read past, not kept
    else:
        status, reason = refusal(text.encode())
        assert status == 400
        assert "nested" in reason


@pytest.mark.parametrize("properties", ["{}", "null", "[]"])
def test_one_deep_event_among_many_is_found(properties: str) -> None:
    event = f'{{"event":"e","distinct_id":"u","properties":{properties}}}'
    events = ",".join([event] * 300)
    deep = f'{{"event":"e","distinct_id":"u","properties":{nested(MAX_DEPTH + 1)}}}'
    assert refusal(f'{{"api_key":"t","batch":[{events},{deep}]}}'.encode())[0] == 400


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(['"]}{[', "\\", '\\"']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=30,
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max((depth(each) for each in value.values()), default=0)
    if isinstance(value, list):
        return 1 + max((depth(each) for each in value), default=0)
    return 0


@given(values, st.integers(0, 6))
def test_depth_is_counted_like_a_parser_does(value: Any, levels: int) -> None:
    assert nested_deeper_than(json.dumps(value).encode(), levels) is (depth(value) > levels)


@given(values)
def test_any_json_is_read_or_refused(value: Any) -> None:
    for body in (
        value,
        [value],
        {"api_key": "t", "batch": [value]},
        batch(event(uuid=value)),
        event(token=value),
    ):
        try:
            envelope = read(body)
        except Refusal as refused:
            assert refused.status in {400, 401}  # noqa: PT017
        else:
            for each in envelope.events:
                assert each.event
                assert isinstance(each.distinct_id, str)
                assert 0 < len(each.distinct_id) <= 200
