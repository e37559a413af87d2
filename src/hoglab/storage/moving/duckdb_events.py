"""The events of a move in a DuckDB file: see `hoglab.storage.moving.events.MovingEvents`."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import duckdb

from hoglab.storage.database.types import to_micros
from hoglab.storage.event_log import SequenceNumber
from hoglab.storage.event_store import EventStoreUnavailableError
from hoglab.storage.event_store.arrow import ArrowTable, integers, microseconds, small_integers, uuids
from hoglab.storage.event_store.deadlines import QueryDeadlines
from hoglab.storage.event_store.duckdb import CHECKPOINT_BYTES, MAX_SPILL_BYTES, MIB
from hoglab.storage.event_store.duckdb_file import DuckDbFile, DuckDbReader, first_line
from hoglab.storage.event_store.export import MEMORY, seq_parts
from hoglab.storage.event_store.rows import table_of
from hoglab.storage.moving.events import READ_ROWS, SELECTED, EventsPlace, in_utc
from hoglab.storage.moving.rows import batches

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from hoglab.storage.event_store import EventRow
    from hoglab.storage.moving.events import Correction, Merge, PlacedEvent

TIMEOUT_S = 3600.0
"""Time limit of what is asked beside the events themselves."""
_ADD = "INSERT INTO events BY NAME SELECT * FROM incoming"
_CORRECTIONS = (
    "SELECT project_id, timestamp, old_seq, seq, first_seq, log_offset FROM event_correction "
    "ORDER BY project_id, old_seq"
)
_ADD_CORRECTIONS = "INSERT INTO event_correction BY NAME SELECT * FROM incoming"
_ADD_MERGES = "DELETE FROM person_override; INSERT INTO person_override BY NAME SELECT * FROM incoming"


def file_place(path: Path) -> EventsPlace:
    """Yield a file, made when it is opened and missing."""

    @contextmanager
    def opened() -> Iterator[DuckDbEvents]:
        with closing(DuckDbEvents(path)) as events:
            yield events

    return EventsPlace(str(path), opened)


class DuckDbEvents:
    """Raises `EventStoreUnavailableError` also when another process has the file open."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        config = {
            "memory_limit": MEMORY,
            "temp_directory": f"{path}.tmp",
            "checkpoint_threshold": f"{CHECKPOINT_BYTES // MIB}MiB",
        }
        self._file = DuckDbFile(path, config, max_spill_bytes=MAX_SPILL_BYTES)
        self._position, self._next_seq = self._file.load()
        self._deadlines = QueryDeadlines()

    def identity(self) -> tuple[str, int, int] | None:
        """See `MovingEvents`."""
        return self._file.identity()

    def set_identity(self, installation_id: str, generation: int, starts: int) -> None:
        """See `MovingEvents`."""
        self._file.set_identity(installation_id, generation, starts)

    def position(self) -> int:
        """See `MovingEvents`."""
        return self._position

    def next_seq(self) -> int:
        """See `MovingEvents`."""
        return self._next_seq

    def count(self) -> int:
        """See `MovingEvents`."""
        with self._reader() as reader:
            return int(reader.execute("SELECT count(*) FROM stored_events")[0][0])

    def in_order(self, first: int) -> Generator[list[tuple[Any, ...]]]:
        """See `MovingEvents`: a part after the other is sorted."""
        with self._reader() as reader:
            for start, last in seq_parts(reader):
                if last >= first:
                    where = f"seq BETWEEN {max(start, first)} AND {last} ORDER BY seq"
                    yield from reader.stream(_select(where), rows=READ_ROWS)

    def in_any_order(self) -> Generator[list[tuple[Any, ...]]]:
        """See `MovingEvents`."""
        with self._reader() as reader:
            yield from reader.stream(_select("true"), rows=READ_ROWS)

    def merges(self) -> list[Merge]:
        """See `MovingEvents`."""
        with self._reader() as reader:
            rows = reader.execute(
                "SELECT project_id, old_person_id, person_id, log_offset FROM person_override"
            )
        return [(project, old, new, offset) for project, old, new, offset in rows]

    def corrections(self) -> Generator[Correction]:
        """See `MovingEvents`."""
        with self._reader() as reader:
            for rows in reader.stream(_CORRECTIONS, rows=READ_ROWS):
                yield from [(row[0], in_utc(row[1]), *row[2:]) for row in rows]

    def write_corrections(self, corrections: Iterable[Correction]) -> None:
        """See `MovingEvents`: in one transaction."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM event_correction")
            for batch in batches(corrections, lambda _: 0, most=READ_ROWS):
                projects, moments, old_seqs, seqs, first_seqs, offsets = zip(*batch, strict=True)
                columns = {
                    "project_id": small_integers(projects),
                    "timestamp": microseconds(list(map(to_micros, moments))),
                    "old_seq": integers(old_seqs),
                    "seq": integers(seqs),
                    "first_seq": integers(first_seqs),
                    "log_offset": integers(offsets),
                }
                connection.register("incoming", ArrowTable(columns))
                connection.execute(_ADD_CORRECTIONS)
                connection.unregister("incoming")

    def kept_moment(self, moment: datetime) -> datetime:
        """See `MovingEvents`."""
        return moment

    def kept(self, event: EventRow) -> tuple[EventRow, Sequence[str]]:
        """See `MovingEvents`: every event that an engine returned is kept as it is."""
        return event, ()

    def add(self, events: Sequence[PlacedEvent]) -> None:
        """See `MovingEvents`."""
        next_seq = events[-1][0] + 1
        rows, places = [event for _, event in events], [seq for seq, _ in events]
        with self._writing(table_of(rows, places)) as connection:
            connection.execute(_ADD)
            connection.execute("UPDATE store_state SET next_seq = $1", [next_seq])
        self._next_seq = next_seq

    def settle(self, position: int, next_seq: int, merges: Sequence[Merge]) -> None:
        """See `MovingEvents`."""
        columns = {
            "project_id": small_integers([merge[0] for merge in merges]),
            "old_person_id": uuids([merge[1] for merge in merges]),
            "person_id": uuids([merge[2] for merge in merges]),
            "log_offset": integers([merge[3] for merge in merges]),
        }
        with self._writing(ArrowTable(columns)) as connection:
            connection.execute(_ADD_MERGES)
            connection.execute("UPDATE store_state SET position = $1, next_seq = $2", [position, next_seq])
        self._position, self._next_seq = SequenceNumber(position), next_seq

    @contextmanager
    def _writing(self, incoming: ArrowTable) -> Iterator[duckdb.DuckDBPyConnection]:
        """Provide a transaction with rows as the engine's table ``incoming``."""
        with self._transaction() as connection:
            connection.register("incoming", incoming)
            yield connection
        connection.unregister("incoming")

    @contextmanager
    def _transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Provide a transaction, which is taken back when the block raises."""
        connection = self._file.connection
        try:
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")
        except duckdb.Error as error:
            self._file.roll_back()
            raise EventStoreUnavailableError(f"{self.name}: {first_line(error)}") from error
        except BaseException:
            self._file.roll_back()
            raise

    @contextmanager
    def _reader(self) -> Iterator[DuckDbReader]:
        with self._file.cursor() as cursor:
            yield DuckDbReader(self._file, cursor, self._deadlines, TIMEOUT_S)

    def close(self) -> None:
        """Write everything into the file and close it."""
        self._file.close()
        self._deadlines.close()


def _select(where: str) -> str:
    return f"SELECT {SELECTED} FROM stored_events WHERE {where}"  # noqa: S608 - our own words
