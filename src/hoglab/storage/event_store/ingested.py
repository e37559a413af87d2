"""A stored event on its way to what runs on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import orjson

if TYPE_CHECKING:
    from hoglab.storage.event_store import EventRow


class IngestedEvent(msgspec.Struct, eq=False, gc=False):
    """A row that was stored for the first time, with its properties as objects.

    ``properties`` are those of the row, decoded; readers must not change them.
    """

    row: EventRow
    properties: dict[str, Any]
    _person_properties: dict[str, Any] | None = None

    @property
    def person_properties(self) -> dict[str, Any]:
        """The properties that the event's person had right after the event; decoded when first asked for."""
        if self._person_properties is None:
            self._person_properties = orjson.loads(self.row.person_properties)
        return self._person_properties
