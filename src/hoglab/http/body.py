"""Request bodies: reading them within limits, decoding JSON and forms (spec: experiments-api 1.1, 1.5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import orjson
from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException, MultiPartParser

from hoglab.http import errors

if TYPE_CHECKING:
    from starlette.types import Receive, Scope

MAX_BODY_BYTES = 20 * 1024 * 1024
"""Largest request body of the management API."""
BODY_TIMEOUT_S = 30.0
"""How long a whole body may take to arrive."""
MAX_JSON_DEPTH = 128
"""Deepest nesting of arrays and objects; what is stored must also fit the encoder, which stops at 254."""
MAX_FORM_FIELDS = 1000
"""Most fields of a form."""

OTHER_CHARSETS = frozenset({"ascii", "us-ascii", "iso-8859-1", "latin-1", "windows-1252", "utf-16", "utf-32"})
"""Charsets of JSON that are understood; under any other name a body is taken as UTF-8."""

JSON = "application/json"
URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"


class ClientGoneError(Exception):
    """The client hung up before its request was complete; nobody is left to answer."""


async def read_body(
    scope: Scope, receive: Receive, limit_bytes: int = MAX_BODY_BYTES, timeout_s: float = BODY_TIMEOUT_S
) -> bytes:
    """The whole body of a request.

    Raises 413 as soon as it is known to be over ``limit_bytes`` (from its announced length, before a byte of
    it is read), 408 when it has not arrived within ``timeout_s``, and `ClientGoneError`.
    """
    announced = content_length(scope)
    if announced is not None and announced > limit_bytes:
        raise errors.payload_too_large(limit_bytes)
    if announced == 0:
        return b""
    try:
        async with asyncio.timeout(timeout_s):
            return await _drain(receive, limit_bytes)
    except TimeoutError:
        raise errors.request_timeout() from None


async def _drain(receive: Receive, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        part = message.get("body", b"")
        size += len(part)
        if size > limit_bytes:
            raise errors.payload_too_large(limit_bytes)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def header(scope: Scope, name: bytes) -> str | None:
    """The first header of a (lower-case) name."""
    for key, value in scope["headers"]:
        if key == name:
            text: str = value.decode("latin-1")
            return text
    return None


def content_length(scope: Scope) -> int | None:
    """The announced length of the body; None when there is none or it is no number."""
    text = header(scope, b"content-length")
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 18 else None


@dataclass(frozen=True, slots=True)
class ContentType:
    """A parsed ``Content-Type`` header."""

    media_type: str
    parameters: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str | None) -> ContentType:
        media_type, *rest = (text or "").split(";")
        pairs = (part.partition("=") for part in rest)
        parameters = {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}
        return cls(media_type.strip().lower(), parameters)


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body: any JSON value, or the fields of a form."""

    value: Any
    is_form: bool = False


def empty_body() -> Body:
    """The body of a request without one; a dictionary of its own, for handlers may write into it."""
    return Body({})


def decode(raw: bytes, content_type: ContentType) -> Body:
    """Decode JSON or a url-encoded form; an empty body equals ``{}`` whatever its type.

    Raises 400 ``parse_error`` and 415. Multipart bodies are for `decode_multipart`.
    """
    if not raw:
        return empty_body()
    if content_type.media_type == JSON:
        return Body(decode_json(raw, content_type.parameters.get("charset")))
    if content_type.media_type == URLENCODED:
        return Body(_decode_form(raw), is_form=True)
    raise errors.unsupported_media_type(content_type.media_type)


def decode_json(raw: bytes, charset: str | None = None) -> Any:
    """A JSON document. Raises 400 ``parse_error`` for anything that is none, or is nested too deep.

    Refused as well: NaN and infinities, numbers beyond the range of a double, invalid UTF-8, lone surrogates.
    """
    if charset is not None and charset.lower() in OTHER_CHARSETS:
        raw = _to_utf8(raw, charset)
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise errors.parse_error(f"JSON parse error - {error}") from None
    if raw.count(b"[") + raw.count(b"{") > MAX_JSON_DEPTH and _deeper_than(value, MAX_JSON_DEPTH):
        raise errors.parse_error(f"JSON parse error - nested deeper than {MAX_JSON_DEPTH} levels")
    return value


def _to_utf8(raw: bytes, charset: str) -> bytes:
    try:
        return raw.decode(charset).encode()
    except UnicodeError:
        raise errors.parse_error(f"JSON parse error - the body is not valid {charset}") from None


def _deeper_than(value: Any, limit: int) -> bool:
    level: list[Any] = [value]
    for _ in range(limit):
        level = [item for items in level if isinstance(items, (dict, list)) for item in _items(items)]
        if not level:
            return False
    return any(isinstance(item, (dict, list)) for item in level)


def _items(container: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def _decode_form(raw: bytes) -> dict[str, Any]:
    try:
        text = raw.decode()
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FORM_FIELDS)
    except UnicodeDecodeError:
        raise errors.parse_error("Form parse error - the body is not valid UTF-8") from None
    except ValueError:
        raise errors.parse_error(f"Form parse error - more than {MAX_FORM_FIELDS} fields") from None
    return _collected(pairs)


def _collected(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Fields by name; one that is there several times becomes a list."""
    form: dict[str, Any] = {}
    for name, value in pairs:
        if name not in form:
            form[name] = value
        elif isinstance(form[name], list):
            form[name].append(value)
        else:
            form[name] = [form[name], value]
    return form


async def decode_multipart(raw: bytes, content_type_header: str) -> Body:
    """The text fields of a multipart form; no endpoint takes files, so file parts are left out."""
    if not raw:
        return empty_body()

    async def stream() -> AsyncIterator[bytes]:
        yield raw
        yield b""

    parser = MultiPartParser(
        Headers({"content-type": content_type_header}),
        stream(),  # type: ignore[arg-type]
        max_files=MAX_FORM_FIELDS,
        max_fields=MAX_FORM_FIELDS,
        max_part_size=len(raw),
    )
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, UnicodeError, ValueError) as error:
        reason = error.message if isinstance(error, MultiPartException) else "malformed"
        raise errors.parse_error(f"Multipart form parse error - {reason}") from None
    try:
        return Body(
            _collected((name, value) for name, value in form.multi_items() if isinstance(value, str)), True
        )
    finally:
        await form.close()
