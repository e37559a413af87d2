"""Request bodies: reading them within limits, decoding JSON and forms (spec: experiments-api 1.1, 1.5)."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

import orjson
from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException, MultiPartParser

from hoglab.http import errors
from hoglab.http.requests.budget import FREE_BYTES, Lease, lease_of
from hoglab.http.requests.deadlines import Deadlines

if TYPE_CHECKING:
    from starlette.types import Receive, Scope

T = TypeVar("T")

MAX_BODY_BYTES = 20 * 1024 * 1024
"""Largest request body of the management API."""
BODY_TIMEOUT_S = 30.0
"""Time limit for a whole body to arrive."""
MAX_JSON_DEPTH = 128
"""Deepest nesting of arrays and objects; what is stored must also fit the encoder, which stops at 254."""
MAX_JSON_VALUES = 1024 * 1024
"""Most values of a JSON document, as its commas tell, those in texts as well: each becomes an object."""
MAX_JSON_CONTAINERS = 100_000
"""Most arrays and objects of a JSON document, as its opening brackets tell: they become the largest objects."""
VALUE_BYTES = 96
CONTAINER_BYTES = 256
"""Approximate memory of a decoded value, array or object."""
MAX_FORM_FIELDS = 1000
"""Most fields of a form."""
MAX_URLENCODED_BYTES = 1024 * 1024
"""Largest url-encoded form; undoing its encoding takes many times its size. Files come as multipart."""
MAX_PART_HEADERS = 16
"""Most headers of one part of a multipart form."""

OTHER_CHARSETS = frozenset({"ascii", "us-ascii", "iso-8859-1", "latin-1", "windows-1252", "utf-16", "utf-32"})
"""Charsets of JSON that are understood; under any other name a body is taken as UTF-8."""

DISCARDED_BYTES = 1024 * 1024
DISCARD_TIMEOUT_S = 1.0
"""Limits of size and time for reading a body that is not wanted, which keeps its connection usable."""

JSON = "application/json"
URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"


class ClientGoneError(Exception):
    """The client disconnected before its request was complete; nobody is left to answer."""


async def read_body(
    scope: Scope,
    receive: Receive,
    limit_bytes: int = MAX_BODY_BYTES,
    timeout_s: float = BODY_TIMEOUT_S,
    *,
    keep: bool = True,
) -> bytes:
    """Return the whole body of a request; nothing of it when ``keep`` is off.

    Raises 413 as soon as it is known to be over ``limit_bytes`` (from its announced length, before a byte of
    it is read), 408 when it has not arrived within ``timeout_s``, 503 when there is no memory for it, 400 for
    broken chunks, and `ClientGoneError`.
    """
    announced = content_length(scope)
    if announced is not None and announced > limit_bytes:
        raise errors.payload_too_large(limit_bytes)
    if announced == 0:
        return b""
    whole = announced if header(scope, b"transfer-encoding") is None else None
    deadlines = Deadlines.here()
    task = asyncio.current_task(deadlines.loop)
    if task is None:
        return await asyncio.create_task(read_body(scope, receive, limit_bytes, timeout_s, keep=keep))
    arriving = _Arriving(scope, task) if keep else None
    try:
        return await deadlines.within(task, _drain(scope, receive, whole, limit_bytes, arriving), timeout_s)
    except TimeoutError:
        gave_way = arriving is not None and arriving.gave_way
        raise (errors.too_much_at_once() if gave_way else errors.request_timeout()) from None
    finally:
        if arriving is not None:
            arriving.end()


def announces_body(scope: Scope) -> bool:
    """Return whether a request says that it has a body."""
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


async def _drain(
    scope: Scope, receive: Receive, whole: int | None, limit_bytes: int, kept: _Arriving | None
) -> bytes:
    """Receive until the body ends: there is no more of it, or its ``whole`` bytes have arrived."""
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            if header(scope, b"transfer-encoding") is not None:
                raise errors.broken_body()  # or the client is gone, and nobody reads this
            raise ClientGoneError
        part = message.get("body", b"")
        size += len(part)
        if size > limit_bytes:
            raise errors.payload_too_large(limit_bytes)
        # A server may say only in another message that this was the last. To wait for that one costs as much as
        # the first did: another turn of the event loop and of the server's threads.
        is_last = size == whole or not message.get("more_body", False)
        if kept is not None:
            if is_last and size == len(part):
                if size > FREE_BYTES:
                    kept.charge(size)
                return bytes(part)
            kept.add(part)
        if is_last:
            return b"" if kept is None else kept.whole()


class _Arriving:
    """The parts of a body so far, in one piece of memory that is hardly larger than they are."""

    __slots__ = ("_buffer", "_lease", "_scope", "_task", "_uncharged")

    def __init__(self, scope: Scope, task: asyncio.Task[Any]) -> None:
        self._scope = scope
        self._task = task
        self._buffer: io.BytesIO | None = None
        self._lease: Lease | None = None
        self._uncharged = 0

    @property
    def gave_way(self) -> bool:
        return self._lease is not None and self._lease.gave_way

    def add(self, part: bytes) -> None:
        """Keep a part. Raises 503 when there is no memory for it."""
        self._uncharged += len(part)
        if self._lease is not None or self._uncharged > FREE_BYTES:
            self.charge(self._uncharged)
            self._uncharged = 0
        if self._buffer is None:
            self._buffer = io.BytesIO()
        self._buffer.write(part)

    def charge(self, size: int) -> None:
        lease = self._lease = lease_of(self._scope)
        if lease is not None:
            lease.receiver = self._task
            lease.take(size)

    def whole(self) -> bytes:
        """Return all bytes that arrived, without a copy."""
        return b"" if self._buffer is None else self._buffer.getvalue()

    def end(self) -> None:
        """Record that reading has ended, so that this request cannot give way to others any more."""
        if self._lease is not None:
            self._lease.receiver = None


_HEADERS_KEY = "hoglab.headers"


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first header of a (lower-case) name."""
    try:
        by_name = scope[_HEADERS_KEY]
    except KeyError:  # a dozen questions are asked about each request
        by_name = scope[_HEADERS_KEY] = dict(reversed(scope["headers"]))
    value: bytes | None = by_name.get(name)
    return None if value is None else value.decode("latin-1")


