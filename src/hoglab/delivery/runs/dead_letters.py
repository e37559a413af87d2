"""Events that did not become invocations: the stored form.

An event whose filter fails, or that no invocation can be made of, becomes a dead letter with the reason, so that no
later event waits (spec: hog-runtime 4.10); `dead_letter_retry` retries it. Inputs that fail leave a result, which
`reruns` runs again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid5

import msgspec
import orjson

from hoglab.delivery.runs.state import INVOCATIONS, key_of
from hoglab.storage.event_store import EventRow
from hoglab.storage.invocations import DeadLetter, StoredDeadLetter

if TYPE_CHECKING:
    from datetime import datetime

    from hoglab.storage.event_store.ingested import IngestedEvent

EVENTS, INTERNAL = "events", "internal"
"""Source of a dead letter: the project's own events, or those of the server."""

STEPS = ("parse", "filter", "order", "process")
"""Step that failed: reading the event, one function's filter, its order key, or anything else on the way to an
invocation."""

_ROW = msgspec.json.Decoder(EventRow)


def dead_id(source: str, event_key: str, function_id: str | None) -> str:
    """Return the id of a dead letter, the same for the same event and function, so that failing again adds no entry."""
    return str(uuid5(INVOCATIONS, f"dead/{source}/{event_key}/{function_id or ''}"))


def dead_letter(
    event: IngestedEvent, source: str, function_id: str | None, step: str, reason: str, now: datetime
) -> DeadLetter:
    """Return the dead letter of an event that can be read."""
    row = event.row
    return DeadLetter(
        id=dead_id(source, key_of(row), function_id),
        project_id=row.project_id,
        function_id=function_id,
        source=source,
        step=step,
        reason=reason,
        event_uuid=str(row.uuid),
        event=row.event,
        distinct_id=row.distinct_id,
        payload=msgspec.json.encode(row),
        failed_at=now,
    )


def stored_row(payload: bytes) -> EventRow:
    """Return the event of a dead letter. Raises `msgspec.DecodeError`."""
    row: EventRow = _ROW.decode(payload)
    return row


def reason_of(error: BaseException) -> str:
    """Return the reason to store for an unexpected error."""
    return f"{type(error).__name__}: {error}"


def shown(letter: StoredDeadLetter) -> dict[str, Any]:
    """Return a dead letter in the form of the API."""
    names = (name for name in StoredDeadLetter.__dataclass_fields__ if name not in ("payload", "project_id"))
    properties = {}
    if letter.step != "parse":
        properties = orjson.loads(stored_row(letter.payload).properties)
    return {**{name: getattr(letter, name) for name in names}, "properties": properties}
