"""Estimate of a move: how much it would bring to another place, and how long that would take; nothing is written."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from hoglab.storage.database import tables
from hoglab.storage.database.connections import open_connections
from hoglab.storage.database.errors import explained
from hoglab.storage.database.migrations import HEADS, current_revision
from hoglab.storage.moving.errors import MoveError
from hoglab.storage.moving.events import READ_ROWS, placed
from hoglab.storage.moving.events import size_of as size_of_event
from hoglab.storage.moving.location import LEFT_OUT
from hoglab.storage.moving.rows import StoredTable, size_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Connection, MetaData

    from hoglab.storage.moving.events import MovingEvents
    from hoglab.storage.moving.location import Location

SAMPLE_ROWS = 2_000
"""Number of rows of a table, half from each end, by which the size and reading time of the others are estimated."""
READS_FROM_FILES, READS_FROM_SERVER = 16, 6
"""Factors from the time of reading rows of the source to that of moving them: written there, and read on both sides.

Measured with persons and records of 6 kB: 16 to 22 out of files, 3 to 7 out of a server, which is slower to read.
"""

READS_OF_EVENTS = 5
"""Factor from the time of reading events to that of moving them."""


@dataclass(frozen=True, slots=True)
class TableEstimate:
    """Estimate for moving a table: its rows, their approximate size in bytes, and the approximate time."""

    table: str
    rows: int
    size: int
    seconds: float


def estimates(source: Location, target: Location | None = None) -> Iterator[TableEstimate]:
    """Return the estimates of the tables with rows, and of events, if these move; also beside a running server.

    Raises `MoveError` and `DatabaseError`, and at last, where a server has the file with events, also
    `EventStoreUnavailableError`.
    """
    if target is None or source.metadata != target.metadata:
        yield from _of(source.metadata, tables.metadata)
        yield from _of(source.queue, tables.queue_metadata)
    if target is not None and source.events is not None and source.events != target.events:
        with source.events.opened() as events:
            yield _of_events(events)


def _of_events(events: MovingEvents) -> TableEstimate:
    count = events.count()
    began = time.perf_counter()
    with closing(events.in_any_order()) as rows:
        sample = [placed(row) for part in islice(rows, SAMPLE_ROWS // READ_ROWS) for row in part]
    took_s = time.perf_counter() - began
    times = count / max(1, len(sample))
    size = sum(map(size_of_event, sample))
    return TableEstimate("events", count, round(size * times), took_s * times * READS_OF_EVENTS)


def _of(place: Path | str, metadata: MetaData) -> Iterator[TableEstimate]:
    connections = open_connections(place, metadata)
    try:
        with explained(connections.name), connections.read(durable=False) as connection:
            revision, known = current_revision(connection), HEADS[metadata.info["migrations"]]
            if revision != known:
                raise MoveError(
                    f"{connections.name} has schema revision {revision or 'none'}, not {known}: start this version of "
                    "the server on it once"
                )
            for table in metadata.sorted_tables:
                if table not in LEFT_OUT:
                    stored = StoredTable.of(table)
                    if rows := stored.count(connection):
                        reads = READS_FROM_SERVER if connections.is_shared else READS_FROM_FILES
                        yield _estimated(connection, stored, rows, reads)
    finally:
        connections.dispose()


def _estimated(connection: Connection, table: StoredTable, rows: int, reads: int) -> TableEstimate:
    began = time.perf_counter()
    half = SAMPLE_ROWS // 2
    sizes = [size_of(row) for row in islice(table.rows(connection), half)]
    if rows > half:
        most = min(half, rows - half)
        sizes += [size_of(row) for row in islice(table.rows(connection, newest_first=True), most)]
    times = rows / len(sizes)
    took_s = time.perf_counter() - began
    return TableEstimate(table.name, rows, round(sum(sizes) * times), took_s * times * reads)
