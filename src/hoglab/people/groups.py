"""Group types and group properties that events bring along (spec: sdk-wire 1.14).

Pure rules over a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hoglab.filters.model import GROUP_TYPES
from hoglab.people.identity import without_nul

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from hoglab.people.batch import PersonEvent

MAX_GROUP_KEY_CHARS = 400

_NO_GROUPS: dict[int, str] = {}


@dataclass(slots=True)
class GroupChange:
    """Properties to merge into the properties of one group."""

    created_at: datetime
    event_uuid: UUID
    properties: dict[str, Any] = field(default_factory=dict)


class GroupBatch:
    """The groups of one project during a batch. ``types`` are the group types known so far."""

    def __init__(self, types: Mapping[str, int]) -> None:
        self.types = dict(types)
        self.new_types: dict[str, tuple[int, datetime]] = {}
        self.changes: dict[tuple[int, str], GroupChange] = {}

    def process(self, event: PersonEvent) -> Mapping[int, str]:
        """Apply an event and return the group keys it belongs to, by group type index.

        Sets ``$group_0`` … ``$group_4`` in the event's properties.
        """
        properties = event.properties
        if event.event == "$groupidentify":
            self._identify(event)
        named = properties.get("$groups")
        if not named or not isinstance(named, dict):
            return _NO_GROUPS
        groups: dict[int, str] = {}
        for group_type, value in named.items():
            key = _key(value)
            index = self._index(group_type, event.timestamp) if key else None
            if index is not None:
                groups[index] = properties[f"$group_{index}"] = key
        return groups

    def _identify(self, event: PersonEvent) -> None:
        properties = event.properties
        group_type, key = properties.get("$group_type"), _key(properties.get("$group_key"))
        if not key or not isinstance(group_type, str):
            return
        index = self._index(group_type, event.timestamp)
        if index is None:
            return
        change = self.changes.get((index, key))
        if change is None:
            change = self.changes[index, key] = GroupChange(event.timestamp, event.uuid)
        values = properties.get("$group_set")
        if isinstance(values, dict):
            change.properties.update(values)
            change.event_uuid = event.uuid

    def _index(self, group_type: str, at: datetime) -> int | None:
        group_type = without_nul(group_type)
        index = self.types.get(group_type)
        if index is None and group_type and len(group_type) <= MAX_GROUP_KEY_CHARS:
            taken = set(self.types.values())
            index = next((free_index for free_index in range(GROUP_TYPES) if free_index not in taken), None)
            if index is not None:
                self.types[group_type] = index
                self.new_types[group_type] = (index, at)
        return index


def _key(value: Any) -> str:
    """Return a group key as text; empty when the value cannot be one."""
    if isinstance(value, str):
        return without_nul(value) if len(value) <= MAX_GROUP_KEY_CHARS else ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return ""
