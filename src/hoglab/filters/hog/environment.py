"""The environment of filters: the parts of an event that they may read (spec: hog-runtime 1.2, 2.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hoglab.filters.model import GROUP_TYPES
from hoglab.hog import TEMPLATE

if TYPE_CHECKING:
    from hoglab.hog import Globals

ELEMENT_ROOTS = frozenset(
    {
        "elements_chain",
        "elements_chain_href",
        "elements_chain_texts",
        "elements_chain_ids",
        "elements_chain_elements",
    }
)
PERSON_ROOTS = frozenset({"person", "pdi"})
GROUP_ROOTS = frozenset(
    f"{prefix}{index}" for index in range(GROUP_TYPES) for prefix in ("group_", "$group_")
)
FILTER_ROOTS = (
    frozenset({"event", "uuid", "distinct_id", "timestamp", "properties", "variables"})
    | ELEMENT_ROOTS
    | PERSON_ROOTS
    | GROUP_ROOTS
)
"""The globals of filters."""

_MEMBERS: Globals = {
    **dict.fromkeys(FILTER_ROOTS),
    "person": frozenset({"id", "properties"}),
    "pdi": frozenset({"distinct_id", "person_id", "person"}),
    **{f"group_{index}": frozenset({"properties"}) for index in range(GROUP_TYPES)},
}

FILTER = replace(TEMPLATE, name="filter", roots=FILTER_ROOTS, sure_roots=FILTER_ROOTS, globals=_MEMBERS)
"""Filters: globals of an event, nothing that prints or waits."""
