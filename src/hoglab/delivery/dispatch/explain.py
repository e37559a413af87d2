"""Explanation why an event would, or would not, start a function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hoglab.filters.hog.explain import explain_filter
from hoglab.filters.model import FilterError

if TYPE_CHECKING:
    from hoglab.filters.hog import FilterContext
    from hoglab.functions.configuration import Configuration


def explain_configuration(
    configuration: Configuration, context: FilterContext, flat: dict[str, Any]
) -> dict[str, Any]:
    """Return the verdicts of a function's filter and its mappings' filters on one event (see `filter_globals`)."""
    own = _explained(configuration.filters, context, flat)
    if configuration.mappings is None:
        return {"matches": own["matches"], "filters": own, "mappings": None}
    mappings: list[dict[str, Any]] = [
        {
            "name": mapping.name,
            "disabled": mapping.disabled,
            "filters": _explained(mapping.filters, context, flat),
        }
        for mapping in configuration.mappings
    ]
    starts = any(mapping["filters"]["matches"] and not mapping["disabled"] for mapping in mappings)
    return {"matches": own["matches"] and starts, "filters": own, "mappings": mappings}


def _explained(
    filters: Mapping[str, Any] | None, context: FilterContext, flat: dict[str, Any]
) -> dict[str, Any]:
    try:
        return explain_filter(filters, context, flat).to_json()
    except FilterError as error:
        return {"matches": False, "value": None, "error": str(error), "note": None, "term": None}
