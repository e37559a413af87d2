"""Actions as sources of events (spec: hog-runtime 2.6)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.query.model import EventMatch
from hoglab.filters import FilterError, PropertyFilter, PropertyGroup, parse_filters
from hoglab.filters.elements import parse_selector, selector_pattern, tag_pattern

AUTOCAPTURE = "$autocapture"

Actions = Callable[[int], Sequence[Mapping[str, Any]] | None]
"""The steps of an action by its id; None when there is none, or it is deleted."""


def action_matches(steps: Sequence[Mapping[str, Any]]) -> tuple[EventMatch, ...]:
    """The events of an action: any of its steps; without steps every event. Raises `DefinitionError`."""
    if not steps:
        return (EventMatch(None),)
    return tuple(_step(step) for step in steps)


def _step(step: Mapping[str, Any]) -> EventMatch:
    event = _text(step, "event") or None
    conditions: list[PropertyFilter | PropertyGroup] = []
    try:
        if event == AUTOCAPTURE:
            conditions += [_on_chain(pattern) for pattern in _element_patterns(step)]
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


def _on_chain(pattern: str) -> PropertyFilter:
    return PropertyFilter("elements_chain", "event_metadata", "regex", pattern)


def _element_patterns(step: Mapping[str, Any]) -> list[str]:
    """What the chain of clicked elements must hold, as patterns."""
    found = []
    if selector := _text(step, "selector"):
        found.append(selector_pattern(parse_selector(selector)))
    if tag := _text(step, "tag_name"):
        found.append(tag_pattern(tag))
    found += [
        _attribute_pattern(name, value, step.get(f"{name}_matching"))
        for name in ("href", "text")
        if (value := _text(step, name))
    ]
    return found


def _attribute_pattern(name: str, value: str, way: object) -> str:
    quoted = re.escape(value.replace('"', '\\"'))
    if way == "regex":
        raise DefinitionError(
            f"actions that match {name} by a regular expression are not supported in metrics"
        )
    if way == "contains":
        return f'(?i)(?::|"){name}="[^"]*{quoted}[^"]*"'
    return f'(?::|"){name}="{quoted}"'


def _text(step: Mapping[str, Any], name: str) -> str:
    value = step.get(name)
    if value is not None and not isinstance(value, str):
        raise DefinitionError(f"{name} of an action must be a string")
    return value or ""
