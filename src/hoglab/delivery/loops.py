"""Functions that send events to their own project with `fetch`, and so may start themselves again and again (spec:
hog-runtime 4.5, last paragraph).

What such a request sends is marked with how often the function did that on the way to it, and from `MAX_DEPTH` on it is
not sent. (`postHogCapture` counts by itself.) Where the request cannot be understood it goes out as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
from yarl import URL

if TYPE_CHECKING:
    from hoglab.delivery.fetch import FetchRequest

DEPTH_PROPERTY = "$hog_function_fetch_depth"
"""Property of events: by function, how many of its requests one after the other led to the event."""
MAX_DEPTH = 10
CAPTURE_PATHS = frozenset(
    {
        "/capture",
        "/batch",
        "/e",
        "/track",
        "/engage",
        "/i/v0/e",
        "/i/v0/ai",
        "/i/v0/ai/batch",
        "/i/v1/analytics/events",
    }
)
"""Every path that takes events, as `hoglab.capture` serves them."""
REFUSAL = (
    "Refusing to fetch a PostHog ingestion endpoint using this project's own API key: the event of this run comes from "
    f"{MAX_DEPTH} such requests of this function already, which looks like an endless loop."
)

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class EndlessLoopError(Exception):
    """A request that is not to be sent."""


class _Event(msgspec.Struct):
    properties: dict[str, Any] = {}


class _Globals(msgspec.Struct):
    event: _Event


_globals = msgspec.json.Decoder(_Globals)


def marked(
    request: FetchRequest, *, site_url: str, token: str, function_id: str, causes: Iterable[bytes]
) -> FetchRequest:
    """The request as it is to be sent. ``causes``: the globals, as JSON, of the events that the run is about.

    Raises `EndlessLoopError`.
    """
    bearer = _bearer(request)
    if (token not in (request.body or "") and bearer != token) or not _is_own_capture(request.url, site_url):
        return request
    try:
        body = orjson.loads(request.body or "")
        events = _events_of(body, token, bearer)
    except ValueError:
        return request
    if not events:
        return request
    depths = _depths(causes)
    depth = depths.get(function_id, 0)
    if depth >= MAX_DEPTH:
        raise EndlessLoopError(REFUSAL)
    mark = {**depths, function_id: depth + 1}
    for event in events:
        properties = event.get("properties")
        event["properties"] = {**(properties if isinstance(properties, dict) else {}), DEPTH_PROPERTY: mark}
    return replace(request, body=orjson.dumps(body).decode())


def _is_own_capture(url: str, site_url: str) -> bool:
    try:
        there, here = URL(url.strip()), URL(site_url)
    except ValueError:
        return False
    if there.path.rstrip("/") not in CAPTURE_PATHS or there.port != here.port:
        return False
    return there.host == here.host or {there.host, here.host} <= _LOOPBACK


def _bearer(request: FetchRequest) -> str | None:
    """The token in the headers, where the v1 protocol has it."""
    values = [value for name, value in request.headers.items() if name.lower() == "authorization"]
    scheme, _, token = values[-1].strip().partition(" ") if values else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else None


def _events_of(body: Any, token: str, bearer: str | None) -> list[dict[str, Any]]:
    """The events of a request that is authenticated with a token, none for others."""
    events = body if isinstance(body, list) else [body]
    own = bearer == token
    if isinstance(body, dict) and isinstance(body.get("batch"), list):
        events = body["batch"]
        own = own or token in _tokens(body)
    return [event for event in events if isinstance(event, dict) and (own or token in _tokens(event))]


def _tokens(part: dict[str, Any]) -> list[Any]:
    """What is named as the token by an event, or by a batch."""
    properties = part.get("properties")
    inside = properties.get("token") if isinstance(properties, dict) else None
    named = [part.get("api_key"), part.get("token"), part.get("$token"), inside]
    return [each.strip() for each in named if isinstance(each, str)]


def _depths(causes: Iterable[bytes]) -> dict[str, int]:
    """The marks of events, the highest of each function."""
    highest: dict[str, int] = {}
    for cause in causes:
        try:
            mark = _globals.decode(cause).event.properties.get(DEPTH_PROPERTY)
        except msgspec.DecodeError:
            continue
        for function_id, depth in mark.items() if isinstance(mark, dict) else ():
            if isinstance(depth, int) and not isinstance(depth, bool):
                highest[function_id] = max(highest.get(function_id, 0), depth)
    return highest
