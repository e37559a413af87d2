"""Flags that can carry an experiment (spec experiments-api 8.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hoglab.flags.api.listing import FlagListing
from hoglab.http.errors import BareError, validation_error
from hoglab.http.fields.fields import parse_integer

if TYPE_CHECKING:
    from hoglab.flags.api.views import FlagViews
    from hoglab.flags.matching.registry import FlagRegistry
    from hoglab.http.management.call import Call

DEFAULT_LIMIT = 20
MAX_LIMIT = 100
ORDERS = frozenset({"created_at", "key", "name"})
_FILTERS = ("search", "active", "created_by_id", "evaluation_runtime", "has_evaluation_contexts", "order")


def eligible_flags(call: Call, registry: FlagRegistry, views: FlagViews) -> dict[str, Any]:
    """Return a page of a project's flags with 2 to 20 variants, and how many there are. Raises 400."""
    limit = _number(call.query("limit"), DEFAULT_LIMIT)
    offset = _number(call.query("offset"), 0)
    order = call.query("order")
    if order and order.removeprefix("-") not in ORDERS:
        raise validation_error(f"Invalid order field: '{order}'")
    loaded = registry.load(call.project)
    wanted = {name: call.params[name] for name in _FILTERS if call.params.get(name)}
    rows = FlagListing({**wanted, "eligible_for_experiment": "true"}, call.now).select(
        loaded.rows, loaded.linked
    )
    first = max(0, offset)
    page = rows[first : first + min(max(1, limit), MAX_LIMIT)]
    return {"results": views.many(call, page, loaded.linked), "count": len(rows)}


def _number(text: str | None, default: int) -> int:
    if text is None:
        return default
    number = parse_integer(text)
    if number is None:
        raise BareError(400, {"error": "Invalid limit or offset"})
    return number