def content_length(scope: Scope) -> int | None:
    """Return the announced length of the body; None when there is none or it is no number."""
    text = header(scope, b"content-length")
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 18 else None


@dataclass(frozen=True, slots=True)
class ContentType:
    """A parsed ``Content-Type`` header."""

    media_type: str
    parameters: dict[str, str] = field(default_factory=dict)
    text: str = ""
    """The header as it came."""

    @classmethod
    def of(cls, text: str | None) -> ContentType:
        media_type, *rest = (text or "").split(";")
        pairs = (part.partition("=") for part in rest)
        parameters = {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}
        return cls(media_type.strip().lower(), parameters, text or "")


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body: any JSON value, or the fields and files of a form."""

    value: Any
    is_form: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Content of the files of a multipart form, by the name of their part; of several the last counts."""


def empty_body() -> Body:
    """Return the body of a request without one: a new dictionary, because handlers may write into it."""
    return Body({})


def decode(raw: bytes, content_type: ContentType) -> Body:
    """Decode JSON or a form; an empty body of any type equals ``{}``.

    Raises 400 ``parse_error``, 413 for a url-encoded form that is too large, and 415.
    """
    if not raw:
        return empty_body()
    if content_type.media_type == JSON:
        return Body(decode_json(raw, content_type.parameters.get("charset")))
    if content_type.media_type == URLENCODED:
        return Body(_decode_form(raw), is_form=True)
    if content_type.media_type == MULTIPART:
        return _decode_multipart(raw, content_type.text)
    raise errors.unsupported_media_type(content_type.media_type)


