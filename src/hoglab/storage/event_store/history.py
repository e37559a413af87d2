"""Stored events read back as they were handed on when they were new."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hoglab.storage.event_store import EventRow, EventStoreUnavailableError
from hoglab.storage.event_store.rows import GROUP_TYPES

if TYPE_CHECKING:
    from hoglab.storage.event_store import Reader

_FIRST_SEQS = 1_000
_MORE_SEQS = 16
"""Behind how many events the newest are looked for first, and in how many times as many then."""

_GROUPS = [f"group_{index}" for index in range(GROUP_TYPES)]
_COLUMNS = [
    "seq", "uuid", "event", "distinct_id", "timestamp", "captured_at", "properties", "person_id",
    "person_properties", "person_created_at", "person_mode", "elements_chain", "log_offset", "feature_flag",
    "feature_flag_response", "session_id", *_GROUPS,
]  # fmt: skip
_WHERE = "project_id = $project_id AND timestamp >= $since AND timestamp < $until"
_EXTENT = f"SELECT min(seq), max(seq), count(*) FROM stored_events WHERE {_WHERE}"  # noqa: S608 - our own words
_SELECTED = ", ".join("whole_properties AS properties" if name == "properties" else name for name in _COLUMNS)
_IN_RANGE = f"SELECT {_SELECTED} FROM resolved_events WHERE {_WHERE} "  # noqa: S608 - our own words
_WINDOW = f"{_IN_RANGE} AND seq > $after AND seq <= $last ORDER BY seq"
_CORRECTED = """
SELECT max(seq) FROM event_correction WHERE project_id = $project_id AND first_seq IN (
    SELECT first_seq FROM event_correction
    WHERE project_id = $project_id AND old_seq > $after AND old_seq <= $last AND seq > $end
) GROUP BY first_seq ORDER BY 1
"""
"""The newest places of events that stood between two places, and were corrected to one behind the end."""

_MOVED = """
SELECT old_seq, first_seq FROM event_correction
WHERE project_id = $project_id AND old_seq >= $first AND old_seq <= $last AND seq > $end
"""
_PLACES = """
SELECT max(seq) FROM event_correction WHERE project_id = $project_id AND first_seq IN ({listed})
GROUP BY first_seq ORDER BY 1
"""
_PRESENT = "SELECT count(*) FROM stored_events WHERE project_id = $project_id AND seq IN ({listed})"
RETURN_PATIENCE_S = 30.0
"""Time for which an event that is being corrected, so that it is nowhere, is waited for."""
_RETURN_PAUSE_S = 0.05

_LAST = "SELECT next_seq - 1 FROM store_state"
_NEWEST = f"SELECT {_SELECTED} FROM resolved_events WHERE project_id = $project_id AND seq > $after"  # noqa: S608


def moved_behind(
    reader: Reader, project_id: int, first: int, last: int, end: int, seen: Collection[int]
) -> list[int]:
    """Return the first places of events that corrections moved behind a place, before they were ``seen``.

    They stood between two places that were read, of which ``seen`` were there.
    """
    parameters = {"project_id": project_id, "first": first, "last": last, "end": end}
    moved = {first_seq: old_seq in seen for old_seq, first_seq in reader.execute(_MOVED, parameters)}
    return sorted(first_seq for first_seq, was_seen in moved.items() if not was_seen)


def places_now(reader: Reader, project_id: int, first_places: Sequence[int]) -> list[int]:
    """Return the present places of events that were corrected, once all of them are there.

    Between the deletion of a version and its successor there is none. Raises `EventStoreUnavailableError` when one does
    not come back in time.
    """
    parameters = {"project_id": project_id}
    listed = ", ".join(map(str, first_places))
    deadline = time.monotonic() + RETURN_PATIENCE_S
    while True:
        places = [place for (place,) in reader.execute(_PLACES.format(listed=listed), parameters)]
        [(count,)] = reader.execute(_PRESENT.format(listed=", ".join(map(str, places))), parameters)
        if count == len(places):
            return places
        if time.monotonic() > deadline:
            raise EventStoreUnavailableError("events that are being corrected are not back yet: try again")
        time.sleep(_RETURN_PAUSE_S)


def newest(
    reader: Reader,
    project_id: int,
    count: int,
    *,
    names: Collection[str] | None = None,
    before: int | None = None,
    timeout_s: float | None = None,
) -> list[tuple[int, EventRow]]:
    """Return the events of a project that came last, newest first, with their places, as `TimeRange.window` gives them.

    Only those of some ``names``, and those that stand ``before`` a place; None for all.
    """
    parameters: dict[str, Any] = {"project_id": project_id}
    sql = _NEWEST
    if before is not None:
        sql += f" AND seq < {before}"
    if names is not None:
        parameters |= {f"name_{number}": name for number, name in enumerate(sorted(names))}
        sql += (
            f" AND event IN ({', '.join(f'$name_{number}' for number in range(len(names)))})"
            if names
            else " AND FALSE"
        )
    sql += f" ORDER BY seq DESC LIMIT {count}"
    [(last,)] = reader.execute(_LAST, timeout_s=timeout_s)
    if before is not None:
        last = before
    behind, events = _FIRST_SEQS, list[tuple[Any, ...]]()
    while True:
        events = reader.execute(sql, parameters | {"after": last - behind}, timeout_s=timeout_s)
        if len(events) >= count or behind >= last:
            break
        behind *= _MORE_SEQS
    return [(row[0], _row(project_id, dict(zip(_COLUMNS, row, strict=True)))) for row in events]


@dataclass(frozen=True, slots=True)
class Extent:
    """Extent of a range of events in the order of ingestion, and their number."""

    first_seq: int
    last_seq: int
    count: int


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The events of a project whose timestamps are in a range; ``until`` is exclusive."""

    project_id: int
    since: datetime
    until: datetime

    def extent(
        self, reader: Reader, newest: int | None = None, *, timeout_s: float | None = None
    ) -> Extent | None:
        """Return the extent of the events up to the ``newest`` place; None without any. Raises as `Reader.execute`."""
        sql = _EXTENT if newest is None else f"{_EXTENT} AND seq <= {newest}"
        [(first, last, count)] = reader.execute(sql, self._parameters(), timeout_s=timeout_s)
        return Extent(first, last, count) if count else None

    def window(
        self, reader: Reader, after: int, last: int, *, end: int | None = None, timeout_s: float | None = None
    ) -> list[tuple[int, EventRow]]:
        """Return the events behind place ``after`` up to ``last``, with their places, in the order of ingestion.

        ``end`` is the place up to which windows will be read; None: up to ``last``. An event of the window that was
        corrected after the ``end`` was decided stands behind it: it is among the answer, as it is now.
        Persons are as they were when the events came, under the ids that merges gave them since.
        """
        parameters = {**self._parameters(), "after": after, "last": last, "end": end or last}

        def run(sql: str) -> list[tuple[Any, ...]]:
            return reader.execute(sql, parameters, timeout_s=timeout_s)

        events = run(_WINDOW)
        # Looked for after the events: one that is gone by a correction was noted before it went.
        places, corrected = run(_CORRECTED), list[tuple[Any, ...]]()
        while places:
            listed = ", ".join(str(place) for (place,) in places)
            corrected = run(f"{_IN_RANGE} AND seq IN ({listed}) ORDER BY seq")
            places, before = run(_CORRECTED), places
            if places == before:
                break
        rows = [
            (row[0], _row(self.project_id, dict(zip(_COLUMNS, row, strict=True))))
            for row in (*events, *corrected)
        ]
        return list({row.identity: (seq, row) for seq, row in rows}.values()) if corrected else rows

    def _parameters(self) -> dict[str, Any]:
        return {"project_id": self.project_id, "since": self.since, "until": self.until}


def _row(project_id: int, values: dict[str, Any]) -> EventRow:
    del values["seq"]
    groups = {index: values.pop(name) for index, name in enumerate(_GROUPS)}
    created_at, uuid = values.pop("person_created_at"), values.pop("uuid")
    return EventRow(
        project_id=project_id,
        uuid=uuid if isinstance(uuid, UUID) else UUID(uuid),  # of some engines it is a text
        timestamp=values.pop("timestamp").replace(tzinfo=UTC),
        captured_at=values.pop("captured_at").replace(tzinfo=UTC),
        properties=values.pop("properties").encode(),
        person_properties=values.pop("person_properties").encode(),
        person_created_at=None if created_at is None else created_at.replace(tzinfo=UTC),
        groups={index: key for index, key in groups.items() if key is not None},
        **values,
    )
