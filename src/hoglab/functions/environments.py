"""Environments of functions: what texts of each type may use (spec: hog-runtime 4.2, hog-functions-api 5.7).

The language has the library; this module has the functions that the server adds to it. Functions that the host
performs (`fetch` and its like) are only declared: the program stops there and the runtime answers.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from hoglab.hog import (
    ANY,
    EXPRESSION_BYTES,
    EXPRESSION_LIMITS,
    TEMPLATE,
    Context,
    Environment,
    Function,
    Globals,
    HogRuntimeError,
    Limits,
    host_function,
)
from hoglab.hog.values import stringify

GeoIpLookup = Callable[[str], Mapping[str, Any] | None]
"""Function that returns the city record of an IP address, None when it is not known."""

_EVENT = frozenset({"uuid", "event", "distinct_id", "properties", "elements_chain", "timestamp", "url"})
_PROJECT = frozenset({"id", "name", "url"})
TRANSFORMATION_GLOBALS: Globals = {"project": _PROJECT, "event": _EVENT, "inputs": None}
"""Globals of transformations."""
DESTINATION_GLOBALS: Globals = {
    "project": _PROJECT,
    "event": _EVENT | {"captured_at"},
    "events": None,
    "person": frozenset({"id", "name", "url", "properties"}),
    "groups": None,
    "source": frozenset({"name", "url"}),
    "inputs": None,
    "record": None,
    "request": frozenset({"method", "headers", "query", "body", "stringBody", "ip"}),
}
"""Globals of destinations and webhooks (spec: hog-runtime 1.1).

