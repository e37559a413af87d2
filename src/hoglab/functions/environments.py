"""What the code and the templates of each type of function may use (spec: hog-runtime 4.2, hog-functions-api 5.7).

The language has the library; here are the functions that the server adds to it. Those that the host performs
(`fetch` and its like) are declared only: the program stops there and the runtime answers.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from hoglab.hog.env import ANY, DESTINATION, TEMPLATE, TRANSFORMATION, Environment, Globals
from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.context import EXPRESSION_LIMITS, MASKING_LIMITS, Context, Limits
from hoglab.hog.rt.json_text import stringify
from hoglab.hog.stdlib.registry import Function, parameter

GeoIpLookup = Callable[[str], Mapping[str, Any] | None]
"""City record of an IP address, None when it is not known."""

_EVENT = frozenset({"uuid", "event", "distinct_id", "properties", "elements_chain", "timestamp", "url"})
_PROJECT = frozenset({"id", "name", "url"})
TRANSFORMATION_GLOBALS: Globals = {"project": _PROJECT, "event": _EVENT, "inputs": None}
"""What transformations see."""
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
"""What destinations and webhooks may see (spec: hog-runtime 1.1): `events` where they run for many of them, `record`
where they run on rows of tables, `request` in webhooks."""

CLEAN_DEPTH = 3
"""How deep `cleanNullValues` looks."""


def _function(
    name: str,
    *parameters: str,
    impl: Callable[..., Any],
    doc: str,
    returns: str = "any",
    is_async: bool = False,
    context: bool = False,
    pure: bool = False,
) -> Function:
    parsed = tuple(parameter(text) for text in parameters)
    return Function(
        name=name,
        category="host",
        min_args=sum(not one.optional for one in parsed),
        max_args=None if any(one.variadic for one in parsed) else len(parsed),
        exact=False,
        params=parsed,
        returns=tuple(returns.split("|")),
        pure=pure,
        infallible=False,
        is_async=is_async,
        needs_context=context,
        cost="linear",
        doc=doc,
        examples=(),
        impl=impl,
    )


def _performed_by_host(name: str) -> Callable[..., Any]:
    def impl(*_args: Any) -> Any:
        raise HogRuntimeError(f"Unknown async function '{name}'")

    return impl


def _refused(message: str) -> Callable[..., Any]:
    def impl(*_args: Any) -> Any:
        raise HogRuntimeError(message)

    return impl


def _host(name: str, *parameters: str, doc: str) -> Function:
    return _function(name, *parameters, impl=_performed_by_host(name), doc=doc, is_async=True)


def _print(ctx: Context, *values: Any) -> None:
    """Function logs separate by commas and show everything but texts as JSON (spec: hog-runtime 4.4)."""
    room = ctx.limits.print_chars
    parts: list[str] = []
    for value in values:
        text = value if isinstance(value, str) else stringify(value)
        parts.append(text[: room + 1])
        room -= len(text) + 2
        if room < 0:
            break
    ctx.print(", ".join(parts))


PRINT = _function(
    "print",
    "values...: any",
    impl=_print,
    doc="Writes the arguments, joined by commas, to the log of the function.",
    returns="null",
    context=True,
)

HOST_FUNCTIONS = (
    _host("fetch", "url: string", "options?: object", doc="Sends an HTTP request: {status, body, headers}."),
    _host("postHogCapture", "event: object", doc="Captures an event in the function's own project."),
    _host(
        "sendEmail", "email: object", doc="Sends an e-mail over the operator's mail server: {success, error}."
    ),
    _host("generateMessagingPreferencesUrl", "id?: any", doc="Not performed by this server."),
    _host("sendPushNotification", "options: object", doc="Not performed by this server."),
    _host("postHogGetTicket", "options: object", doc="Not performed by this server."),
    _host("postHogUpdateTicket", "options: object", doc="Not performed by this server."),
    _host("produceToWarehouseWebhooks", "payload: any", doc="Not performed by this server."),
)


def clean_null_values(value: Any, depth: int = 1) -> Any:
    """A copy without null members of objects and lists, down to the third level (spec: hog-runtime 7.2)."""
    if depth > CLEAN_DEPTH:
        return value
    if value.__class__ is dict:
        return {key: clean_null_values(one, depth + 1) for key, one in value.items() if one is not None}
    if value.__class__ is list:
        return [clean_null_values(one, depth + 1) for one in value if one is not None]
    return value


BOT_WORDS = (
    "bot", "crawl", "spider", "slurp", "headlesschrome", "phantomjs", "lighthouse", "pingdom", "uptime",
    "curl/", "wget/", "python-requests", "go-http-client", "facebookexternalhit", "embedly", "scrapy",
)  # fmt: skip
"""Parts of user agents, in lower case, that give away programs."""

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
        _function("geoipLookup", "ip: string", impl=look_up, doc="City record of an address, or null."),
        _function(
            "cleanNullValues",
            "value: any",
            impl=clean_null_values,
            doc="A copy without null members, three levels deep.",
            pure=True,
        ),
        _function(
            "isKnownBotUserAgent",
            "agent: string",
            impl=is_known_bot_user_agent,
            doc="Whether a user agent is that of a program.",
            returns="boolean",
            pure=True,
        ),
        _function(
            "isKnownBotIp",
            "ip: string",
            impl=is_known_bot_ip,
            doc="Whether an address belongs to a known crawler.",
            returns="boolean",
            pure=True,
        ),
        _function(
            "fetch",
            "url: string",
            "options?: object",
            impl=_refused("fetch is not supported in transformations"),
            doc="Not available in transformations.",
        ),
        _function(
            "postHogCapture",
            "event: object",
            impl=_refused("posthogCapture is not supported in transformations"),
            doc="Not available in transformations.",
        ),
    )


DELIVERING = replace(DESTINATION.with_functions(PRINT, *HOST_FUNCTIONS), globals=DESTINATION_GLOBALS)
"""Bodies of destinations and webhooks."""

TEMPLATES = replace(TEMPLATE, globals=DESTINATION_GLOBALS)
"""Input templates."""

MASKING_HASHES = TEMPLATE.with_limits(MASKING_LIMITS)
"""Masking hashes."""


@lru_cache(maxsize=8)
def transforming(geoip: GeoIpLookup | None = None) -> Environment:
    """Bodies of transformations. They may name any global: those that do not exist fail when it runs."""
    environment = TRANSFORMATION.with_functions(PRINT, *_event_functions(geoip))
    return replace(environment, roots=None, globals=TRANSFORMATION_GLOBALS)


@lru_cache(maxsize=8)
def transformation_templates(geoip: GeoIpLookup | None = None) -> Environment:
    """Inputs of transformations, which may name `project`, `event` and `inputs` only."""
    environment = TRANSFORMATION.without_functions("print").with_functions(*_event_functions(geoip))
    return replace(environment, globals=TRANSFORMATION_GLOBALS)


def any_body() -> Environment:
    """What programs of any kind may call, for texts of which nobody says what they are for."""
    functions = {**ANY.functions, **transforming().functions, **DELIVERING.functions}
    return replace(ANY, functions=functions)


def body_environment(function_type: str | None, geoip: GeoIpLookup | None = None) -> Environment:
    """The environment of a function's program."""
    return transforming(geoip) if function_type == "transformation" else DELIVERING


def template_environment(
    function_type: str | None, geoip: GeoIpLookup | None = None, limits: Limits = EXPRESSION_LIMITS
) -> Environment:
    """The environment of a function's inputs."""
    found = transformation_templates(geoip) if function_type == "transformation" else TEMPLATES
    return found if limits is EXPRESSION_LIMITS else found.with_limits(limits)
