"""Request bodies: reading them within limits, decoding JSON and forms (spec: experiments-api 1.1, 1.5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import orjson
from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException, MultiPartParser

from hoglab.http import errors
from hoglab.http.deadlines import Deadlines

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

DISCARDED_BYTES = 1024 * 1024
DISCARD_TIMEOUT_S = 1.0
"""How much of a body that nobody wants is read, and for how long, to keep its connection usable."""

JSON = "application/json"
URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"


class ClientGoneError(Exception):
    """The client hung up before its request was complete; nobody is left to answer."""


async def read_body(
    scope: Scope,
    receive: Receive,
    limit_bytes: int = MAX_BODY_BYTES,
    timeout_s: float = BODY_TIMEOUT_S,
    *,
    keep: bool = True,
) -> bytes:
    """The whole body of a request; nothing of it when ``keep`` is off.

    Raises 413 as soon as it is known to be over ``limit_bytes`` (from its announced length, before a byte of
    it is read), 408 when it has not arrived within ``timeout_s``, and `ClientGoneError`.
    """
    announced = content_length(scope)
    if announced is not None and announced > limit_bytes:
        raise errors.payload_too_large(limit_bytes)
    if announced == 0:
        return b""
    whole = announced if header(scope, b"transfer-encoding") is None else None
    # What asyncio.timeout does, at a fraction of its price: this runs for every event and flag request.
    deadlines = Deadlines.here()
    task = asyncio.current_task(deadlines.loop)
    if task is None:
        return await asyncio.create_task(read_body(scope, receive, limit_bytes, timeout_s, keep=keep))
    cancelling = task.cancelling()
    deadlines.begin(task, timeout_s)
    is_late = False
    try:
        return await _drain(receive, whole, limit_bytes, keep=keep)
    except asyncio.CancelledError:
        is_late = deadlines.end(task)
        if is_late and task.uncancel() <= cancelling:
            raise errors.request_timeout() from None
        raise
    finally:
        if not is_late:
            deadlines.end(task)


def announces_body(scope: Scope) -> bool:
    """Whether a request says that it has a body."""
    length = content_length(scope)
    if length is not None:
        return length > 0
    if header(scope, b"transfer-encoding") is not None:
        return True
    return bool(scope.get("http_version", "1.1") >= "2" and scope["method"] in ("POST", "PUT", "PATCH"))


async def discard_body(scope: Scope, receive: Receive) -> None:
    """Read and forget a body that is not wanted, before the request is answered.

    An answer that comes before the body makes the server close the connection, and a client that keeps its
    connections sees its next request fail. A body that is too long or too slow to wait for has that fate still.
    """
    if announces_body(scope):
        with suppress(errors.ApiError, ClientGoneError):
            await read_body(scope, receive, DISCARDED_BYTES, DISCARD_TIMEOUT_S, keep=False)


async def _drain(receive: Receive, whole: int | None, limit_bytes: int, *, keep: bool) -> bytes:
    """Receive until the body ends: there is no more of it, or there are the ``whole`` bytes that it has."""
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
        if keep:
            parts.append(part)
        # A server may say only in another message that this was the last. To wait for that one costs as much as
        # the first did: another turn of the event loop and of the server's threads.
        if size == whole or not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


_HEADERS_KEY = "hoglab.headers"


def header(scope: Scope, name: bytes) -> str | None:
    """The first header of a (lower-case) name."""
    try:
        by_name = scope[_HEADERS_KEY]
    except KeyError:  # a dozen questions are asked about each request
        by_name = scope[_HEADERS_KEY] = dict(reversed(scope["headers"]))
    value: bytes | None = by_name.get(name)
    return None if value is None else value.decode("latin-1")


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
    """A decoded body: any JSON value, or the fields and files of a form."""

    value: Any
    is_form: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Content of the files of a multipart form, by the name of their part; of several the last counts."""


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
    """The fields and files of a multipart form."""
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
        fields = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
        files = {name: await part.read() for name, part in form.multi_items() if not isinstance(part, str)}
        return Body(_collected(fields), True, files)
    finally:
        await form.close()
