"""From the wire to JSON text: query, form, base64, gzip and LZ64 layers (spec: sdk-wire 1.2, 1.3)."""

from __future__ import annotations

import base64
import binascii
import codecs
from dataclasses import dataclass
from urllib.parse import parse_qsl

from hoglab.capture.lz64 import Lz64Error, Lz64LimitError, decompress_lz64
from hoglab.capture.refusal import too_large, undecodable
from hoglab.capture.refused import tokens_in
from hoglab.http.requests.decompression import (
    GZIP_MAGIC,
    BrokenDataError,
    TooLargeError,
    gunzip,
    percent_decoded,
)
from hoglab.patterns import anchored, searched

MAX_FORM_BYTES = 2 * 1024 * 1024
"""Largest form: browsers send them, and undoing their encoding takes many times their size."""
MAX_FORM_FIELDS = 64
MAX_LZ64_BYTES = 2 * 1024 * 1024
"""Maximum size of decompressed LZ64 data: only old browser SDKs send it, and reading it takes long."""
SNIFFED_BYTES = 128
"""Length of the part of a payload that is inspected to tell forms and base64 from JSON."""

_STRIDE = 1024 * 1024
_Utf8Decoder = codecs.getincrementaldecoder("utf-8")

_FORM = b"application/x-www-form-urlencoded"
_FORM_START = searched(rb"(?:^|&)(?:data|_|ip|compression)=")
_BASE64_START = anchored(rb"[A-Za-z0-9+/=]+")
_BASE64_BUT_SPACES = anchored(r"[A-Za-z0-9+/= ]+")

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
    """Return the parameters of a raw query string; what is unknown or malformed is ignored."""
    if not query_string:
        return NO_QUERY
    try:
        fields = dict(
            parse_qsl(query_string.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)
        )
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
    """Return a ``+`` of base64 that was not percent-encoded arrives as a space."""
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
    said = _HINTS.get(content_encoding.decode("latin-1").strip().lower())
    is_lz64 = (hint or said) == "lz64"
    if not is_lz64 and not _looks_like_form(raw) and looks_like_base64(raw):
        raw = _from_base64(raw)
    if not query.data and content_type.partition(b";")[0].strip().lower() == _FORM:
        raw, form_hint = _read_form(raw)
        hint = hint or form_hint
        is_lz64 = (hint or said) == "lz64"
        if not is_lz64 and looks_like_base64(raw):
            raw = _from_base64(raw)
    is_gzip = (hint or said) == "gzip" or raw.startswith(GZIP_MAGIC)
    text = _decompressed(raw, is_gzip=is_gzip, is_lz64=is_lz64, limit_bytes=limit_bytes)
    if not is_gzip:
        raw = text
    if legacy and looks_like_base64(text):
        text = raw = _from_base64(text)
        is_gzip = False
    if len(text) > limit_bytes:
        raise too_large(limit_bytes)
    if not text:
        raise undecodable("the request has no payload")
    if not is_utf8(text):
        refusal = undecodable("the payload is not valid UTF-8")
        refusal.tokens = tokens_in(text)
        raise refusal
    return Payload(text, raw, is_gzip)


def _decompressed(raw: bytes, *, is_gzip: bool, is_lz64: bool, limit_bytes: int) -> bytes:
    if is_lz64:
        limit_bytes = min(limit_bytes, MAX_LZ64_BYTES)
    try:
        if is_gzip:
            return gunzip(raw, limit_bytes)
        return decompress_lz64(raw, limit_bytes) if is_lz64 else raw
    except (TooLargeError, Lz64LimitError):
        raise too_large(limit_bytes) from None
    except BrokenDataError as error:
        raise undecodable(f"the payload is not valid gzip data: {error}") from None
    except Lz64Error as error:
        raise undecodable(f"the payload is not valid LZ64: {error}") from None


def is_utf8(text: bytes) -> bool:
    """Return whether bytes are text."""
    if text.isascii():
        return True
    decoder = _Utf8Decoder()
    try:
        # In steps, for a text takes up to four times its bytes.
        for start in range(0, len(text), _STRIDE):
            decoder.decode(text[start : start + _STRIDE])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _looks_like_form(raw: bytes) -> bool:
    return _FORM_START.search(raw, 0, SNIFFED_BYTES) is not None


def looks_like_base64(raw: bytes) -> bool:
    """Return whether a payload can be strict base64: its length and its first `SNIFFED_BYTES` bytes fit."""
    return len(raw) % 4 == 0 and _BASE64_START.fullmatch(raw, 0, SNIFFED_BYTES) is not None


def _from_base64(raw: bytes) -> bytes:
    """Decode base64, or return the payload itself when it is not base64: ``null`` and ``1234`` only look like it."""
    try:
        decoded = base64.b64decode(raw, validate=True)
    except binascii.Error:
        return raw
    return decoded if decoded.startswith(GZIP_MAGIC) or is_utf8(decoded) else raw


def _read_form(raw: bytes) -> tuple[bytes, str | None]:
    """Return the ``data`` field of a form, and the compression that the form names."""
    if not _looks_like_form(raw):
        raise undecodable("the body is not a form; send JSON with Content-Type: application/json")
    if len(raw) > MAX_FORM_BYTES:
        raise too_large(MAX_FORM_BYTES)
    if raw.count(b"&") >= MAX_FORM_FIELDS:
        raise undecodable("the form has too many fields")
    fields: dict[str, str] = {}
    for pair in raw.decode("latin-1").encode().replace(b"+", b" ").split(b"&"):
        name, _, value = (percent_decoded(part).decode("utf-8", "replace") for part in pair.partition(b"="))
        fields[name] = value
    data = _restore_plus(fields.get("data", ""))
    if not data:
        raise undecodable("the form has no field named data")
    return data.encode(), _HINTS.get(fields.get("compression", "").strip().lower())
