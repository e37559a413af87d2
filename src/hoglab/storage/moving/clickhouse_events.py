"""The events of a move in a ClickHouse database: see `hoglab.storage.moving.events.MovingEvents`.

Progress is where a server has it, too: the first free place of a partition of the log. Until it is noted, a batch is
inserted again under the same tokens, and the engine takes it once.
"""

# ruff: noqa: S608 - names of our own, and numbers

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from hoglab.storage.event_store.clickhouse.connection import ClickHouseAddress, Connection
from hoglab.storage.event_store.clickhouse.identity import identity, set_identity
from hoglab.storage.event_store.clickhouse.merging import MERGE_TYPES
from hoglab.storage.event_store.clickhouse.reader import ClickHouseReader, bounded
from hoglab.storage.event_store.clickhouse.rows import chunks, columns_of, indexes_of, month_of, readable
from hoglab.storage.event_store.clickhouse.schema import (
    CORRECTION_TYPES,
    CORRECTIONS,
    EVENTS,
    OVERRIDES,
    POSITIONS,
    TYPES,
    upgrade,
)
from hoglab.storage.moving.events import BATCH_ROWS, READ_ROWS, SELECTED, EventsPlace, in_utc
from hoglab.storage.moving.rows import batches

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from datetime import datetime

    from hoglab.storage.event_store import EventRow
    from hoglab.storage.moving.events import Correction, Merge, PlacedEvent

SORTED_PLACES: Final = 500_000
"""Number of places whose events the engine sorts at once."""
_MEMORY: Final = 2**30
_LIMITS: Final = {
    "max_memory_usage": _MEMORY,
    "max_bytes_before_external_sort": _MEMORY // 2,
}
"""Limits of a query on the server."""
OLDEST_VERSION: Final = 1
MENDED, BOUNDED = (
    "JSON that ClickHouse cannot read was mended",
    "moments before 1900 or after 2299 became the first or last one",
)


def database_place(url: str, partitions: int, partition_of: Callable[[int, str], int]) -> EventsPlace:
    """Yield a database, whose tables are made when it is opened. Raises `EventStoreUnavailableError`.

    ``partition_of``: the partition of the log that events of a project and distinct id come in.
    """
    address = ClickHouseAddress(url)

    @contextmanager
    def opened() -> Iterator[ClickHouseEvents]:
        with closing(ClickHouseEvents(url, partitions, partition_of)) as events:
            yield events

    return EventsPlace(f"the ClickHouse database {address.database} on {address.host}", opened)