def decoded_bytes(raw: bytes, content_type: ContentType) -> int:
    """Return approximate memory of a decoded body, beside itself. Raises 400 when `decode` would for its size."""
    if content_type.media_type == JSON:
        values, containers = _count(raw)
        return VALUE_BYTES * values + CONTAINER_BYTES * containers
    if content_type.media_type == URLENCODED:
        return VALUE_BYTES * raw.count(b"%")
    return len(raw)


def decode_json(raw: bytes, charset: str | None = None) -> Any:
    """Return a JSON document. Raises 400 ``parse_error`` for anything that is none, or is nested too deep.

    Refused as well: NaN and infinities, numbers beyond the range of a double, invalid UTF-8, lone surrogates.
    So are more than `MAX_JSON_VALUES` or `MAX_JSON_CONTAINERS`, before anything is decoded.
    """
    if charset is not None and charset.lower() in OTHER_CHARSETS:
        raw = _to_utf8(raw, charset)
    _, containers = _count(raw)
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise errors.parse_error(f"JSON parse error - {error}") from None
    if containers > MAX_JSON_DEPTH and _deeper_than(value, MAX_JSON_DEPTH):
        raise errors.parse_error(f"JSON parse error - nested deeper than {MAX_JSON_DEPTH} levels")
    return value


def _count(raw: bytes) -> tuple[int, int]:
    """Return upper bounds of the numbers of values and of arrays and objects in a JSON text.

    Raises 400 for too many.
    """
    values = raw.count(b",") + 1
    if values > MAX_JSON_VALUES:
        raise errors.parse_error(f"JSON parse error - more than {MAX_JSON_VALUES:,} values")
    containers = raw.count(b"[") + raw.count(b"{")
    if containers > MAX_JSON_CONTAINERS:
        raise errors.parse_error(f"JSON parse error - more than {MAX_JSON_CONTAINERS:,} arrays and objects")
    return values, containers


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
    if len(raw) > MAX_URLENCODED_BYTES:
        raise errors.payload_too_large(MAX_URLENCODED_BYTES)
    try:
        text = raw.decode()
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FORM_FIELDS)
    except UnicodeDecodeError:
        raise errors.parse_error("Form parse error - the body is not valid UTF-8") from None
    except ValueError:
        raise errors.parse_error(f"Form parse error - more than {MAX_FORM_FIELDS} fields") from None
    return _collected(pairs)


def _collected(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return fields by name; one that is there several times becomes a list."""
    form: dict[str, Any] = {}
    for name, value in pairs:
        if name not in form:
            form[name] = value
        elif isinstance(form[name], list):
            form[name].append(value)
        else:
            form[name] = [form[name], value]
    return form


def _decode_multipart(raw: bytes, content_type_header: str) -> Body:
    """Yield the fields and files of a multipart form."""

    async def stream() -> AsyncIterator[bytes]:
        yield raw
        yield b""

    parser = _FormParser(
        Headers({"content-type": content_type_header}),
        stream(),  # type: ignore[arg-type]
        max_files=MAX_FORM_FIELDS,
        max_fields=MAX_FORM_FIELDS,
        max_part_size=len(raw),
    )
    parser.spool_max_size = len(raw) + 1
    try:
        form = _finished(parser.parse())
    except (MultiPartException, KeyError, UnicodeError, ValueError) as error:
        reason = error.message if isinstance(error, MultiPartException) else "malformed"
        raise errors.parse_error(f"Multipart form parse error - {reason}") from None
    try:
        fields = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
        files = {name: part.file.read() for name, part in form.multi_items() if not isinstance(part, str)}
        return Body(_collected(fields), True, files)
    finally:
        _finished(form.close())


class _FormParser(MultiPartParser):
    """A parser that counts the headers of a part."""

    _headers = 0

    def on_part_begin(self) -> None:
        self._headers = 0
        super().on_part_begin()

    def on_header_end(self) -> None:
        self._headers += 1
        if self._headers > MAX_PART_HEADERS:
            raise MultiPartException(f"A part has more than {MAX_PART_HEADERS} headers.")
        super().on_header_end()


def _finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that waits for nothing: the whole form is in memory, and so are its files."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("the parser waits for something")
