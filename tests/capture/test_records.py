"""A record of the event log comes back as it went in."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from uuid import RFC_4122

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.capture.records import (
    RecordError,
    RecordHeader,
    decode_record,
    derived_uuid,
    encode_record,
    new_header,
)

NOW = datetime(2026, 11, 21, 1, 2, 3, 456789, tzinfo=UTC)
TEXT = b'[{"event":"a","distinct_id":"u","token":"t"},{"event":"b","distinct_id":"u","token":"t"}]'


def header(*, is_gzip: bool = False, is_engage: bool = False) -> RecordHeader:
    return new_header(
        project_id=7,
        received_at=NOW,
        is_gzip=is_gzip,
        is_engage=is_engage,
        ip="10.0.0.1",
        sent_at_ms=1672574410000,
        max_event_bytes=1000,
    )


@pytest.mark.parametrize("is_gzip", [False, True])
def test_round_trip(is_gzip: bool) -> None:
    head = header(is_gzip=is_gzip)
    record = decode_record(encode_record(head, gzip.compress(TEXT) if is_gzip else TEXT))
    assert record.header == head
    assert record.header.received_at == NOW
    assert record.json_bytes == len(TEXT)
    assert [each.event for each in record.envelope.events] == ["a", "b"]


def test_engage_is_remembered() -> None:
    record = decode_record(encode_record(header(is_engage=True), b'{"distinct_id":"u","token":"t"}'))
    assert record.envelope.events[0].event == "$identify"


def test_derived_uuids_are_stable_distinct_and_carry_the_time() -> None:
    head = header()
    again = decode_record(encode_record(head, TEXT)).header
    made = [derived_uuid(head, index) for index in range(1000)]
    assert made == [derived_uuid(again, index) for index in range(1000)]
    assert len(set(made)) == 1000
    assert derived_uuid(header(), 0) not in made
    assert {(each.version, each.variant) for each in made} == {(7, RFC_4122)}
    assert {each.int >> 80 for each in made} == {int(NOW.timestamp() * 1000)}


@given(st.binary(max_size=300))
def test_other_bytes_are_not_a_record(data: bytes) -> None:
    for candidate in (data, b"\x01" + data, b"\x02" + data, b"\x01\x00\x05" + data):
        with pytest.raises(RecordError):
            decode_record(candidate)


@given(st.integers(0, 200), st.integers(1, 255))
def test_a_damaged_record_is_read_or_refused(position: int, change: int) -> None:
    record = bytearray(encode_record(header(is_gzip=True), gzip.compress(TEXT)))
    record[position % len(record)] ^= change
    try:
        decode_record(bytes(record))
    except RecordError:
        assert True
