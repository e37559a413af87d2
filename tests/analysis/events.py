"""Plain events for tests, and how they get into a store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_DNS, UUID, uuid5

from hoglab.storage.event_store import EventBatch, EventRow, EventStore, PersonOverride

PROJECT = 1


@dataclass(frozen=True)
class Event:
    """One event as a test writes it. ``person`` is a name; ``uuid`` orders events at the same moment."""

    person: str
    timestamp: datetime
    event: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    uuid: UUID | None = None
    person_properties: Mapping[str, Any] = field(default_factory=dict)
    groups: Mapping[int, str] = field(default_factory=dict)
    elements_chain: str = ""


def person_id(name: str) -> UUID:
    return uuid5(NAMESPACE_DNS, name)


def row(
    event: Event, log_offset: int, project_id: int = PROJECT, captured_at: datetime | None = None
) -> EventRow:
    properties = dict(event.properties)
    return EventRow(
        project_id=project_id,
        uuid=event.uuid or UUID(int=log_offset),
        event=event.event,
        distinct_id=event.person,
        timestamp=event.timestamp,
        captured_at=captured_at or event.timestamp,
        properties=json.dumps(properties).encode(),
        person_id=person_id(event.person) if event.person else None,
        person_properties=json.dumps(event.person_properties).encode(),
        person_created_at=None,
        person_mode="full",
        elements_chain=event.elements_chain,
        groups=event.groups,
        log_offset=log_offset,
        feature_flag=_text(properties.get("$feature_flag")),
        feature_flag_response=_text(properties.get("$feature_flag_response")),
        session_id=_text(properties.get("$session_id")),
    )


def store_events(
    store: EventStore,
    events: Iterable[Event],
    *,
    project_id: int = PROJECT,
    merges: Sequence[tuple[str, str]] = (),
    captured_at: datetime | None = None,
) -> None:
    """Append events, and merges of persons ``(old, new)`` by name; they are received at once, or when it is said."""
    first = store.position() + 1
    rows = [row(event, first + index, project_id, captured_at) for index, event in enumerate(events)]
    overrides = [PersonOverride(project_id, person_id(old), person_id(new)) for old, new in merges]
    store.append(EventBatch(rows, overrides), log_offset=first + len(rows))


def _text(value: Any) -> str | None:
    """A property as ingestion copies it into a column."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)
