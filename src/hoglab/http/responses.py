"""Answers: JSON as the wire wants it (spec: experiments-api 1.1, 1.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import BaseModel
from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.types import Send

    from hoglab.http.errors import WireError

JSON = "application/json"
_OPTIONS = orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS


@dataclass(frozen=True, slots=True)
class EncodedObject:
    """An object that is JSON already, and the entity tag of its state."""

    body: bytes
    tag: str


def encode_json(value: Any) -> bytes:
    """Return compact UTF-8 JSON; NaN and infinities become null, moments in UTC get a ``Z``, uuids become text.

    Raises `TypeError` for values that have no JSON form.
    """
    return orjson.dumps(value, _plain, _OPTIONS)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer whose body is ``value`` as JSON."""
    return Response(encode_json(value), status, headers, JSON)


def empty_response(status: int = 204, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer without a body."""
    return Response(None, status, headers)


def error_response(error: WireError) -> Response:
    """Return the answer that an error stands for."""
    if error.body is None:
        return empty_response(error.status, error.headers)
    return json_response(error.body, error.status, error.headers)


async def send_answer(
    send: Send,
    status: int,
    body: bytes = b"",
    media_type: str | None = None,
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    """Send a whole answer from a plain ASGI app, where an object for it would cost more than the work."""
    all_headers = list(headers)
    if media_type is not None:
        all_headers.append((b"content-type", media_type.encode()))
    if status not in (204, 304):
        all_headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True)
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(type(value).__name__)  # orjson says of itself which type it could not encode
