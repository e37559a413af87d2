"""Records that hoglab did not write: each is put aside once or ingested as far as it can be, and the others go on."""

from __future__ import annotations

import gzip
import random
import time
from contextlib import suppress
from typing import Any
from zlib import crc32

import msgspec
import pytest
from tests.ingestion.conftest import event, record

from hoglab.capture.records import VERSION, RecordError, decode_record

FACTS = {
    "project_id": 1,
    "received_at_us": 1_795_262_400_000_000,
    "id": b"x" * 16,
    "is_gzip": False,
    "is_engage": False,
    "ip": None,
    "sent_at_ms": None,
    "max_event_bytes": 1_000_000,
    "indexes": None,
}
BODY = b'{"api_key": "t", "batch": [{"event": "odd", "distinct_id": "d", "properties": {"x": 1}}]}'


def sealed(head: bytes, stored: bytes) -> bytes:
    """Return a record of any bytes with a right checksum, as a foreign program would write it."""
    size = len(head).to_bytes(2)
    checksum = crc32(stored, crc32(head, crc32(size)))
    return b"".join((bytes((VERSION,)), checksum.to_bytes(4), size, head, stored))


def header(**facts: Any) -> bytes:
    return msgspec.msgpack.encode([*{**FACTS, **facts}.values()])


def body_of(member: bytes) -> bytes:
    return b'{"api_key":"t","batch":[{"event":"odd","distinct_id":"d",' + member + b"}]}"


LEAST, MOST = -(2**63), 2**63 - 1
HEADERS = {
    **{f"{name} {value}": header(**{name: value}) for value in (LEAST, -1, 0, MOST, 2**64 - 1)
       for name in ("project_id", "received_at_us", "sent_at_ms", "max_event_bytes")},
    **{f"id of {size}": header(id=b"x" * size) for size in (0, 1, 64, 65, 300)},
    **{f"indexes of {size}": header(indexes=b"\xff" * size) for size in (0, 3, 4, 4_000)},
    "a NUL in the address": header(ip="\0" * 9),
    "a long address": header(ip="9" * 60_000),
    "an unknown body": header(is_gzip=True),
    "engage": header(is_engage=True),
    "no header": b"",
    "a truncated header": header()[:-3],
    "a nested header": b"\x91" * 60_000,
    "an array of 4 billion": b"\xdd\xff\xff\xff\xff",
    "bytes of 4 billion": b"\x99\x01\x01\xc6\xff\xff\xff\xff",
    "a map": b"\x8f" * 100,
}  # fmt: skip
BODIES = {
    "nothing": b"",
    "NUL": b"\0" * 100,
    "deep lists": b"[" * 200_000,
    "deep properties": body_of(b'"properties":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "rather deep properties": body_of(b'"properties":' + b'{"a":' * 900 + b"1" + b"}" * 900),
    "deep $set": body_of(b'"$set":' + b'{"a":[' * 400 + b"1" + b"]}" * 400),
    "UTF-16": BODY.decode().encode("utf-16"),
    "no UTF-8": body_of(b'"properties":{"x":"\xff\xfe"}'),
    "lone surrogates": body_of(rb'"properties":{"\ud800":"\udc00","$set":{"\udfff":"\u0000"}}'),
    "NUL in names": body_of(rb'"properties":{"\u0000":"\u0000","$set":{"a\u0000":"\u0000"}}'),
    "a number of 200,000 digits": body_of(b'"properties":{"x":' + b"9" * 200_000 + b"}"),
    "huge exponents": body_of(b'"properties":{"x":1e999999999,"y":-1e-999999999}'),
    "the last moment": body_of(b'"timestamp":"9999-12-31T23:59:59.999999999+99:99"'),
    "the first moment": body_of(b'"timestamp":"0001-01-01T00:00:00+14:00","offset":1e308'),
    "a huge offset": body_of(b'"offset":-9999999999999999999999'),
    "another event's types": b'{"api_key":"t","batch":[{"event":{},"distinct_id":[1],"properties":[1],"uuid":{}}]}',
    "no events": b'{"api_key":"t","batch":[null,1,"x",[],{}]}',
    "members twice": body_of(b'"event":"other","distinct_id":{"a":1}'),
    "16 MiB": body_of(b'"properties":{"x":"' + b"y" * (16 << 20) + b'"}'),
    "a distinct id of 16 MiB": body_of(b'"distinct_id":"' + b"y" * (16 << 20) + b'"'),
    "escapes": body_of(b'"properties":{"x":"' + rb"\ud800" * 100_000 + b'"}'),
}
RECORDS = {
    **{name: sealed(head, BODY) for name, head in HEADERS.items()},
    **{name: sealed(header(), stored) for name, stored in BODIES.items()},
    "a bomb of gzip": sealed(header(is_gzip=True), gzip.compress(bytes(200 << 20), 1)),
    "half a gzip": sealed(header(is_gzip=True), gzip.compress(BODY)[:-9]),
    "no version": b"",
    "an unknown version": b"\x07" + record(event("a"))[1:],
    "the first version, cut off": b"\x01\xff",
    "a wrong magic": b"\x00\x00\x00\x00\x17magic",
}
LONGEST_S = 3.0
"""Bound of what hangs, in seconds of processor time; each takes a few hundredths."""


@pytest.mark.parametrize("odd", RECORDS.values(), ids=RECORDS.keys())
def test_decoding_raises_its_own_error_only_and_soon(odd: bytes) -> None:
    before = time.process_time()
    with suppress(RecordError):
        decode_record(odd)
    assert time.process_time() - before < LONGEST_S


def test_decoding_any_bytes_raises_its_own_error_only() -> None:
    dice = random.Random(7)
    good = sealed(header(), BODY)
    for _ in range(3_000):
        head = bytearray(header())
        stored = bytearray(BODY)
        for part in dice.choice(((head,), (stored,), (head, stored))):
            for _ in range(dice.randrange(1, 4)):
                part[dice.randrange(len(part))] = dice.randrange(256)
        for odd in (
            sealed(bytes(head), bytes(stored)),
            dice.randbytes(60),
            good[: dice.randrange(len(good))],
        ):
            with suppress(RecordError):
                decode_record(odd)


@pytest.mark.logs_exceptions
def test_ingestion_goes_on_after_any_record(house: Any) -> None:
    names = [*RECORDS]
    for start in range(0, len(names), 8):
        house.append(*(RECORDS[name] for name in names[start : start + 8]))
        house.send(event(f"good {start}"))
    house.run()
    kept = {name for name in house.rows() if name.startswith("good")}
    assert kept == {f"good {start}" for start in range(0, len(names), 8)}
    aside = house.quarantine.count()
    assert 0 < aside < len(names)
    house.restart()
    house.run()
    assert house.quarantine.count() == aside
    assert {name for name in house.rows() if name.startswith("good")} == kept
