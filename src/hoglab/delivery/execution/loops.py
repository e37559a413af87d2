"""Loops: functions that start themselves again and again (spec: hog-runtime 4.5, last paragraph).

A function may send events to its own project with `fetch`, or call its webhooks. The events of such a request are
marked with how often the function did that in the chain that led to it, and from `MAX_DEPTH` on it is not sent. A
request to a webhook has the length of the chain that led to it in a header, as `postHogCapture` counts it, for its
event has no properties of its own. A request that cannot be parsed is sent unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
from yarl import URL

from hoglab.delivery.bodies.hosted import CHAIN_PROPERTY
from hoglab.delivery.outbound import read_url
from hoglab.patterns import anchored

if TYPE_CHECKING:
    from hoglab.delivery.outbound import FetchRequest

DEPTH_PROPERTY = "$hog_function_fetch_depth"
"""Property of events: by function, how many of its requests in a row led to the event."""
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
"""Every path that accepts events, as `hoglab.capture` serves them."""
WEBHOOK_PATH = "/public/webhooks/"
"""Path at which functions answer requests; see `hoglab.delivery.webhooks.routes`."""
CHAIN_HEADER = "X-Hoglab-Chain"
"""Header of requests to webhooks: how many functions in a row led to the request."""
WEBHOOK_REFUSAL = (
    "Refusing to fetch a webhook of this server: "
    f"{MAX_DEPTH} functions in a row led to this run already, which looks like an endless loop."
)
REFUSAL = (
    "Refusing to fetch a PostHog ingestion endpoint using this project's own API key: the event of this run comes from "
    f"{MAX_DEPTH} such requests of this function already, which looks like an endless loop."
)

_NUMBER = anchored("[0-9]{1,3}")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class EndlessLoopError(Exception):
    """A request must not be sent, because it would continue an endless loop."""


class _Event(msgspec.Struct):
    properties: dict[str, Any] = {}

    @property
    def chain(self) -> int:
        """Return the number of functions in a row that led to the event."""
        length = self.properties.get(CHAIN_PROPERTY)
        return int(length) if isinstance(length, int | float) and not isinstance(length, bool) else 0


class _Globals(msgspec.Struct):
    event: _Event


_globals = msgspec.json.Decoder(_Globals)


def marked(
    request: FetchRequest, *, site_url: str, token: str, function_id: str, causes: Iterable[bytes]
) -> FetchRequest:
    """Return the request with marks. ``causes`` are the globals, as JSON, of the run's events.

    Raises `EndlessLoopError`.
    """
    bearer = _bearer(request)
    names_token = token in (request.body or "") or bearer == token
    if not names_token and WEBHOOK_PATH not in request.url:  # nearly always: the URL need not be parsed
        return request
    path = _own_path(request.url, site_url) or ""
    if path.startswith(WEBHOOK_PATH):
        return _chained(request, causes)
    if not names_token or path.rstrip("/") not in CAPTURE_PATHS:
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


def chain_of(header: str | None) -> int:
    """Return the length of the chain in `CHAIN_HEADER`, 0 for an invalid header."""
    return int(header) if header is not None and _NUMBER.fullmatch(header) else 0


def _chained(request: FetchRequest, causes: Iterable[bytes]) -> FetchRequest:
    length = max((0, *(event.chain for event in _events(causes))))
    if length >= MAX_DEPTH:
        raise EndlessLoopError(WEBHOOK_REFUSAL)
    kept = {name: value for name, value in request.headers.items() if name.lower() != CHAIN_HEADER.lower()}
    return replace(request, headers={**kept, CHAIN_HEADER: str(length + 1)})


def _own_path(url: str, site_url: str) -> str | None:
    """Return the path of a URL of this server, None for others.

    A URL that the server's own address is an upgrade of to HTTPS is one of them: redirects lead there.
    """
    try:
        there, here = read_url(url), URL(site_url)
    except ValueError:
        return None
    is_same_port = there.port == here.port or (there.scheme, here.scheme) == ("http", "https")
    is_same_host = there.host == here.host or {there.host, here.host} <= _LOOPBACK
    return there.path if is_same_port and is_same_host else None


def _bearer(request: FetchRequest) -> str | None:
    """Return the token in the headers, where the v1 protocol has it."""
    values = [value for name, value in request.headers.items() if name.lower() == "authorization"]
    scheme, _, token = values[-1].strip().partition(" ") if values else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else None


def _events_of(body: Any, token: str, bearer: str | None) -> list[dict[str, Any]]:
    """Return the events of a request that is authenticated with a token, none for others."""
    events = body if isinstance(body, list) else [body]
    own = bearer == token
    if isinstance(body, dict) and isinstance(body.get("batch"), list):
        events = body["batch"]
        own = own or token in _tokens(body)
    return [event for event in events if isinstance(event, dict) and (own or token in _tokens(event))]


def _tokens(part: dict[str, Any]) -> list[Any]:
    """Return the tokens that an event, or a batch, names."""
    properties = part.get("properties")
    inside = properties.get("token") if isinstance(properties, dict) else None
    named = [part.get("api_key"), part.get("token"), part.get("$token"), inside]
    return [token.strip() for token in named if isinstance(token, str)]


def _events(causes: Iterable[bytes]) -> Iterator[_Event]:
    for cause in causes:
        with suppress(msgspec.DecodeError):
            yield _globals.decode(cause).event


def _depths(causes: Iterable[bytes]) -> dict[str, int]:
    """Return the marks of events, the highest of each function."""
    highest: dict[str, int] = {}
    for event in _events(causes):
        mark = event.properties.get(DEPTH_PROPERTY)
        for function_id, depth in mark.items() if isinstance(mark, dict) else ():
            if isinstance(depth, int) and not isinstance(depth, bool):
                highest[function_id] = max(highest.get(function_id, 0), depth)
    return highest
