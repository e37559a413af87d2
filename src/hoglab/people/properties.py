"""Changes that an event makes to the properties of its person (spec: sdk-wire 1.9, 1.12). Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from hoglab.storage.event_store.mirrored import NAMES

MAX_PROPERTIES_BYTES = 655_360
"""An update that makes the properties larger than this is refused."""
TRIMMED_PROPERTIES_BYTES = 524_288
"""Size to which properties that are too large already are trimmed."""

Properties = Mapping[str, Any]

NEVER_UPDATING_EVENTS = frozenset(("$exception", "$$heatmap"))
PERSON_EVENTS = frozenset(("$identify", "$create_alias", "$merge_dangerously", "$set"))
UNMIRRORED_EVENTS = frozenset(("$snapshot", "$performance_event"))

_HOST_OS = frozenset(("$os", "$os_name", "$os_version"))
_SERVER_LIBRARIES = frozenset(
    f"posthog-{name}"
    for name in ("python", "node", "php", "ruby", "go", "java", "rust", "rs", "elixir", "dotnet", "server")
)

MIRRORED = {name: f"$initial_{name.removeprefix('$')}" for name in NAMES}
"""Properties of an event that describe its visitor, with the name of the person's property for the first value.

The names are those of the store's code for such events; a further one would stand here beside them.
"""
_NOTHING: Properties = {}
_IS_MIRRORED = MIRRORED.__contains__

_VOLATILE = frozenset(
    (
        "$current_url",
        "$pathname",
        "$referrer",
        "$referring_domain",
        "$screen_height",
        "$screen_width",
        "$viewport_height",
        "$viewport_width",
        "$browser",
        "$browser_version",
        "$device_type",
        "$raw_user_agent",
        "$os",
        "$os_name",
        "$os_version",
        "$geoip_city_name",
        "$geoip_city_confidence",
        "$geoip_subdivision_1_name",
        "$geoip_subdivision_1_code",
        "$geoip_subdivision_2_name",
        "$geoip_subdivision_2_code",
        "$geoip_postal_code",
        "$geoip_latitude",
        "$geoip_longitude",
        "$geoip_accuracy_radius",
        "$geoip_time_zone",
    )
)
_PROTECTED = frozenset(("email", "name", *MIRRORED, *MIRRORED.values()))


def mirror_initial_properties(event: str, properties: dict[str, Any]) -> None:
    """Copy what describes the visitor into the event's ``$set`` and ``$set_once`` (there as ``$initial_…``).

    A null replaces the latest value, but is no first value. What the event itself sets wins. Changes ``properties``.
    Servers' operating systems are left out.
    """
    if event in UNMIRRORED_EVENTS:
        return
    names = [*filter(_IS_MIRRORED, properties)]
    if not names:
        return
    if _is_of_server(properties):
        names = [name for name in names if name not in _HOST_OS]
    values = {name: properties[name] for name in names}
    if not values:
        return
    once = {MIRRORED[name]: value for name, value in values.items() if value is not None}
    given_set, given_once = properties.get("$set"), properties.get("$set_once")
    properties["$set"] = {**values, **given_set} if isinstance(given_set, dict) else values
    if once:
        properties["$set_once"] = {**once, **given_once} if isinstance(given_once, dict) else once


def _is_of_server(properties: Properties) -> bool:
    library = properties.get("$lib")
    return (type(library) is str and library in _SERVER_LIBRARIES) or properties.get("$is_server") is True


def update(properties: Properties, event: str, changes: Properties) -> tuple[dict[str, Any], bool] | None:
    """Return the properties of a person after an event, and whether they must be written; None when nothing differs.

    ``changes`` are the event's properties: ``$set_once`` fills what is missing, ``$set`` replaces,
    ``$unset`` (names, or an object with them) removes, in this order. A change of nothing but volatile
    properties (the current page, the browser) need not be written, unless the event is about the person.
    """
    if event in NEVER_UPDATING_EVENTS:
        return None
    once, values = _object(changes.get("$set_once")), _object(changes.get("$set"))
    unset = changes.get("$unset")
    if not once and not values and not unset:
        return None
    if properties:
        given, written = _differences(properties, once, values)
        written = written or event in PERSON_EVENTS
    else:
        given, written = {**once, **values}, True
    gone: set[str] = set()
    if unset and isinstance(unset, (list, dict)):
        gone = {name for name in unset if isinstance(name, str) and (name in properties or name in given)}
        written = written or not gone <= _VOLATILE
    if not given and not gone:
        return None
    after = {**properties, **given} if properties else given
    for name in gone:
        del after[name]
    return after, written


def _object(value: Any) -> Properties:
    return value if isinstance(value, dict) else _NOTHING


def _differences(properties: Properties, once: Properties, values: Properties) -> tuple[dict[str, Any], bool]:
    """Return the properties that ``$set_once`` and ``$set`` change, and whether any of them is not volatile."""
    given: dict[str, Any] = {}
    written = False
    if not once.keys() <= properties.keys():
        given = {name: value for name, value in once.items() if name not in properties}
        written = True
    for name, value in values.items():
        if name not in properties:
            given[name] = value
            written = True
        elif not _same(properties[name], value):
            given[name] = value
            written = written or name not in _VOLATILE
    return given, written


def _same(value: Any, other: Any) -> bool:
    """Return whether two values are equal as JSON: unlike in Python, 1, 1.0 and true are three values."""
    if type(value) is not type(other):
        return False
    if isinstance(value, (dict, list)):
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS) == orjson.dumps(
            other, option=orjson.OPT_SORT_KEYS
        )
    return bool(value == other)


def trim(properties: Properties) -> dict[str, Any]:
    """Return the properties cut down to `TRIMMED_PROPERTIES_BYTES`: the largest go first, protected ones never."""
    kept = dict(properties)
    size = len(orjson.dumps(kept))
    removable = sorted(
        ((len(orjson.dumps(value)), name) for name, value in kept.items() if name not in _PROTECTED),
        reverse=True,
    )
    for value_bytes, name in removable:
        if size <= TRIMMED_PROPERTIES_BYTES:
            break
        del kept[name]
        size -= value_bytes + len(orjson.dumps(name)) + 2
    return kept
