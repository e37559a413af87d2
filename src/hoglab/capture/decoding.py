"""From the wire to JSON text: query, form, base64 and gzip layers (spec: sdk-wire 1.2, 1.3)."""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from dataclasses import dataclass
from urllib.parse import parse_qsl

from hoglab.capture.refusal import too_large, undecodable

GZIP_MAGIC = b"\x1f\x8b\x08"
SNIFFED_BYTES = 128
"""How much of a payload is looked at to tell forms and base64 from JSON."""

_FORM = b"application/x-www-form-urlencoded"
_FORM_START = re.compile(rb"(?:^|&)(?:data|_|ip|compression)=")
_BASE64_START = re.compile(rb"[A-Za-z0-9+/=]+")
_BASE64_BUT_SPACES = re.compile(r"[A-Za-z0-9+/= ]+")

_HINTS = {
    "gzip": "gzip",
    "gzip-js": "gzip",
    "lz64": "lz64",
    "lz-string": "lz64",
    "base64": "base64",
    "b64": "base64",
}


@dataclass(frozen=True, slots=True)
class Query:
    """The query parameters of a capture request that mean something (spec: sdk-wire 1.2)."""

    data: str = ""
    compression: str = ""
    sent_at_ms: int | None = None
    beacon: bool = False


NO_QUERY = Query()


@dataclass(frozen=True, slots=True)
class Payload:
    """``json`` is the JSON text; ``stored`` is the same, or the gzip member it came in, whichever arrived."""

    json: bytes
    stored: bytes
    is_gzip: bool


def read_query(query_string: bytes) -> Query:
    """The parameters of a raw query string; what is unknown or malformed is ignored."""
    if not query_string:
        return NO_QUERY
    try:
        fields = dict(parse_qsl(query_string.decode("latin-1"), keep_blank_values=True, max_num_fields=64))
    except ValueError:
        raise undecodable("the query has too many parameters") from None
    return Query(
        data=_restore_plus(fields.get("data", "")),
        compression=fields.get("compression", "").strip().lower(),
        sent_at_ms=_milliseconds(fields.get("sent_at") or fields.get("_") or ""),
        beacon=fields.get("beacon") == "1",
    )


def _milliseconds(text: str) -> int | None:
    # The lower bound (2021-01-01) catches clients that send seconds.
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        return None
    value = int(text)
    return value if value >= 1_609_459_200_000 else None


def _restore_plus(data: str) -> str:
    """A ``+`` of base64 that was not percent-encoded arrives as a space."""
    if " " in data and _BASE64_BUT_SPACES.fullmatch(data):
        return data.replace(" ", "+")
    return data


def decode_payload(
    body: bytes,
    query: Query,
    *,
    content_type: bytes,
    content_encoding: bytes,
    legacy: bool,
    limit_bytes: int,
) -> Payload:
    """Undo every layer around the JSON text; ``legacy`` paths may carry one more layer of base64.

    Raises `Refusal`: 400 for an undecodable or missing payload, 413 for one that decompresses to more than
    ``limit_bytes`` (decompression stops there).
    """
    raw = query.data.encode() if query.data else body
    if not raw:
        raise undecodable("the request has no payload")
    hint = _HINTS.get(query.compression)
    if hint != "lz64" and not _looks_like_form(raw) and looks_like_base64(raw):
        raw = _from_base64(raw)
    if not query.data and content_type.partition(b";")[0].strip().lower() == _FORM:
        raw, form_hint = _read_form(raw)
        hint = hint or form_hint
        if hint != "lz64" and looks_like_base64(raw):
            raw = _from_base64(raw)
    hint = hint or _HINTS.get(content_encoding.decode("latin-1").strip().lower())
    if hint == "lz64" and not raw.startswith(GZIP_MAGIC):
        raise undecodable("LZ64 compression is not supported; use gzip, base64 or no compression")
    is_gzip = hint == "gzip" or raw.startswith(GZIP_MAGIC)
    text = gunzip(raw, limit_bytes) if is_gzip else raw
    if legacy and looks_like_base64(text):
        text = _from_base64(text)
        raw, is_gzip = text, False
    if len(text) > limit_bytes:
        raise too_large(limit_bytes)
    if not text:
        raise undecodable("the request has no payload")
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            raise undecodable("the payload is not valid UTF-8") from None
    return Payload(text, raw, is_gzip)


def _looks_like_form(raw: bytes) -> bool:
    return _FORM_START.search(raw, 0, SNIFFED_BYTES) is not None


def looks_like_base64(raw: bytes) -> bool:
    """Whether a payload can be strict base64: its length and its first `SNIFFED_BYTES` bytes fit."""
    return len(raw) % 4 == 0 and _BASE64_START.fullmatch(raw, 0, SNIFFED_BYTES) is not None


def _from_base64(raw: bytes) -> bytes:
    try:
        return base64.b64decode(raw, validate=True)
    except binascii.Error:
        return raw


def _read_form(raw: bytes) -> tuple[bytes, str | None]:
    """The ``data`` field of a form, and the compression that the form names."""
    if not _looks_like_form(raw):
        raise undecodable("the body is not a form; send JSON with Content-Type: application/json")
    try:
        fields = dict(parse_qsl(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=64))
    except ValueError:
        raise undecodable("the form has too many fields") from None
    data = _restore_plus(fields.get("data", ""))
    if not data:
        raise undecodable("the form has no field named data")
    return data.encode(), _HINTS.get(fields.get("compression", "").strip().lower())


def gunzip(data: bytes, limit_bytes: int) -> bytes:
    """Decompress gzip members; raises `Refusal` 413 as soon as the limit is passed, 400 for broken data."""
    parts: list[bytes] = []
    room = limit_bytes + 1
    try:
        while data:
            stream = zlib.decompressobj(31)
            part = stream.decompress(data, room)
            parts.append(part)
            room -= len(part)
            if room <= 0:
                raise too_large(limit_bytes)
            if not stream.eof:
                raise undecodable("the gzip data ends too early")
            data = stream.unused_data
            if not data.startswith(GZIP_MAGIC):
                break  # padding after the last member
    except zlib.error:
        raise undecodable("the payload is not valid gzip data") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)
