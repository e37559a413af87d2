"""Evaluation requests, read from query, headers and JSON (spec: sdk-wire 2.1, 3.11)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import orjson

from hoglab.flags.evaluation.decoding import malformed
from hoglab.flags.matching.snapshot import FlagSelection
from hoglab.flags.matching.subject import FlagRequest
from hoglab.http.fields.fields import parse_bool

MAX_DISTINCT_ID_LENGTH = 200
"""Longer distinct ids are cut off at this length, as they are for events."""

MAX_QUERY_FIELDS = 64

_SERVER_AGENTS = tuple(
    f"posthog-{name}/"
    for name in ("python", "ruby", "php", "java", "go", "node", "dotnet", "elixir", "rs", "rust", "server")
)
_CLIENT_AGENTS = tuple(f"posthog-{name}/" for name in ("android", "ios", "react-native", "flutter"))
_BROWSERS = ("Mozilla/", "Chrome/", "Safari/", "Firefox/", "Edge/")
_SCRIPTS = ("python-requests/", "curl/")
_BROWSER_HEADERS = frozenset({b"origin", b"referer", b"sec-fetch-site", b"sec-fetch-dest"})
"""Headers that only browsers send. ``sec-fetch-mode`` is none of them: the fetch of Node.js sends it, too."""


class FlagQuery(msgspec.Struct, frozen=True):
    """The query parameters of an evaluation request. ``version`` is None when none was given."""

    version: int | None = None
    config: bool = False
    compression: str = ""
    surveys_only: bool = False
    only_use_overrides: bool = False
    given_config: bool = False


def read_query(query_string: bytes) -> FlagQuery:
    """Return the parameters of a raw query string; unknown ones are ignored. Raises 400 for far too many."""
    if len(query_string) <= _REMEMBERED_QUERY_LENGTH:
        return _remembered_query(query_string)
    return _read_query(query_string)


_REMEMBERED_QUERY_LENGTH = 128


def _read_query(query_string: bytes) -> FlagQuery:
    try:
        pairs = parse_qsl(
            query_string.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS
        )
    except ValueError:
        raise malformed("The query has too many parameters.") from None
    fields = dict(pairs)
    version = fields.get("v", fields.get("version"))
    return FlagQuery(
        version=None if version is None else _version(version),
        config=_truthy(fields.get("config")),
        compression=fields.get("compression", "").strip().lower(),
        surveys_only=_truthy(fields.get("only_evaluate_survey_feature_flags")),
        only_use_overrides=_truthy(fields.get("only_use_override_person_properties")),
        given_config="config" in fields,
    )


_remembered_query = lru_cache(maxsize=1024)(_read_query)


def _version(text: str) -> int:
    """Return the version number of a parameter; anything that is not one counts as 1, and so do negative numbers."""
    text = text.strip()
    if not text.isascii() or not text.isdigit():
        return 1
    return max(1, int(text[:4]))


def _truthy(text: str | None) -> bool:
    """Return whether a parameter is true; a bare one (``?config``) is."""
    return text is not None and (text == "" or parse_bool(text) is True)


class EvaluationCall(msgspec.Struct, frozen=True):
    """Options of an evaluation request, all but its subject (see `read_subject`)."""

    token: str | None
    flag_keys: frozenset[str] | None
    contexts: frozenset[str] | None
    runtime: str | None
    """Runtime that the request names; None leaves it to the headers."""
    disable_flags: bool = False


def read_call(body: Any) -> EvaluationCall:
    """Return the options of a request body.

    Raises 400 ``malformed_data`` for a body of the wrong shape. The token is not checked here.
    """
    if not isinstance(body, dict):
        raise malformed(f"The request body must be a JSON object, not {type(body).__name__}.")
    get = body.get
    token = get("token") or get("api_key") or get("$token")
    keys = get("flag_keys_to_evaluate")
    if keys is None:  # an empty list asks for no flags at all
        keys = get("flag_keys")
    return EvaluationCall(
        token.strip() if isinstance(token, str) else None,
        _names(keys, "flag_keys_to_evaluate"),
        _names(get("evaluation_contexts") or get("evaluation_environments"), "evaluation_contexts") or None,
        _runtime(get("evaluation_runtime")),
        "disable_flags" in body and parse_bool(body["disable_flags"]) is True,
    )


def read_subject(body: Mapping[str, Any], query: FlagQuery) -> FlagRequest:
    """Return the subject of the request. Raises 400 when the distinct id is missing or a field has a wrong type."""
    get = body.get
    sent_id = get("distinct_id")
    distinct_id = _identifier(get("$distinct_id") if sent_id is None else sent_id)
    if distinct_id is None:
        raise malformed("The distinct_id is missing; it must be a string or a number.")
    person = _object(get("person_properties") or get("$properties"), "person_properties")
    groups = _object(get("groups") or get("$groups"), "groups")
    group_properties = _object(get("group_properties") or get("$group_properties"), "group_properties")
    # Servers' SDKs, which know no such field, send it among the properties (PostHog/posthog#38821).
    anonymous = _identifier(
        get("$anon_distinct_id") or get("anon_distinct_id") or person.get("$anon_distinct_id")
    )
    device = _identifier(get("device_id") or get("$device_id")) or _identifier(person.get("$device_id"))
    return FlagRequest(
        clean_id(distinct_id),
        person,
        {name: _identifier(key) or "" for name, key in groups.items()} if groups else groups,
        {name: properties for name, properties in group_properties.items() if isinstance(properties, dict)}
        if group_properties
        else group_properties,
        clean_id(anonymous) if anonymous else None,
        device or None,
        query.only_use_overrides,
    )


def disables_geoip(body: Mapping[str, Any]) -> bool:
    """Return whether the place of the request's address must not count: servers ask for people in other places."""
    return "geoip_disable" in body and parse_bool(body["geoip_disable"]) is True


