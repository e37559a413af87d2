"""The event store in a ClickHouse database. There are no transactions: what was begun is told from what is there.

A batch is inserted in chunks, each of one month and with a token that says which records it is of, so that the engine
takes it once; then its merges, and at last the position. Who finds a batch half done, because an answer was lost or a
process died, ends what still runs, reads which of the events are there, and inserts the others.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace
from prometheus_client import Gauge

from hoglab.patterns import anchored
from hoglab.storage.event_log import SequenceNumber
from hoglab.storage.event_store import EventStoreUnavailableError
from hoglab.storage.event_store.clickhouse.connection import Connection
from hoglab.storage.event_store.clickhouse.erasing import AT_ONCE, WIDE, condition_of, listed
from hoglab.storage.event_store.clickhouse.identity import identity, set_identity
from hoglab.storage.event_store.clickhouse.merging import write_merges
from hoglab.storage.event_store.clickhouse.partition import Partition
from hoglab.storage.event_store.clickhouse.reader import ClickHouseReader, bounded
from hoglab.storage.event_store.clickhouse.rows import columns_of, indexes_of, readable
from hoglab.storage.event_store.clickhouse.schema import (
    EVENTS,
    OVERRIDES,
    POSITIONS,
    REHEARSAL,
    TYPES,
    upgrade,
)
from hoglab.storage.event_store.clickhouse.typed_columns import TypedColumns
from hoglab.storage.event_store.dialects.clickhouse import ClickHouse
from hoglab.storage.event_store.once.versions import new_at, settle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from uuid import UUID

    from hoglab.storage.event_store import ErasableEvents, EventBatch, EventRow, Wanted
    from hoglab.storage.event_store.dialects import Dialect

_BYTES: Final = anchored(r"([\d.]+)\s*([KMG]i?)?B")
_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
CHECK_TIMEOUT_S = 5.0

_PARTS = Gauge(
    "hoglab_event_store_parts",
    "Parts of that partition of the table of events which has most, at the last look.",
)
_MOST_PARTS = (
    "SELECT max(parts) FROM (SELECT count() AS parts FROM system.parts "  # noqa: S608 - a constant
    f"WHERE active AND database = currentDatabase() AND table = '{EVENTS}' GROUP BY partition_id)"
)


class ClickHouseEventStore:
    """See `EventStore` for tables and guarantees."""

    def __init__(self, url: str, keys: Path, *, memory: str, query_timeout_s: float) -> None:
        """Open the store, making what is missing of its tables.

        ``keys`` is the folder for digests of what is stored, a cache. ``memory``, a size such as "512MB", is what a
        query may use. Raises `EventStoreUnavailableError`.
        """
        self._connection = Connection(url)
        self._keys = keys
        most = memory_bytes(memory)
        self._limits = {
            "max_memory_usage": most,
            "max_bytes_before_external_group_by": most // 2,
            "max_bytes_before_external_sort": most // 2,
        }
        self._query_timeout_s = query_timeout_s
        self._writing = threading.RLock()
        self._partitions: dict[int, Partition] = {}
        self._opening = threading.Lock()
        self._is_closed = False
        upgrade(self._connection)
        self.typed_columns = TypedColumns(self._connection)
        self.dialect: Dialect = ClickHouse(self.typed_columns.column)

    def _partition(self, number: int) -> Partition:
        """Return the partition of a number; read from the store the first time."""
        if self._is_closed:
            raise EventStoreUnavailableError("the event store is closed")
        with self._opening:
            if number not in self._partitions:
                try:
                    self._partitions[number] = Partition(self._connection, number, self._keys / str(number))
                except OSError as error:
                    raise EventStoreUnavailableError(f"{self._keys}: {error}") from error
            return self._partitions[number]

    # -- writing ------------------------------------------------------------------------------------

    def append(
        self,
        batch: EventBatch,
        *,
        log_offset: SequenceNumber,
        log_partition: int = 0,
        first_seq: SequenceNumber | None = None,
    ) -> Sequence[int]:
        """See `EventWriter.append`."""
        with self._writing:
            partition = self._partition(log_partition)
            partition.begin(first_seq)
            rows = list(map(_in_range, batch.rows))
            if any(row.log_partition != log_partition for row in rows):
                raise ValueError("a row is of another partition than its batch")
            if max((row.log_offset for row in rows), default=0) > max(log_offset, partition.position):
                raise ValueError("a row has a log offset above that of its batch")
            recalled = partition.recalled(rows, log_offset)
            past = [position for position, row in enumerate(rows) if row.log_offset <= partition.position]
            was_new = new_at(rows, past, recalled)
            if log_offset <= partition.position:
                return was_new
            further = [position for position, row in enumerate(rows) if row.log_offset > partition.position]
            stored = partition.known(rows, further)
            for identity, versions in recalled.items():
                begun = [version for version in versions if version.log_offset > partition.position]
                stored.setdefault(identity, []).extend(begun)
            settled = settle(rows, further, stored, batch.late)
            partition.write(rows, settled, log_offset, is_checked=batch.is_checked)
            if settled.replaced:
                partition.replace(rows, settled.replaced, log_offset)
            if batch.overrides:
                write_merges(self._connection, batch.overrides, log_partition, log_offset)
            partition.advance(rows, further, log_offset)
            return sorted((*was_new, *settled.new))

    def forget(self, log_partition: int) -> None:
        """See `PartitionedEventStore.forget`."""
        with self._writing:
            partition = self._partitions.pop(log_partition, None)
            if partition is not None:
                partition.close()

    def maintain_columns(self) -> None:
        """See `PartitionedEventStore.maintain_columns`."""
        _PARTS.set(self._connection.rows(_MOST_PARTS)[0][0])
        self.typed_columns.maintain_columns()

    def flush_usage(self) -> None:
        """See `PartitionedEventStore.flush_usage`."""
        self.typed_columns.flush_usage()

    def identity(self) -> tuple[str, int, int] | None:
        """See `EventWriter.identity`."""
        return identity(self._connection)

    def set_identity(self, installation_id: str, generation: int, starts: int) -> None:
        """See `EventWriter.set_identity`."""
        set_identity(self._connection, installation_id, generation, starts)

    def dry_run(self, rows: Sequence[EventRow]) -> None:
        """See `EventWriter.dry_run`."""
        if not rows:
            return
        with self._writing:
            partition = self._partition(rows[0].log_partition)
            written = settle(rows, range(len(rows)), partition.known(rows, range(len(rows)))).written
            chosen = [readable(rows[position]) for position in written]
            if chosen:
                columns = columns_of(chosen, indexes_of(chosen), written, month=0, partition=partition.number)
                self._connection.insert(REHEARSAL, TYPES, columns)

    def position(self, log_partition: int | None = None) -> SequenceNumber:
        """See `EventWriter.position`."""
        if log_partition is not None:
            return self._partition(log_partition).position
        rows = self._connection.rows(f"SELECT max(log_offset) FROM {POSITIONS}")  # noqa: S608
        return SequenceNumber(rows[0][0])

    # -- erasing ------------------------------------------------------------------------------------

    def uuids(self, events: ErasableEvents) -> list[UUID]:
        """See `EventEraser.uuids`."""
        where = condition_of(events)
        return [uuid for (uuid,) in self._connection.rows(f"SELECT uuid FROM {EVENTS} WHERE {where}", WIDE)]  # noqa: S608

    def erase(self, events: ErasableEvents) -> int:
        """See `EventEraser.erase`. The parts that had the events are rewritten before this returns.

        The server removes the old parts by itself, some minutes later.
        """
        where = condition_of(events)
        [(count,)] = self._connection.rows(f"SELECT count() FROM {EVENTS} WHERE {where}", WIDE)  # noqa: S608
        if count:
            self._connection.command(f"ALTER TABLE {EVENTS} DELETE WHERE {where}", {**WIDE, **AT_ONCE})
        return int(count)

    def forget_overrides(self, project_id: int, person_ids: Sequence[UUID]) -> None:
        """See `EventEraser.forget_overrides`."""
        people = listed(map(str, person_ids))
        where = f"project_id = {project_id} AND (old_person_id IN {people} OR person_id IN {people})"
        self._connection.command(f"ALTER TABLE {OVERRIDES} DELETE WHERE {where}", {**WIDE, **AT_ONCE})

    def distinct_ids_since(
        self, project_id: int, distinct_ids: Sequence[str], log_offset: SequenceNumber
    ) -> set[str]:
        """See `EventEraser.distinct_ids_since`."""
        where = f"project_id = {project_id} AND log_offset > {log_offset} AND distinct_id IN {listed(distinct_ids)}"
        rows = self._connection.rows(f"SELECT DISTINCT distinct_id FROM {EVENTS} WHERE {where}", WIDE)  # noqa: S608
        return {name for (name,) in rows}

    # -- reading ------------------------------------------------------------------------------------

    @contextmanager
    def reader(self) -> Iterator[ClickHouseReader]:
        """See `EventReader.reader`."""
        if self._is_closed:
            raise EventStoreUnavailableError("the event store is closed")
        yield ClickHouseReader(self._connection, self._limits, self._query_timeout_s)

    def newest_events(
        self, wanted: Wanted, columns: Sequence[str], *, limit: int, offset: int = 0, timeout_s: float
    ) -> list[tuple[Any, ...]]:
        """See `EventReader.newest_events`."""
        bounds = {"timestamp > $after": wanted.after, "timestamp < $before": wanted.before}
        given = {text: value for text, value in bounds.items() if value is not None}
        where = " AND ".join(["project_id = $project_id", *given, f"({wanted.condition})"])
        sql = (
            f"SELECT {', '.join(columns)} FROM stored_events AS events WHERE {where} "  # noqa: S608 - our own words
            f"ORDER BY timestamp DESC, seq DESC LIMIT {limit} OFFSET {offset}"
        )
        values = {**wanted.parameters, "project_id": wanted.project_id}
        values |= {text.rpartition("$")[2]: value for text, value in given.items()}
        with self.reader() as reader:
            return reader.execute(sql, values, timeout_s=timeout_s)

    def check(self) -> None:
        """See `EventWriter.check`."""
        with self.reader() as reader:
            reader.execute("SELECT 1", timeout_s=CHECK_TIMEOUT_S)

    def close(self) -> None:
        """Write down what is known of events, and close the connections. Again: does nothing."""
        with self._writing:
            if self._is_closed:
                return
            self._is_closed = True
            for partition in self._partitions.values():
                partition.close()
            self._connection.close()


def _in_range(row: EventRow) -> EventRow:
    """Return the row with a timestamp that the engine can hold, which decides the day of its identity."""
    moment = bounded(row.timestamp)
    return row if moment == row.timestamp else replace(row, timestamp=moment)


def memory_bytes(text: str) -> int:
    """Return a size such as "512MB" or "1.5 GiB" in bytes."""
    match = _BYTES.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no size")
    return int(float(match[1]) * _UNITS[match[2] or ""])
