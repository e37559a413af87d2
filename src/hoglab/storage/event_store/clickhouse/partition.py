"""One partition of the event log in the store: how far it is stored, and which of its events are."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec.structs import replace
from prometheus_client import Counter

from hoglab.storage.event_store import Identity, date_of, day_of
from hoglab.storage.event_store.clickhouse.erasing import WIDE
from hoglab.storage.event_store.clickhouse.reader import bounded
from hoglab.storage.event_store.clickhouse.rows import (
    chunks,
    columns_of,
    indexes_of,
    month_of,
    readable,
)
from hoglab.storage.event_store.clickhouse.schema import (
    CORRECTION_TYPES,
    CORRECTIONS,
    EVENTS,
    POSITIONS,
    TYPES,
)
from hoglab.storage.event_store.dialects.clickhouse import literal
from hoglab.storage.event_store.once.known_keys import KnownKeys, keys_of_halves, keys_of_rows
from hoglab.storage.event_store.once.versions import Said, StoredVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from hoglab.storage.event_log import SequenceNumber
    from hoglab.storage.event_store import EventRow
    from hoglab.storage.event_store.clickhouse.connection import Connection
    from hoglab.storage.event_store.once.known_keys import Keys
    from hoglab.storage.event_store.once.versions import Replacement, WritePlan

CHUNK_ROWS: Final = 50_000
"""Most rows of one insert; fewer than the engine takes for one block."""
KEY_RECORDS: Final = 100_000
"""Log records whose events' keys are read at once when the keys have to be computed again."""
_EXACT: Final = {"optimize_use_projections": 0}
"""Right after rows were deleted, projections still have them."""

REPAIRS: Final = Counter(
    "hoglab_event_store_repairs",
    "Batches of which it was looked for what an insert without an answer had stored.",
)

_COLUMNS: Final = (
    "project_id, uuid, event, distinct_id, seq, month, log_offset, "
    "if(first_offset = 0, log_offset, first_offset) AS was_new, timestamp"
)
"""Columns of which `_version` makes a version."""
_SAID: Final = ("captured_at", "elements_chain", "properties")

Versions = dict[Identity, list[StoredVersion]]


