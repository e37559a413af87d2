"""One partition of the event log in the store: how far it is stored, and which of its events are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from prometheus_client import Counter

from hoglab.storage.event_store.clickhouse.rows import (
    chunks,
    columns_of,
    indexes_of,
    month_of,
    readable,
)
from hoglab.storage.event_store.clickhouse.schema import EVENTS, POSITIONS, TYPES
from hoglab.storage.event_store.known_keys import KnownKeys, has_repetitions, keys_of, keys_of_halves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hoglab.storage.event_store import EventRow
    from hoglab.storage.event_store.clickhouse.connection import Connection
    from hoglab.storage.event_store.known_keys import Keys

CHUNK_ROWS: Final = 50_000
"""Most rows of one insert; fewer than the engine takes for one block."""
KEY_RECORDS: Final = 100_000
"""Log records whose events' keys are read at once when they have to be made anew."""
_EXACT: Final = {"optimize_use_projections": 0}
"""Right after rows were deleted, projections still have them."""

REPAIRS: Final = Counter(
    "hoglab_event_store_repairs",
    "Batches of which it was looked for what an insert without an answer had stored.",
)

Identity = tuple[int, int, int]
"""The log record, project and uuid of an event."""


class Partition:
    """Written by one thread. What it knows is read from the store when it is made."""

    def __init__(self, connection: Connection, number: int, folder: Path) -> None:
        """Open a partition with digests of events in ``folder``. Raises `EventStoreUnavailableError`, `OSError`."""
        self._connection = connection
        self.number = number
        # A server may have databases of several installations, and ends statements by their ids alone.
        self._inserts = f"hoglab-append-{connection.database}-{number}-"
        where = f"WHERE log_partition = {number}"
        self.position: int
        [(self.position, next_seq)] = connection.rows(
            f"SELECT max(log_offset), max(next_seq) FROM {POSITIONS} {where}"  # noqa: S608
        )
        self._next_seq = max(next_seq, 1)
        [(self._doubtful,)] = connection.rows(
            f"SELECT max(log_offset) FROM {EVENTS} {where} AND log_offset > {self.position}",  # noqa: S608
            _EXACT,
        )
        folder.mkdir(parents=True, exist_ok=True)
        self._known = KnownKeys(folder)
        self._known.load(self.position + 1, self._keys_between)

    def _keys_between(self, first: int, last: int) -> Iterator[tuple[int, Keys]]:
        """Yield the keys of stored events, read from them."""
        for start in range(first, last + 1, KEY_RECORDS):
            end = min(start + KEY_RECORDS - 1, last)
            found = self._connection.rows(
                "SELECT project_id, toUInt64(bitShiftRight(toUInt128(uuid), 64)) AS high, "  # noqa: S608
                f"toUInt64(bitAnd(toUInt128(uuid), toUInt128(18446744073709551615))) AS low "
                f"FROM {EVENTS} WHERE {self._within(start, end)}"
            )
            columns = zip(*found, strict=True) if found else ((), (), ())
            projects, high, low = (np.array(column, np.uint64) for column in columns)
            yield end, keys_of_halves(projects, high, low)

    def _within(self, first: int, last: int) -> str:
        """Return the condition for events of some records of this partition."""
        return f"log_partition = {self.number} AND log_offset BETWEEN {first} AND {last}"

    def recalled(self, rows: Sequence[EventRow], log_offset: int) -> list[int]:
        """Return positions of the rows that earlier batches stored for the log records they came in.

        After a batch that failed, or was not finished by a process before this one, they may be behind `position`, too.
        Nothing is being written then any more.
        """
        reach = max(self.position, min(self._doubtful, log_offset))
        if reach > self.position:
            REPAIRS.inc()
            self._connection.kill(f"startsWith(query_id, '{self._inserts}')", wait=True)
        asked = [position for position, row in enumerate(rows) if row.log_offset <= reach]
        if not asked:
            return []
        offsets = [rows[position].log_offset for position in asked]
        found = self._connection.rows(
            f"SELECT log_offset, project_id, uuid FROM {EVENTS} "  # noqa: S608
            f"WHERE {self._within(min(offsets), max(offsets))}",
            _EXACT,
        )
        known = {(offset, project, uuid.int) for offset, project, uuid in found}
        return [position for position in asked if _identity(rows[position]) in known]

    def unknown(self, rows: Sequence[EventRow], positions: Sequence[int]) -> list[int]:
        """Return the positions of events that earlier records have not stored, each event once."""
        chosen = [rows[position] for position in positions]
        keys = _keys(chosen)
        known: set[int] = set()
        if has_repetitions(keys):
            seen: set[tuple[int, int]] = set()
            for place, row in enumerate(chosen):
                identity = (row.project_id, row.uuid.int)
                if identity in seen:
                    known.add(place)
                seen.add(identity)
        for suspects in self._known.find(keys):
            known.update(self._resent(chosen, suspects.positions, suspects.first, suspects.last))
        return [position for place, position in enumerate(positions) if place not in known]

    def _resent(self, rows: Sequence[EventRow], places: Sequence[int], first: int, last: int) -> list[int]:
        uuids = ", ".join(f"'{uuid}'" for uuid in {rows[place].uuid for place in places})
        found = self._connection.rows(
            f"SELECT project_id, uuid FROM {EVENTS} "  # noqa: S608
            f"WHERE {self._within(first, last)} AND uuid IN ({uuids})"
        )
        stored = {(project, uuid.int) for project, uuid in found}
        return [place for place in places if (rows[place].project_id, rows[place].uuid.int) in stored]

    def begin(self, first_seq: int | None) -> None:
        """Count the next rows from ``first_seq`` on, unless some of their batch were counted before."""
        self._next_seq = max(self._next_seq, first_seq or 1)

    def write(
        self, rows: Sequence[EventRow], positions: Sequence[int], log_offset: int, *, is_checked: bool
    ) -> None:
        """Add the rows at some positions, for a batch that ends with a record of the log.

        The same again adds nothing, also while the engine is still busy with the first time. Each row has its place
        by its position, so that it is the same whichever others are there.
        """
        self._doubtful = max(self._doubtful, log_offset)
        indexes = indexes_of(rows)
        chosen = [rows[position] if is_checked else readable(rows[position]) for position in positions]
        for month, number, places in chunks(list(map(month_of, chosen)), positions, CHUNK_ROWS):
            token = f"p{self.number}:{self.position + 1}-{log_offset}:{month}.{number}"
            columns = columns_of(
                [chosen[place] for place in places],
                [indexes[positions[place]] for place in places],
                [self._next_seq + positions[place] for place in places],
                month=month,
                partition=self.number,
            )
            settings = {"insert_deduplication_token": token, "query_id": f"{self._inserts}{token}"}
            self._connection.insert(EVENTS, TYPES, columns, settings)

    def advance(self, rows: Sequence[EventRow], stored: Sequence[int], log_offset: int) -> None:
        """Note that everything up to a record is stored, and that the rows at some positions are new."""
        self._next_seq += len(rows)
        types = {"log_partition": "UInt16", "log_offset": "Int64", "next_seq": "Int64"}
        columns = {
            "log_partition": [self.number],
            "log_offset": [log_offset],
            "next_seq": [self._next_seq],
        }
        self._connection.insert(POSITIONS, types, columns)
        self._known.add(_keys([rows[position] for position in stored]), self.position + 1, log_offset)
        self.position = log_offset

    def close(self) -> None:
        """Write down what is known, so that the next start need not read events."""
        self._known.close()


def _keys(rows: Sequence[EventRow]) -> Keys:
    return keys_of([row.project_id for row in rows], [row.uuid for row in rows])


def _identity(row: EventRow) -> Identity:
    return row.log_offset, row.project_id, row.uuid.int
