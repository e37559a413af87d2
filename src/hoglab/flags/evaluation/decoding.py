"""From the body of an evaluation request to JSON (spec: sdk-wire 2.1).

SDKs send plain JSON, gzip with or without a header for it, and base64 inside or outside of a form. JSON is read
leniently: ``NaN`` and infinities become null, invalid UTF-8 and lone surrogates become U+FFFD.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import Any

import orjson

from hoglab.http.errors import ApiError, payload_too_large, validation_error
from hoglab.http.requests.decompression import percent_decoded
from hoglab.patterns import searched

MAX_WIRE_BYTES = 2 * 1024 * 1024
"""Largest body of an evaluation request as it arrives."""
MAX_DECODED_BYTES = 4 * 1024 * 1024
"""Largest body after decompression; decompression stops there."""

MAX_VALUES = 100_000
"""Maximum number of values of a body.

Each becomes an object; commas and opening brackets, those in texts included, are counted.
"""

COMPRESSIONS = frozenset({"", "gzip", "gzip-js", "base64"})

_GZIP_MAGIC = b"\x1f\x8b"
_ANY_WRAPPER = zlib.MAX_WBITS | 32
_FORM = "application/x-www-form-urlencoded"
_JSON_LIKE = frozenset({"", "application/json", "text/plain"})
_FORM_FIELD = searched(rb"(?:^|&)data=([^&]*)")
_NOT_BASE64 = searched(rb"[^A-Za-z0-9+/=_-]")
_SURROGATE = searched("[\ud800-\udfff]")


def malformed(detail: str) -> ApiError:
    """Return the 400 for a request that cannot be understood (spec: sdk-wire 2.3)."""
    return validation_error(detail, code="malformed_data")


def decode_body(
    body: bytes,
    *,
    content_type: str = "",
    content_encoding: str = "",
    compression: str = "",
    limit_bytes: int = MAX_DECODED_BYTES,
) -> Any:
    """Return the JSON value that a body holds. Raises 400 ``malformed_data`` and 413."""
    if compression not in COMPRESSIONS:
        raise malformed(f"Unsupported compression: {compression[:40]}.")
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == _FORM:
        return _decode_form(body, limit_bytes)
    if media_type not in _JSON_LIKE:
        raise malformed("Unsupported content type; send JSON as application/json or text/plain.")
    if body.startswith(_GZIP_MAGIC) or compression.startswith("gzip") or "gzip" in content_encoding.lower():
        body = _gunzip(body, limit_bytes)
    if not body:
        raise malformed("The request has no body.")
    value = _lenient_json(body)
    if value is _NOTHING:
        value = _decode_base64(body, limit_bytes)
    if value is _NOTHING:
        raise malformed("The request body is neither JSON nor base64-encoded JSON.")
    return value


class _Nothing:
    """There is no value, which is not the same as null."""


_NOTHING = _Nothing()


def _decode_form(body: bytes, limit_bytes: int) -> Any:
    field = _FORM_FIELD.search(body)
    data = field[1] if field is not None else body
    value = _decode_base64(data, limit_bytes)
    if value is _NOTHING:
        value = _lenient_json(percent_decoded(data.replace(b"+", b" ")))
    if value is _NOTHING:
        raise malformed("The form holds no base64-encoded JSON in its data field.")
    return value


def _decode_base64(data: bytes, limit_bytes: int) -> Any:
    """Return JSON in base64 (either alphabet, padding optional), possibly percent-encoded or compressed inside."""
    text = percent_decoded(data).strip()
    # A plus sign of base64 that was not percent-encoded may have become a blank on the way.
    text = text.replace(b" ", b"+").replace(b"\n", b"").replace(b"\r", b"")
    if not text or _NOT_BASE64.search(text):
        return _NOTHING
    text = text.rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
    try:
        decoded = base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        return _NOTHING
    if decoded.startswith(_GZIP_MAGIC):
        decoded = _gunzip(decoded, limit_bytes)
    return _lenient_json(decoded)


def _gunzip(data: bytes, limit_bytes: int) -> bytes:
    """Decompress gzip or zlib data up to a limit. Data that is not compressed after all is returned as it is."""
    if not data.startswith((_GZIP_MAGIC, b"\x78")):
        return data
    engine = zlib.decompressobj(_ANY_WRAPPER)
    try:
        plain = engine.decompress(data, limit_bytes + 1)
    except zlib.error:
        raise malformed("The request body is not valid gzip data.") from None
    if len(plain) > limit_bytes:
        raise payload_too_large(limit_bytes)
    if not engine.eof:
        raise malformed("The compressed request body is incomplete.")
    return plain


def _lenient_json(data: bytes) -> Any:
    """Return any JSON value, or `_NOTHING`.

    Raises 400 before anything is decoded when the text has too many values.
    """
    if len(data) > MAX_VALUES and data.count(b",") + data.count(b"[") + data.count(b"{") > MAX_VALUES:
        raise malformed(f"The request body has more than {MAX_VALUES:,} values.")
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        return _without_surrogates(json.loads(text, parse_constant=lambda _name: None))
    except (ValueError, RecursionError):
        return _NOTHING


def _without_surrogates(value: Any) -> Any:
    """Return the value with lone surrogates replaced, so that it can be encoded again."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(member) for member in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(member) for key, member in value.items()}
    return value