class Partition:
    """Written by one thread. What it knows is read from the store when it is made."""

    def __init__(self, connection: Connection, number: int, folder: Path) -> None:
        """Open a partition with digests of events in ``folder``. Raises `EventStoreUnavailableError`, `OSError`."""
        self._connection = connection
        self.number = number
        # A server may have databases of several installations, and ends statements by their ids alone.
        self._inserts = f"hoglab-append-{connection.database}-{number}-"
        where = f"WHERE log_partition = {number}"
        self.position: SequenceNumber
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
            rows = self._connection.rows(
                "SELECT project_id, toUInt64(bitShiftRight(toUInt128(uuid), 64)) AS high, "  # noqa: S608
                f"toUInt64(bitAnd(toUInt128(uuid), toUInt128(18446744073709551615))) AS low "
                f"FROM {EVENTS} WHERE {self._within(start, end)}"
            )
            columns = zip(*rows, strict=True) if rows else ((), (), ())
            projects, high, low = (np.array(column, np.uint64) for column in columns)
            yield end, keys_of_halves(projects, high, low)

    def _within(self, first: int, last: int) -> str:
        """Return the condition for events of some records of this partition."""
        return f"log_partition = {self.number} AND log_offset BETWEEN {first} AND {last}"

    def recalled(self, rows: Sequence[EventRow], log_offset: SequenceNumber) -> Versions:
        """Return what earlier batches stored of rows for the log records they came in.

        After a batch that failed, or was not finished by a process before this one, some may be behind `position`, too.
        Nothing is being written then any more.
        """
        reach = max(self.position, min(self._doubtful, log_offset))
        if reach > self.position:
            REPAIRS.inc()
            self._connection.kill(f"startsWith(query_id, '{self._inserts}')", wait=True)
        asked = [row for row in rows if row.log_offset <= reach]
        if not asked:
            return {}
        first, last = min(row.log_offset for row in asked), max(row.log_offset for row in asked)
        # Corrections of later records have these, too: in batches that are done already.
        until = max(self.position, last)
        where = f"{self._within(first, until)} AND was_new <= {last} AND was_new >= {first}"
        behind = f"{self._within(self.position + 1, until)}"
        stored = self._versions(f"({where}) OR ({behind})", _EXACT)
        wanted = {row.identity for row in asked}
        return {identity: versions for identity, versions in stored.items() if identity in wanted}

    def known(self, rows: Sequence[EventRow], positions: Sequence[int]) -> Versions:
        """Return what earlier batches stored of the events at some positions, with what these say."""
        chosen = [rows[position] for position in positions]
        stored: Versions = {}
        for suspects in self._known.find(keys_of_rows(chosen)):
            asked = {chosen[place].identity: chosen[place] for place in suspects.positions}
            events = ", ".join(
                f"({project_id}, toUUID('{row.uuid}'), {literal(event)}, {literal(distinct_id)})"
                for (project_id, _, _, event, distinct_id), row in asked.items()
            )
            days = ", ".join(f"toDate32('{date_of(day)}')" for day in {day for _, _, day, _, _ in asked})
            where = (
                f"{self._within(suspects.first, suspects.last)} AND toDate32(timestamp) IN ({days}) "
                f"AND (project_id, uuid, event, distinct_id) IN ({events})"
            )
            for identity, versions in self._versions(where, {**_EXACT, **WIDE}, said=True).items():
                if identity in asked:
                    stored.setdefault(identity, []).extend(versions)
        return stored

    def _versions(self, where: str, settings: Mapping[str, Any], *, said: bool = False) -> Versions:
        columns = ", ".join((_COLUMNS, *(_SAID if said else ())))
        versions: Versions = {}
        for row in self._connection.rows(f"SELECT {columns} FROM {EVENTS} WHERE {where}", settings):  # noqa: S608
            project_id, uuid, event, distinct_id, seq, month, log_offset, was_new, timestamp, *further = row
            moment = _in_utc(timestamp)
            identity = (project_id, uuid.int, day_of(moment), event, distinct_id)
            tells = None
            if said:
                captured_at, chain, properties = further
                tells = Said(moment, _in_utc(captured_at), chain, properties.encode())
            version = StoredVersion(month, seq, log_offset, was_new, moment, tells)
            versions.setdefault(identity, []).append(version)
        return versions

    def replace(
        self, rows: Sequence[EventRow], replaced: Sequence[Replacement], log_offset: SequenceNumber
    ) -> None:
        """Delete versions that rows took the place of, and note it. The same again changes nothing."""
        olds = {old.seq: old for old, _ in replaced}
        listed = ", ".join(map(str, olds))
        sql = f"SELECT seq, first_seq FROM {CORRECTIONS} WHERE seq IN ({listed})"  # noqa: S608
        first_seqs: dict[int, int] = {seq: first for seq, first in self._connection.rows(sql, WIDE)}  # noqa: C416
        columns: dict[str, Sequence[Any]] = {
            "project_id": [rows[position].project_id for _, position in replaced],
            "timestamp": [bounded(old.timestamp) for old, _ in replaced],
            "old_seq": [old.seq for old, _ in replaced],
            "seq": [self._next_seq + position for _, position in replaced],
            "first_seq": [first_seqs.get(old.seq, old.seq) for old, _ in replaced],
            "log_offset": [log_offset] * len(replaced),
        }
        self._connection.insert(CORRECTIONS, CORRECTION_TYPES, columns)
        for month in sorted({old.place for old in olds.values()}):
            seqs = ", ".join(str(seq) for seq, old in olds.items() if old.place == month)
            self._connection.command(
                f"DELETE FROM {EVENTS} IN PARTITION ID '{month}' "  # noqa: S608
                f"WHERE log_partition = {self.number} AND seq IN ({seqs})",
                {**WIDE, "lightweight_deletes_sync": 2},
            )

    def begin(self, first_seq: int | None) -> None:
        """Count the next rows from ``first_seq`` on, unless some of their batch were counted before."""
        self._next_seq = max(self._next_seq, first_seq or 1)

    def write(
        self, rows: Sequence[EventRow], settled: WritePlan, log_offset: SequenceNumber, *, is_checked: bool
    ) -> None:
        """Add the rows that are to be written, for a batch that ends with a record of the log.

        The same again adds nothing, also while the engine is still busy with the first time. Each row has its place
        by its position, so that it is the same whichever others are there.
        """
        self._doubtful = max(self._doubtful, log_offset)
        indexes = indexes_of(rows)
        positions = settled.written
        chosen = [rows[position] if is_checked else readable(rows[position]) for position in positions]
        if settled.first_offsets:
            firsts = [settled.first_offsets.get(position, 0) for position in positions]
            chosen = [replace(row, first_offset=first) for row, first in zip(chosen, firsts, strict=True)]
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

    def advance(self, rows: Sequence[EventRow], stored: Sequence[int], log_offset: SequenceNumber) -> None:
        """Note that everything up to a record is stored: of these rows those at some positions."""
        self._next_seq += len(rows)
        types = {"log_partition": "UInt16", "log_offset": "Int64", "next_seq": "Int64"}
        columns: dict[str, list[int]] = {
            "log_partition": [self.number],
            "log_offset": [log_offset],
            "next_seq": [self._next_seq],
        }
        self._connection.insert(POSITIONS, types, columns)
        self._known.add(keys_of_rows([rows[position] for position in stored]), self.position + 1, log_offset)
        self.position = log_offset

    def close(self) -> None:
        """Write down what is known, so that the next start need not read events."""
        self._known.close()


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
