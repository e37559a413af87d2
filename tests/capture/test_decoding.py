"""What arrives on the wire and the JSON text that comes out (spec: sdk-wire 1.2, 1.3)."""

from __future__ import annotations

import base64
import gzip
import zlib
from functools import partial
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.capture.decoding import Payload, Query, decode_payload, read_query
from hoglab.capture.refusal import Refusal

gzipped = partial(gzip.compress, mtime=0)  # the same in every process that collects tests
TEXT = b'{"api_key":"phc_x","event":"a","distinct_id":"u"}'
LZ64 = b"N4IghgDglg+g1gUwJ4gFwggCwMYwB4gA0ICAbggHYAua4RIAJlAM5VQXZUxQO0CuIAL5A==="
LIMIT = 1024 * 1024


def decode(
    body: bytes, query: str = "", *, content_type: str = "", encoding: str = "", legacy: bool = False
) -> Payload:
    return decode_payload(
        body,
        read_query(query.encode()),
        content_type=content_type.encode(),
        content_encoding=encoding.encode(),
        legacy=legacy,
        limit_bytes=LIMIT,
    )


def b64(data: bytes) -> bytes:
    return base64.b64encode(data)


PADDED = TEXT + b" " * (-len(TEXT) % 3)  # its base64 has no '=' at the end
FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("body", "query", "content_type", "encoding"),
    [
        (TEXT, "", "application/json", ""),
        (TEXT, "", "text/plain", ""),
        (TEXT, "", "", ""),
        (TEXT, "compression=unheard-of", "", ""),
        (gzipped(TEXT), "", "application/json", "gzip"),
        (gzipped(TEXT), "compression=gzip-js", "text/plain", ""),
        (gzipped(TEXT), "", "text/plain", ""),
        (gzipped(TEXT) + b"\0\0\0", "", "text/plain", ""),
        (gzipped(TEXT[:9]) + gzipped(TEXT[9:]), "", "text/plain", ""),
        (b64(TEXT), "", "text/plain", ""),
        (b64(PADDED), "compression=base64", "text/plain", ""),
        (b64(gzipped(TEXT)), "", "text/plain", ""),
        (b"data=" + quote(b64(TEXT)).encode(), "compression=base64", FORM, ""),
        (b"data=" + quote(b64(TEXT)).encode(), "", FORM + "; charset=utf-8", ""),
        (b"ver=1&data=" + b64(TEXT).replace(b"+", b" ").replace(b"=", b"%3D"), "", FORM, ""),
        (b"data=" + quote(TEXT).encode(), "", FORM, ""),
        (b"compression=gzip&data=" + quote(b64(gzipped(TEXT))).encode(), "", FORM, ""),
        (LZ64, "compression=lz64", "", ""),
        (LZ64, "compression=lz-string", "text/plain", ""),
        (LZ64, "", "text/plain", "lz64"),
        (b"data=" + quote(LZ64).encode(), "compression=lz64", FORM, ""),
        (b"compression=lz64&data=" + quote(LZ64).encode(), "", FORM, ""),
        (b"", "compression=lz64&data=" + quote(LZ64), "", ""),
        (b"", "data=" + quote(TEXT), "", ""),
        (b"", "data=" + quote(b64(TEXT)), "", ""),
        (b"ignored", "data=" + quote(b64(TEXT)) + "&ip=1&_=1672574400000", "", ""),
        (b"", "data=" + quote(TEXT), FORM, ""),
    ],
)
def test_every_layer_is_undone(body: bytes, query: str, content_type: str, encoding: str) -> None:
    assert decode(body, query, content_type=content_type, encoding=encoding).json.strip() == TEXT


def test_legacy_paths_undo_one_more_layer_of_base64() -> None:
    body = gzipped(b64(TEXT))
    payload = decode(body, legacy=True)
    assert payload == Payload(TEXT, TEXT, is_gzip=False)
    assert decode(body).json == b64(TEXT)


def test_a_gzip_body_is_stored_as_it_came() -> None:
    body = gzipped(TEXT)
    assert decode(body) == Payload(TEXT, body, is_gzip=True)
    assert decode(b64(body)) == Payload(TEXT, body, is_gzip=True)
    assert decode(TEXT) == Payload(TEXT, TEXT, is_gzip=False)


@pytest.mark.parametrize(
    ("body", "query", "content_type", "encoding", "status"),
    [
        (b"", "", "", "", 400),
        (TEXT, "", FORM, "", 400),  # not a form
        (b"_=1", "", FORM, "", 400),  # no data
        (b"not gzip", "compression=gzip", "", "", 400),
        (TEXT, "", "", "gzip", 400),
        (gzipped(TEXT)[:-9], "", "", "", 400),
        (gzipped(b""), "", "", "", 400),
        (b"\x1f\x8b\x08", "", "", "", 400),
        (b64(b"anything"), "compression=lz64", "", "", 400),
        (b"MA==", "", "", "lz64", 400),
        (b64(b"anything"), "compression=lz-string", "", "", 400),
        (b'{"a":"\xff"}', "", "", "", 400),
        (gzipped(b"a" * (LIMIT + 1)), "", "", "", 413),
        (gzipped(b"a" * LIMIT) + gzipped(b"a"), "", "", "", 413),
    ],
)
def test_what_cannot_be_decoded_is_refused(
    body: bytes, query: str, content_type: str, encoding: str, status: int
) -> None:
    with pytest.raises(Refusal) as refused:
        decode(body, query, content_type=content_type, encoding=encoding)
    assert refused.value.status == status


def test_decompression_stops_at_the_limit() -> None:
    bomb = gzipped(bytes(64 * LIMIT))
    assert len(bomb) < LIMIT // 10
    with pytest.raises(Refusal) as refused:
        decode(bomb)
    assert refused.value.status == 413
    assert len(decode(gzipped(bytes(LIMIT))).json) == LIMIT


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", Query()),
        ("sent_at=1672574410000", Query(sent_at_ms=1672574410000)),
        ("_=1672574410000&ver=1.2&ip=0&retry_count=3", Query(sent_at_ms=1672574410000)),
        ("_=1672574410", Query()),  # seconds
        ("_=1609459199999", Query()),  # the last moment of 2020
        ("_=1609459200000", Query(sent_at_ms=1609459200000)),
        ("_=never", Query()),
        ("_=99999999999999999999", Query()),
        ("_=%D9%A1", Query()),  # a digit, but not an ASCII one
        ("beacon=1", Query(beacon=True)),
        ("beacon=true", Query()),
        ("compression=GZIP", Query(compression="gzip")),
        ("&&&=&==%zz", Query()),
    ],
)
def test_query_parameters(query: str, expected: Query) -> None:
    assert read_query(query.encode()) == expected


@given(
    st.binary(max_size=600), st.binary(max_size=80), st.sampled_from(["", "gzip", "br", FORM]), st.booleans()
)
def test_no_body_does_worse_than_a_refusal(body: bytes, query: bytes, header: str, legacy: bool) -> None:
    for wrapped in (body, gzipped(body), b64(body), b"data=" + body, zlib.compress(body)):
        try:
            payload = decode_payload(
                wrapped,
                read_query(query),
                content_type=header.encode(),
                content_encoding=header.encode(),
                legacy=legacy,
                limit_bytes=500,
            )
        except Refusal as refusal:
            assert refusal.status in {400, 413}  # noqa: PT017
        else:
            assert 0 < len(payload.json) <= 500


@pytest.mark.parametrize("body", [b"null", b"true", b"1234", b"deadbeef"])
def test_what_only_looks_like_base64_is_left_alone(body: bytes) -> None:
    assert decode(body).json == body