`events` is there in runs for many events, `record` in runs on rows of tables, `request` in webhooks.
"""

DESTINATION_LIMITS = Limits(time_s=1.0, async_steps=5, print_lines=24)
"""Limits of the bodies of hog functions."""

MASKING_LIMITS = Limits(time_s=0.05, memory_bytes=EXPRESSION_BYTES)
"""Limits of masking hashes."""

CLEAN_DEPTH = 3
"""Maximum depth at which `cleanNullValues` looks."""


def _refused(message: str) -> Callable[..., Any]:
    def impl(*_args: Any) -> Any:
        raise HogRuntimeError(message)

    return impl


def _print(ctx: Context, *values: Any) -> None:
    """Print values separated by commas, texts as they are and all else as JSON (spec: hog-runtime 4.4)."""
    room = ctx.limits.print_chars
    parts: list[str] = []
    for value in values:
        text = value if isinstance(value, str) else stringify(value)
        parts.append(text[: room + 1])
        room -= len(text) + 2
        if room < 0:
            break
    ctx.print(", ".join(parts))


PRINT = host_function(
    "print",
    "values...: any",
    impl=_print,
    doc="Writes the arguments, joined by commas, to the log of the function.",
    returns="null",
    needs_context=True,
)

HOST_FUNCTIONS = (
    host_function(
        "fetch", "url: string", "options?: object", doc="Sends an HTTP request: {status, body, headers}."
    ),
    host_function("postHogCapture", "event: object", doc="Captures an event in the function's own project."),
    host_function(
        "sendEmail", "email: object", doc="Sends an e-mail over the operator's mail server: {success, error}."
    ),
    host_function("generateMessagingPreferencesUrl", "id?: any", doc="Not performed by this server."),
    host_function("sendPushNotification", "options: object", doc="Not performed by this server."),
    host_function("postHogGetTicket", "options: object", doc="Not performed by this server."),
    host_function("postHogUpdateTicket", "options: object", doc="Not performed by this server."),
    host_function("produceToWarehouseWebhooks", "payload: any", doc="Not performed by this server."),
)


def clean_null_values(value: Any, depth: int = 1) -> Any:
    """Return a copy without null members of objects and lists, down to the third level (spec: hog-runtime 7.2)."""
    if depth > CLEAN_DEPTH:
        return value
    if value.__class__ is dict:
        return {
            key: clean_null_values(member, depth + 1) for key, member in value.items() if member is not None
        }
    if value.__class__ is list:
        return [clean_null_values(member, depth + 1) for member in value if member is not None]
    return value


BOT_WORDS = (
    "bot", "crawl", "spider", "slurp", "headlesschrome", "phantomjs", "lighthouse", "pingdom", "uptime",
    "curl/", "wget/", "python-requests", "go-http-client", "facebookexternalhit", "embedly", "scrapy",
)  # fmt: skip
"""Parts of user agents, in lower case, that identify programs."""

BOT_NETWORKS = tuple(
    ipaddress.ip_network(network)
    for network in (
        "66.249.64.0/19",
        "157.55.39.0/24",
        "207.46.13.0/24",
        "40.77.167.0/24",
        "2001:4860:4801::/48",
    )
)
"""Networks that search engines announce for their crawlers."""


def is_known_bot_user_agent(agent: Any) -> bool:
    return isinstance(agent, str) and any(word in agent.lower() for word in BOT_WORDS)


def is_known_bot_ip(address: Any) -> bool:
    try:
        parsed = ipaddress.ip_address(address) if isinstance(address, str) else None
    except ValueError:
        return False
    return parsed is not None and any(parsed in network for network in BOT_NETWORKS)


def _event_functions(geoip: GeoIpLookup | None) -> tuple[Function, ...]:
    def look_up(address: Any) -> Any:
        return geoip(address) if geoip is not None and isinstance(address, str) and address else None

    return (
        host_function("geoipLookup", "ip: string", impl=look_up, doc="City record of an address, or null."),
        host_function(
            "cleanNullValues",
            "value: any",
            impl=clean_null_values,
            doc="A copy without null members, three levels deep.",
            pure=True,
        ),
        host_function(
            "isKnownBotUserAgent",
            "agent: string",
            impl=is_known_bot_user_agent,
            doc="Whether a user agent is that of a program.",
            returns="boolean",
            pure=True,
        ),
        host_function(
            "isKnownBotIp",
            "ip: string",
            impl=is_known_bot_ip,
            doc="Whether an address belongs to a known crawler.",
            returns="boolean",
            pure=True,
        ),
        host_function(
            "fetch",
            "url: string",
            "options?: object",
            impl=_refused("fetch is not supported in transformations"),
            doc="Not available in transformations.",
        ),
        host_function(
            "postHogCapture",
            "event: object",
            impl=_refused("posthogCapture is not supported in transformations"),
            doc="Not available in transformations.",
        ),
    )


DELIVERING = replace(
    ANY.with_functions(PRINT, *HOST_FUNCTIONS),
    name="destination",
    limits=DESTINATION_LIMITS,
    globals=DESTINATION_GLOBALS,
)
"""Environment of the bodies of destinations and webhooks."""

TEMPLATES = replace(TEMPLATE, globals=DESTINATION_GLOBALS)
"""Environment of input templates."""

MASKING_HASHES = TEMPLATES.with_limits(MASKING_LIMITS)
"""Environment of masking hashes."""


TRANSFORMATION = replace(
    ANY.without_functions("sleep"),
    name="transformation",
    limits=DESTINATION_LIMITS,
    roots=frozenset(TRANSFORMATION_GLOBALS),
    refusal=(
        "Variable not available in transformations: {names}. "
        "Transformations only have access to project, event, and inputs."
    ),
    globals=TRANSFORMATION_GLOBALS,
    without_value="the event is dropped then: write `return event`, or `return null` where it shall be dropped",
)
"""Environment of inputs and, with any globals, bodies of transformations.

Nothing waits (spec: hog-functions-api 5.7).
"""


@lru_cache(maxsize=8)
def transforming(geoip: GeoIpLookup | None = None) -> Environment:
    """Return the environment of bodies of transformations.

    They may name any global: unknown globals fail when they run.
    """
    environment = TRANSFORMATION.with_functions(PRINT, *_event_functions(geoip))
    return replace(environment, roots=None)


@lru_cache(maxsize=8)
def transformation_templates(geoip: GeoIpLookup | None = None) -> Environment:
    """Return the environment of transformations' inputs, which may name `project`, `event` and `inputs` only."""
    return TRANSFORMATION.without_functions("print").with_functions(*_event_functions(geoip))


def any_body() -> Environment:
    """Return an environment with the functions of all kinds of programs, for texts whose purpose is not known."""
    functions = {**ANY.functions, **transforming().functions, **DELIVERING.functions}
    return replace(ANY, functions=functions)


def body_environment(function_type: str | None, geoip: GeoIpLookup | None = None) -> Environment:
    """Return the environment of a function's program."""
    return transforming(geoip) if function_type == "transformation" else DELIVERING


def template_environment(
    function_type: str | None, geoip: GeoIpLookup | None = None, limits: Limits = EXPRESSION_LIMITS
) -> Environment:
    """Return the environment of a function's inputs."""
    environment = transformation_templates(geoip) if function_type == "transformation" else TEMPLATES
    return environment if limits is EXPRESSION_LIMITS else environment.with_limits(limits)
