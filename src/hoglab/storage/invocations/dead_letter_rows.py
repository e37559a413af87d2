"""Events that did not become invocations, in ``queue.db``.

Functions here write inside the transaction of the connection that they are given.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from prometheus_client import Counter

from hoglab.storage.database.types import to_micros

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from hoglab.storage.invocations import DeadLetter

MAX_DEAD_LETTERS = 5_000
"""Dead letters that are kept of one function, and of a project where no function was asked; the oldest go first."""
DEAD_LETTER_RETENTION_DAYS = 30
MAX_REASON_BYTES = 1_024

CROWDED_OUT = Counter(
    "hoglab_delivery_dead_events_crowded_out", "Dead events that went to make room for newer ones."
)
_SAVE = (
    "INSERT INTO dead_event (id, project_id, function_id, source, step, reason, event_uuid, event, distinct_id, "
    "payload, first_failed_at, failed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO UPDATE SET step = excluded.step, reason = excluded.reason, payload = excluded.payload, "
    "failed_at = excluded.failed_at, attempts = attempts + 1"
)
_FORGET = "DELETE FROM dead_event WHERE id IN (SELECT value FROM json_each(?))"
_TRIM = (
    "DELETE FROM dead_event WHERE rowid IN (SELECT rowid FROM dead_event WHERE project_id = ? "
    "AND function_id = ? ORDER BY failed_at DESC LIMIT -1 OFFSET ?)"
)


def save(connection: sqlite3.Connection, dead: Sequence[DeadLetter]) -> int:
    """Keep dead letters, and return how many older ones were deleted to make room."""
    connection.executemany(_SAVE, list(map(values_of, dead)))
    owners = {(letter.project_id, letter.function_id or "") for letter in dead}
    return sum(connection.execute(_TRIM, (*owner, MAX_DEAD_LETTERS)).rowcount for owner in owners)


def forget(connection: sqlite3.Connection, ids: Sequence[str]) -> None:
    connection.execute(_FORGET, (json.dumps(list(ids)),))


def values_of(letter: DeadLetter) -> tuple[object, ...]:
    """Return a row of ``dead_event``, with the columns as in `_SAVE`."""
    at = to_micros(letter.failed_at)
    reason = letter.reason.encode("utf-8", "replace")[:MAX_REASON_BYTES].decode("utf-8", "ignore")
    return (
        letter.id,
        letter.project_id,
        letter.function_id or "",
        letter.source,
        letter.step,
        reason,
        letter.event_uuid,
        letter.event,
        letter.distinct_id,
        letter.payload,
        at,
        at,
    )
