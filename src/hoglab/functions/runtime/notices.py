"""Warnings about many events of a transformation, one line of its log for all of them (spec: hog-runtime 7.2)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOLD_EVERY_S = 60.0
"""Pause in seconds between two warnings of one kind of one function; a warning counts the events since the last."""
MAX_NAMES = 5
"""Maximum number of names in one warning."""
MAX_NAME = 40
"""Maximum number of characters of a name in a warning."""

Kind = Literal["without_value", "ignored_members"]
"""Kind of warning: programs returned nothing, or changed members that they cannot change."""

_WITHOUT_VALUE = (
    "{events} dropped, because the program came to its end without `return`. Write `return event` there, or "
    "`return null` where events shall be dropped."
)
_IGNORED_MEMBERS = (
    "{events} returned with another {names}: a transformation changes `event`, `distinct_id` and `properties`, and the "
    "rest is ignored."
)


@dataclass(slots=True)
class _Notice:
    """Events of one function since the last warning of one kind: their number, and the last one's uuid and text."""

    events: int = 0
    event_uuid: str = ""
    text: str = ""
    told_at: datetime | None = None


class Notices:
    """Counts events that somebody should know of, and tells when a warning about them is due."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._notices: dict[str, dict[Kind, _Notice]] = {}

    def without_value(self, function_id: str, event_uuid: str) -> None:
        """Count an event that was dropped because the program returned nothing."""
        self._note(function_id, "without_value", event_uuid, _WITHOUT_VALUE)

    def ignored_members(self, function_id: str, event_uuid: str, names: list[str]) -> None:
        """Count an event whose returned members ``names`` have no effect."""
        shown = ", ".join(f"`{name[:MAX_NAME]}`" for name in names[:MAX_NAMES])
        self._note(function_id, "ignored_members", event_uuid, _IGNORED_MEMBERS.replace("{names}", shown))

    def due(self, function_id: str) -> Iterator[tuple[str, str]]:
        """Yield the due warnings of a function, each with the uuid of the last event, and begin to count again."""
        now = self._now()
        for notice in self._notices.get(function_id, {}).values():
            waited_s = None if notice.told_at is None else (now - notice.told_at).total_seconds()
            if notice.events and (waited_s is None or waited_s >= TOLD_EVERY_S):
                events = "1 event was" if notice.events == 1 else f"{notice.events:,} events were"
                yield notice.event_uuid, notice.text.replace("{events}", events)
                notice.events, notice.told_at = 0, now

    def _note(self, function_id: str, kind: Kind, event_uuid: str, text: str) -> None:
        notice = self._notices.setdefault(function_id, {}).setdefault(kind, _Notice())
        notice.events += 1
        notice.event_uuid, notice.text = event_uuid, text
