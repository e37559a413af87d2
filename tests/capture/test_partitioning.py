"""Requests divided into records by partition: the same events, with the same uuids, where distinct ids belong."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.generated import examples

from hoglab.capture.partitioning import MAX_HEADER_INDEXES, divided, partition_of
from hoglab.capture.records import RecordError, decode_record, encode_record, new_header
from hoglab.capture.refusal import Refusal
from hoglab.ingestion.normalise import Event, events_of

NOW = datetime(2026, 11, 21, 1, 2, 3, 456789, tzinfo=UTC)
MANY = 1 << 30


def record(body: Any, *, is_gzip: bool = False, is_engage: bool = False) -> bytes:
    text = body if isinstance(body, bytes) else orjson.dumps(body)
    head = new_header(
        project_id=7,
        received_at=NOW,
        is_gzip=is_gzip,
        is_engage=is_engage,
        ip="10.0.0.1",
        sent_at_ms=None,
        max_event_bytes=1_000_000,
    )
    return encode_record(head, gzip.compress(text) if is_gzip else text)


def batch(*events: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"api_key": "phc_t", "batch": list(events), **more}


def seen(payload: bytes) -> list[tuple[Any, ...]]:
    """What ingestion makes of a record."""
    events: list[Event] = events_of(decode_record(payload), 0, [])
    return [
        (e.uuid, e.event, e.distinct_id, e.timestamp, e.captured_at, e.properties, e.historical)
        for e in events
    ]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
properties = st.dictionaries(
    st.sampled_from(["a", "$set", "$ip", "$session_id", "token"]), json_values, max_size=3
)


@st.composite
def incoming(draw: st.DrawFn) -> dict[str, Any]:
    event: dict[str, Any] = {"event": draw(st.sampled_from(["seen", "$identify", "b\0c"]))}
    ids = (
        st.sampled_from(["u1", "u2", "ü3", "x" * 300, "a\0b"])
        | st.integers()
        | st.lists(st.booleans(), max_size=2)
    )
    event["distinct_id"] = draw(ids)
    if draw(st.booleans()):
        event["uuid"] = str(draw(st.uuids()))
    if draw(st.booleans()):
        event["timestamp"] = draw(
            st.sampled_from(["2026-11-20T00:00:00Z", 1.7e12, 10**30, "nonsense", {"a": 1}])
        )
    if draw(st.booleans()):
        event["offset"] = draw(st.integers(0, 10**6) | st.just([1]))
    for name in ("properties", "$set", "$set_once"):
        if draw(st.booleans()):
            event[name] = draw(properties)
    if draw(st.booleans()):
        event["$unset"] = draw(st.lists(st.text(max_size=3), max_size=2) | properties | st.none())
    return event


class TestTheSameEvents:
    @settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        st.lists(incoming(), min_size=1, max_size=8),
        st.integers(1, 5),
        st.booleans(),
        st.booleans(),
        st.sampled_from([None, "2026-11-21T00:00:00Z", 17e11, {"a": []}]),
    )
    def test_come_out_of_the_records_that_go_in(
        self, events: list[dict[str, Any]], partitions: int, is_gzip: bool, historical: bool, sent_at: Any
    ) -> None:
        body = json.dumps(batch(*events, historical_migration=historical, sent_at=sent_at)).encode()
        whole = record(body, is_gzip=is_gzip)
        parts = divided(whole, partitions, MANY)
        assert sorted(map(repr, seen(whole))) == sorted(
            repr(each) for _, part in parts for each in seen(part)
        )
        for partition, part in parts:
            assert {partition_of(7, each[2], partitions) for each in seen(part)} == {partition}
        for distinct_id in {each[2] for each in seen(whole)}:  # and in the order in which they came
            ours = [repr(each) for _, part in parts for each in seen(part) if each[2] == distinct_id]
            assert ours == [repr(each) for each in seen(whole) if each[2] == distinct_id]

    def test_have_uuids_that_do_not_depend_on_the_partitions(self) -> None:
        whole = record([{"event": "e", "distinct_id": f"u{n % 5}", "token": "phc_t"} for n in range(20)])
        uuids: list[set[UUID]] = [
            {each[0] for _, part in divided(whole, partitions, MANY) for each in seen(part)}
            for partitions in (1, 2, 16)
        ]
        assert uuids[0] == uuids[1] == uuids[2]
        assert len(uuids[0]) == 20

    def test_of_one_partition_are_the_bytes_that_came(self) -> None:
        whole = record(
            batch({"event": "e", "distinct_id": "u"}, {"event": "f", "distinct_id": "u"}), is_gzip=True
        )
        assert divided(whole, 16, MANY) == [(partition_of(7, "u", 16), whole)]

    def test_of_engage_keep_their_name(self) -> None:
        whole = record([{"distinct_id": name, "token": "phc_t"} for name in "abcdef"], is_engage=True)
        parts = divided(whole, 4, MANY)
        assert len(parts) > 1
        assert {each[1] for _, part in parts for each in seen(part)} == {"$identify"}

    def test_with_half_characters_are_mended(self) -> None:
        whole = record(
            rb'[{"event":"e","distinct_id":"a\ud83d","token":"t"},{"event":"e","distinct_id":"b","token":"t"}]'
        )
        assert sorted(map(repr, seen(whole))) == sorted(
            repr(each) for _, part in divided(whole, 64, MANY) for each in seen(part)
        )


class TestSizes:
    def test_a_record_that_is_too_large_is_split_by_event(self) -> None:
        events = [
            {"event": "e", "distinct_id": "u", "properties": {"n": n, "t": "x" * 900}} for n in range(10)
        ]
        whole = record(batch(*events))
        parts = divided(whole, 16, 3000)
        assert len(parts) > 3
        assert all(len(part) <= 3000 for _, part in parts)
        assert [each for _, part in parts for each in seen(part)] == seen(whole)  # one partition: in order

    def test_a_part_may_be_divided_again(self) -> None:
        whole = record(batch(*({"event": "e", "distinct_id": f"u{n}"} for n in range(40))))
        again = [each for _, part in divided(whole, 4, MANY) for each in divided(part, 4, 400)]
        assert sorted(map(repr, seen(whole))) == sorted(
            repr(each) for _, part in again for each in seen(part)
        )

    def test_an_event_that_is_too_large_alone_is_refused(self) -> None:
        whole = record(batch({"event": "e", "distinct_id": "u", "properties": {"t": "x" * 5000}}))
        with pytest.raises(Refusal) as caught:
            divided(whole, 16, 4000)
        assert caught.value.status == 413

    def test_the_header_has_room_for_so_many_events(self) -> None:
        count = 2 * MAX_HEADER_INDEXES + 1
        whole = record(batch(*({"event": "e", "distinct_id": "ab"[n % 2]} for n in range(count))))
        parts = divided(whole, 64, MANY)
        assert sum(len(decode_record(part).envelope.events) for _, part in parts) == count
        assert max(len(decode_record(part).envelope.events) for _, part in parts) <= MAX_HEADER_INDEXES


def test_a_part_that_lost_the_places_of_its_events_is_damaged() -> None:
    parts = divided(record(batch(*({"event": "e", "distinct_id": n} for n in "abcd"))), 64, MANY)
    header = decode_record(parts[0][1]).header
    with pytest.raises(RecordError, match="where each of its events was"):
        decode_record(encode_record(header, orjson.dumps(batch(*[{"event": "e", "distinct_id": "u"}] * 9))))


def test_the_partition_of_a_distinct_id_never_changes() -> None:
    """What is in a log was put there by this rule."""
    assert [partition_of(1, name, 16) for name in ("user", "another", "ü", "019b")] == [5, 0, 12, 11]
    assert partition_of(2, "user", 16) == 13
