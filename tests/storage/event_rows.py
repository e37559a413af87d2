"""Events for tests of the store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from hoglab.storage.event_store import EventRow

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


def event_row(log_offset: int, **fields: Any) -> EventRow:
    """A plain event; ``fields`` replace what it has."""
    values: dict[str, Any] = {
        "project_id": 1,
        "uuid": uuid4(),
        "event": "signup",
        "distinct_id": "user-1",
        "timestamp": NOW - timedelta(seconds=5),
        "captured_at": NOW,
        "properties": b'{"plan":"pro"}',
        "person_id": UUID(int=1),
        "person_properties": b"{}",
        "person_created_at": None,
        "person_mode": "full",
        "elements_chain": "",
        "groups": {},
        "log_offset": log_offset,
        "feature_flag": None,
        "feature_flag_response": None,
        "session_id": None,
    }
    return EventRow(**(values | fields))
