"""The places of a move, closed and opened."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hoglab.storage.database import Database, tables
from hoglab.storage.event_log.extent import last_offset
from hoglab.storage.moving.rows import StoredTable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path
    from typing import Any

    from sqlalchemy import Table

    from hoglab.storage.moving.events import EventsPlace
    from hoglab.storage.moving.log import TopicPlace

LEFT_OUT: frozenset[Table] = frozenset(
    {
        tables.installation,  # says itself how far the move is
        tables.queue_worker,  # processes that ended
        tables.job,  # what they were at
        tables.query_status,  # answers of a moment
        tables.flag_log_in,  # which count for minutes
        tables.event_log_head,  # only where several processes append; made of the log's last number
        tables.log_lease,  # of one topic
        tables.log_reader,
    }
)


@dataclass(frozen=True, slots=True)
class Location:
    """Location of metadata and queue: two files, or twice the address of one database. ``name``: without a password.

    ``events``: where the events are, None where they are not looked at. ``topic``: where the log is, if it is not in
    the queue's database.
    """

    metadata: Path | str
    queue: Path | str
    name: str
    events: EventsPlace | None = None
    topic: TopicPlace | None = None

    @contextmanager
    def opened(self) -> Iterator[Opened]:
        """Open the databases of a location during the block. Raises `DatabaseError`."""
        database = Database.open(self.metadata, tables.metadata, moving=True)
        try:
            queue = Database.open(self.queue, tables.queue_metadata)
            try:
                yield Opened(self.name, database, queue)
            finally:
                queue.dispose()
        finally:
            database.dispose()


@dataclass(frozen=True, slots=True)
class Opened:
    """The databases of a place."""

    name: str
    database: Database
    queue: Database

    def tables(self, left_out: Collection[Table] = LEFT_OUT) -> Iterator[tuple[Database, StoredTable]]:
        """Yield every table that moves, such that what others refer to comes first."""
        for database, metadata in ((self.database, tables.metadata), (self.queue, tables.queue_metadata)):
            for table in metadata.sorted_tables:
                if table not in left_out:
                    yield database, StoredTable.of(table)

    def home(self) -> dict[str, Any] | None:
        """Return the row of the installation; None where there is none."""
        with self.database.read() as connection:
            row = connection.execute(sa.select(tables.installation)).mappings().first()
        return None if row is None else dict(row)

    def set_step(self, step: str, other: str, *, is_whole: bool = False) -> None:
        """Note how far a move is. ``is_whole``: everything is in the other place, and was compared."""
        mark = {"step": step, "other": other} | ({"is_whole": True} if is_whole else {})
        self._mark(move=mark)

    def set_home(self, **changed: object) -> None:
        """Note that everything is at home here, with what changed of the installation."""
        self._mark(move=None, **changed)

    def _mark(self, **values: object) -> None:
        with self.database.write() as tx:
            tx.execute(sa.update(tables.installation).values(**values))

    def log_end(self) -> int:
        """Return the last offset that the event log gave out."""
        with self.queue.read() as connection:
            return last_offset(connection)