class ClickHouseEvents:
    """See `database_place`."""

    def __init__(self, url: str, partitions: int, partition_of: Callable[[int, str], int]) -> None:
        self.connection = Connection(url)
        self.url = url
        self.name = self.connection.name
        self._partitions = partitions
        self._partition_of = partition_of
        upgrade(self.connection)
        [(position, next_seq)] = self.connection.rows(
            f"SELECT max(log_offset), max(next_seq) FROM {POSITIONS}"
        )
        self._position: int = position
        self._next_seq: int = max(1, next_seq)

    def identity(self) -> tuple[str, int, int] | None:
        """See `MovingEvents`."""
        return identity(self.connection)

    def set_identity(self, installation_id: str, generation: int, starts: int) -> None:
        """See `MovingEvents`."""
        set_identity(self.connection, installation_id, generation, starts)

    def position(self) -> int:
        """See `MovingEvents`."""
        return self._position

    def next_seq(self) -> int:
        """See `MovingEvents`."""
        return self._next_seq

    def count(self) -> int:
        """See `MovingEvents`."""
        return int(self.connection.rows(f"SELECT count() FROM {EVENTS}")[0][0])

    def in_order(self, first: int) -> Generator[list[tuple[Any, ...]]]:
        """See `MovingEvents`: a range of places after the other is sorted."""
        [(lowest, highest)] = self.connection.rows(f"SELECT min(seq), max(seq) FROM {EVENTS}")
        for start in range(max(first, lowest), highest + 1, SORTED_PLACES):
            yield from self._read(f"seq BETWEEN {start} AND {start + SORTED_PLACES - 1} ORDER BY seq")

    def in_any_order(self) -> Generator[list[tuple[Any, ...]]]:
        """See `MovingEvents`."""
        yield from self._read("1")

    def _read(self, where: str) -> Generator[list[tuple[Any, ...]]]:
        reader = ClickHouseReader(self.connection, _LIMITS, 0)
        yield from reader.stream(f"SELECT {SELECTED} FROM stored_events WHERE {where}", rows=READ_ROWS)

    def merges(self) -> list[Merge]:
        """See `MovingEvents`."""
        rows = self.connection.rows(
            "SELECT project_id, old_person_id, person_id, log_offset FROM person_override"
        )
        return [(project, old, new, offset) for project, old, new, offset in rows]

    def corrections(self) -> Generator[Correction]:
        """See `MovingEvents`."""
        columns = ", ".join(CORRECTION_TYPES)
        sql = f"SELECT {columns} FROM {CORRECTIONS} FINAL ORDER BY project_id, old_seq"
        reader = ClickHouseReader(self.connection, _LIMITS, 0)
        with closing(reader.stream(sql, rows=READ_ROWS)) as parts:
            for rows in parts:
                yield from [(row[0], in_utc(row[1]), *row[2:]) for row in rows]

    def write_corrections(self, corrections: Iterable[Correction]) -> None:
        """See `MovingEvents`."""
        self.connection.command(f"TRUNCATE TABLE {CORRECTIONS}")
        for batch in batches(corrections, lambda _: 0, most=BATCH_ROWS):
            columns = dict(zip(CORRECTION_TYPES, map(list, zip(*batch, strict=True)), strict=True))
            columns["timestamp"] = [bounded(moment) for moment in columns["timestamp"]]
            self.connection.insert(CORRECTIONS, CORRECTION_TYPES, columns)

    def kept_moment(self, moment: datetime) -> datetime:
        """See `MovingEvents`."""
        return bounded(moment)

    def kept(self, event: EventRow) -> tuple[EventRow, Sequence[str]]:
        """See `MovingEvents`."""
        how = []
        mended = readable(event)
        if mended is not event:
            how.append(MENDED)
        moments = {name: getattr(event, name) for name in ("timestamp", "captured_at", "person_created_at")}
        kept = {name: None if moment is None else bounded(moment) for name, moment in moments.items()}
        if kept != moments:
            how.append(BOUNDED)
        return (replace(mended, **kept) if how else event), how

    def add(self, events: Sequence[PlacedEvent]) -> None:
        """See `MovingEvents`."""
        first, last = events[0][0], events[-1][0]
        rows = [readable(event) for _, event in events]
        indexes = indexes_of(rows)
        for month, number, positions in chunks(list(map(month_of, rows)), range(len(rows)), BATCH_ROWS):
            some = [rows[position] for position in positions]
            columns = columns_of(
                some,
                [indexes[position] for position in positions],
                [events[position][0] for position in positions],
                month=month,
                partition=0,
            )
            partitions = [self._partition_of(row.project_id, row.distinct_id) for row in some]
            settings = {"insert_deduplication_token": f"move:{first}-{last}:{month}.{number}"}
            self.connection.insert(EVENTS, TYPES, {**columns, "log_partition": partitions}, settings)
        self._note(1, 0, last + 1)

    def _note(self, partitions: int, position: int, next_seq: int) -> None:
        """Note the same progress in a number of partitions."""
        types = {"log_partition": "UInt16", "log_offset": "Int64", "next_seq": "Int64"}
        columns = {
            "log_partition": list(range(partitions)),
            "log_offset": [position] * partitions,
            "next_seq": [next_seq] * partitions,
        }
        self.connection.insert(POSITIONS, types, columns)
        self._position, self._next_seq = position, next_seq

    def settle(self, position: int, next_seq: int, merges: Sequence[Merge]) -> None:
        """See `MovingEvents`."""
        self.connection.command(f"TRUNCATE TABLE {OVERRIDES}")
        if merges:
            projects, old, new, offsets = (list(column) for column in zip(*merges, strict=True))
            columns = {"project_id": projects, "old_person_id": old, "person_id": new, "log_offset": offsets}
            # Every later change of persons is newer.
            further = {"version": [OLDEST_VERSION] * len(merges), "log_partition": [0] * len(merges)}
            self.connection.insert(OVERRIDES, MERGE_TYPES, {**columns, **further})
        self._note(self._partitions, position, next_seq)

    def close(self) -> None:
        """Close the connections."""
        self.connection.close()
