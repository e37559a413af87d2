"""Actions as sources of events (spec: hog-runtime 2.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.query.model import EventMatch
from hoglab.filters import FilterError, PropertyFilter, PropertyGroup, parse_filters

AUTOCAPTURE = "$autocapture"

Actions = Callable[[int], Sequence[Mapping[str, Any]] | None]
"""The steps of an action by its id; None when there is none, or it is deleted."""


def action_matches(steps: Sequence[Mapping[str, Any]]) -> tuple[EventMatch, ...]:
    """Return the events of an action: any of its steps; without steps every event. Raises `DefinitionError`."""
    if not steps:
        return (EventMatch(None),)
    return tuple(_step(step) for step in steps)


def _step(step: Mapping[str, Any]) -> EventMatch:
    event = _text(step, "event") or None
    conditions: list[PropertyFilter | PropertyGroup] = []
    try:
        if event == AUTOCAPTURE:
            conditions += _on_elements(step)
        if url := _text(step, "url"):
            conditions.append(_url(url, step.get("url_matching")))
        conditions += parse_filters(step.get("properties")).values
    except FilterError as error:
        raise DefinitionError(f"an action cannot be read: {error}") from error
    return EventMatch(event, PropertyGroup("AND", tuple(conditions)))


def _url(value: str, way: object) -> PropertyFilter:
    match way:
        case "exact":
            operator = "exact"
        case "regex":
            operator = "regex"
        case _:
            operator, value = "like", f"%{value}%"
    return PropertyFilter("$current_url", "event", operator, value)


_WAYS = {"regex": "regex", "contains": "icontains"}
"""Operators by the kind of match of a step's link address or text; the default compares the whole text."""


def _on_elements(step: Mapping[str, Any]) -> Iterator[PropertyFilter]:
    """Yield filters for the elements that were clicked."""
    for name in ("selector", "tag_name", "href", "text"):
        if value := _text(step, name):
            way = step.get(f"{name}_matching") if name in ("href", "text") else None
            yield PropertyFilter(name, "element", _WAYS.get(str(way), "exact"), value)


def _text(step: Mapping[str, Any], name: str) -> str:
    value = step.get(name)
    if value is not None and not isinstance(value, str):
        raise DefinitionError(f"{name} of an action must be a string")
    return value or ""