def clean_id(distinct_id: str) -> str:
    """Return a distinct id in the form in which events store it."""
    return distinct_id.replace("\0", "\ufffd")[:MAX_DISTINCT_ID_LENGTH]


def choice_of(call: EvaluationCall, query: FlagQuery, runtime: str) -> FlagSelection:
    """Return the selection of flags of a request, given the runtime that it seems to come from."""
    return FlagSelection(call.runtime or runtime, call.contexts, call.flag_keys, query.surveys_only)


def runtime_of(headers: list[tuple[bytes, bytes]]) -> str:
    """Return ``client``, ``server`` or ``unknown``, by the user agent and the headers that browsers send."""
    agent = ""
    from_browser = False
    for name, value in headers:
        if name == b"user-agent":
            agent = value.decode("latin-1")
        elif name in _BROWSER_HEADERS:
            from_browser = True
    if any(mark in agent for mark in _BROWSERS):
        return "client"
    if agent.startswith(_SERVER_AGENTS) or any(mark in agent for mark in _SCRIPTS):
        return "server"
    if agent.startswith(_CLIENT_AGENTS) or from_browser:
        return "client"
    return "unknown"


def _identifier(value: Any) -> str | None:
    """Return a string, or a number as its JSON text; None for every other value."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return str(value) if isinstance(value, int) else orjson.dumps(value).decode()


def _object(value: Any, name: str) -> dict[str, Any]:
    """Return an object. Every empty value counts as an empty object: PHP writes an empty map as ``[]``."""
    if not value:
        return {}
    if not isinstance(value, dict):
        raise malformed(f"The field {name} must be an object, not {type(value).__name__}.")
    return value


def _names(value: Any, name: str) -> frozenset[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise malformed(f"The field {name} must be a list of strings.")
    return frozenset(value)


def _runtime(value: Any) -> str | None:
    return value if value in ("client", "server", "all") else None
