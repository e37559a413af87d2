"""Property filters as bodies have them: which keys there are. What they mean is told in `hoglab.filters`.

Documents, and the search for misspelt keys, are made from these models; filters are read by `filters.model`.
"""

from typing import Any, ClassVar, Literal

from pydantic import Field

from hoglab.http.fields.fields import WireModel
from hoglab.http.fields.notes import Note, Notes

_NOTES: Notes = {
    "key": Note("The name of the property; `id` for cohorts.", "plan"),
    "value": Note("Value to compare with; of a list any suffices.", ["pro"]),
    "type": Note(
        "Owner of the property: `person`, `event`, `group`, `cohort`, `flag`, `hogql`, ….", "person"
    ),
    "operator": Note("Operator of the comparison; default: `exact`.", "exact"),
    "group_type_index": "The number of the group type, for properties of groups.",
    "negation": "Whether the filter is turned round.",
    "values": Note("Filters and further groups of them.", []),
}


class WirePropertyFilter(WireModel):
    """One condition on a property."""

    notes = _NOTES
    closed = True
    unused = frozenset({"label", "cohort_name", "group_key_names"})
    mistakable: ClassVar[dict[str, str]] = {
        "property": "key",
        "name": "key",
        "op": "operator",
        "values": "value",
        "negate": "negation",
    }

    key: Any = None
    value: Any = None
    type: Any = None
    operator: Any = None
    group_type_index: Any = None
    negation: Any = None


class WirePropertyGroup(WireModel):
    """Conditions of which all (`AND`) or any (`OR`) must hold."""

    notes = _NOTES
    closed = True

    type: Literal["AND", "OR"]
    values: list["WirePropertyGroup | WirePropertyFilter"] = Field(default_factory=list)


Properties = list[WirePropertyGroup | WirePropertyFilter] | WirePropertyGroup
"""Type of a field of property filters."""


class OpenPropertyFilter(WirePropertyFilter):
    """One condition on a property, where clients send keys of their own."""

    closed = False


class OpenPropertyGroup(WireModel):
    """Conditions of which all (`AND`) or any (`OR`) must hold, where clients send keys of their own."""

    notes = _NOTES

    type: Literal["AND", "OR"]
    values: list["OpenPropertyGroup | OpenPropertyFilter"] = Field(default_factory=list)


OpenProperties = list[OpenPropertyGroup | OpenPropertyFilter] | OpenPropertyGroup
