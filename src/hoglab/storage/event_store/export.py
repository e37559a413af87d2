"""Copying events out of a store: into a file when no server has it open, else row by row from its reader."""

from __future__ import annotations

import time
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb
import msgspec

from hoglab.patterns import anchored
from hoglab.storage.event_store import EventStoreUnavailableError
from hoglab.storage.event_store.duckdb_file import first_line, upgrade
from hoglab.storage.event_store.history import moved_behind, places_now
from hoglab.storage.event_store.transactions import transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from pathlib import Path

    from hoglab.storage.event_store import Reader
    from hoglab.storage.event_store.dialects import Dialect

FileEngineError = duckdb.Error
"""Error of `file_engine` for files that it cannot read or write."""

MEMORY = "512MB"
PART_ROWS = 100_000
"""Number of events that are sorted at a time, of those that are not sealed."""
REST_PATIENCE_S = 30.0
"""Time for which an export waits for a moment when no batch is at work on its events."""
_REST_PAUSE_S = 0.05
FORMULA = r"^'*[=+\-@\t\r]"
"""Pattern of texts that spreadsheets take for formulas, perhaps behind apostrophes."""
_FORMULA = anchored(FORMULA)
_COLUMNS = {
    "uuid": ("events.uuid", "UUID"),
    "event": ("event", "VARCHAR"),
    "properties": ("whole_properties", "VARCHAR"),
    "elements_chain": ("elements_chain", "VARCHAR"),
    "distinct_id": ("distinct_id", "VARCHAR"),
    "team_id": ("project_id", "INTEGER"),
    "person_id": ("person_id", "UUID"),
    "person_properties": ("person_properties", "VARCHAR"),
    "timestamp": ("timestamp", "TIMESTAMP"),
    "created_at": ("captured_at", "TIMESTAMP"),
}
"""Named as in PostHog's batch exports, each with its source and type; persons as they were when the events were
ingested, after merges."""

EVENT_TYPES = {name: kind for name, (_, kind) in _COLUMNS.items()}
"""The columns of exported events and their types."""


class EventSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Selection of events to export. ``after`` is inclusive and ``before`` is not; both are UTC without saying so."""

    project_id: int
    event: str | None = None
    after: datetime | None = None
    before: datetime | None = None

    def condition(self) -> tuple[str, dict[str, Any]]:
        """Return SQL, and its parameters by name."""
        conditions = {
            "project_id = $project_id": self.project_id,
            "event = $event": self.event,
            "timestamp >= $after": self.after,
            "timestamp < $before": self.before,
        }
        wanted = {condition: value for condition, value in conditions.items() if value is not None}
        return " AND ".join(wanted), {key.rpartition("$")[2]: value for key, value in wanted.items()}

    def query(self, part: SeqRange | None = None) -> str:
        """Return SQL of the events in the order of their ingestion, of all or of a part."""
        return self.query_where("true" if part is None else f"seq BETWEEN {part[0]} AND {part[1]}")

    def query_where(self, within: str, *further: str) -> str:
        """Return SQL of the events that meet a condition, with ``further`` columns, in the order of their ingestion."""
        columns = ", ".join((*(f"{source} AS {name}" for name, (source, _) in _COLUMNS.items()), *further))
        where, _ = self.condition()
        return f"SELECT {columns} FROM resolved_events AS events WHERE {where} AND {within} ORDER BY seq"  # noqa: S608 - our own words


SeqRange = tuple[int, int]
"""First and last ``seq`` of some events."""

_SEGMENTS = "SELECT first_seq, last_seq FROM sealed_segment ORDER BY first_seq"
_RECENT = "SELECT min(seq), max(seq) FROM events"


def seq_parts(reader: Reader) -> list[SeqRange]:
    """Return ranges of the events of a store that seals them, in order, each of which can be sorted at once."""
    return _parts(reader.execute(_SEGMENTS), reader.execute(_RECENT))


def _parts(segments: list[tuple[Any, ...]], recent: list[tuple[Any, ...]]) -> list[SeqRange]:
    """Return ranges of events that can be sorted one after the other, in order."""
    parts = [*segments]
    for first, last in recent:
        if first is not None:
            parts += [
                (start, min(start + PART_ROWS - 1, last)) for start in range(first, last + 1, PART_ROWS)
            ]
    return parts


@contextmanager
def selected_lines(
    reader: Reader, selection: EventSelection, dialect: Dialect, newest: Callable[[], int] | None = None
) -> Iterator[tuple[int, Iterator[list[str]]]]:
    """Provide the number of selected events, and each of them as a line of JSON, in the order of their ingestion.

    ``newest`` returns the place up to which all events are stored; None: the store knows. Raises what `Reader` raises,
    also while the lines are read.
    """
    where, parameters = selection.condition()
    line = dialect.json_line(list(_COLUMNS))
    if not dialect.is_sealed:
        count, last = _counted(reader, selection, newest or partial(_newest, reader))
        with closing(_lines_meanwhile(reader, selection, last, line)) as lines:
            yield count, lines
        return
    with transaction(reader):
        parts = seq_parts(reader)
        [(count,)] = reader.execute(f"SELECT count(*) FROM stored_events WHERE {where}", parameters)  # noqa: S608
        with closing(_lines(reader, selection, parts, line)) as lines:
            yield count, lines


def _newest(reader: Reader) -> int:
    [(next_seq,)] = reader.execute("SELECT next_seq FROM store_state")
    return int(next_seq) - 1


def _counted(reader: Reader, selection: EventSelection, newest: Callable[[], int]) -> tuple[int, int]:
    """Return the number of selected events and their last place, at a moment when no batch is at work on them.

    A batch inserts month by month, and deletes former versions at last: meanwhile there are both versions of an event.
    Where batches are at work for ever, what is there counts after `REST_PATIENCE_S`.
    """
    where, parameters = selection.condition()
    deadline = time.monotonic() + REST_PATIENCE_S
    while True:
        done = newest()  # asked before counting: what is done then stays so
        counted = f"SELECT count(*), max(seq) FROM stored_events WHERE {where}"  # noqa: S608
        [(count, last)] = reader.execute(counted, parameters)
        if (last or 0) <= done or time.monotonic() > deadline:
            return count, last or 0
        time.sleep(_REST_PAUSE_S)


def _lines(
    reader: Reader, selection: EventSelection, parts: list[SeqRange], line: str
) -> Generator[list[str]]:
    _, parameters = selection.condition()
    for part in parts:
        query = f"SELECT {line} FROM ({selection.query(part)}) AS row"  # noqa: S608
        with closing(reader.stream(query, parameters)) as rows:
            for some in rows:
                yield [text for (text,) in some]


def _lines_meanwhile(reader: Reader, selection: EventSelection, end: int, line: str) -> Generator[list[str]]:
    """Yield the lines of events up to the place ``end``, while a store without transactions is written.

    An event that is corrected meanwhile, before it was read, stands behind the end: it is written as it is then.
    """
    _, parameters = selection.condition()
    for first in range(1, end + 1, PART_ROWS):
        last = min(first + PART_ROWS - 1, end)
        seen: set[int] = set()
        query = selection.query_where(f"seq BETWEEN {first} AND {last}", "seq")
        with closing(reader.stream(f"SELECT {line}, seq FROM ({query}) AS row", parameters)) as rows:  # noqa: S608
            for some in rows:
                seen.update(seq for _, seq in some)
                yield [text for text, _ in some]
        # Looked for after the events: one that is gone by a correction was noted before it went.
        moved = moved_behind(reader, selection.project_id, first, last, end, seen)
        while moved:
            places = places_now(reader, selection.project_id, moved)
            listed = ", ".join(map(str, places))
            query = selection.query_where(f"seq IN ({listed})")
            corrected = reader.execute(f"SELECT {line} FROM ({query}) AS row", parameters)  # noqa: S608
            if places == places_now(reader, selection.project_id, moved):
                yield [text for (text,) in corrected]
                break


@contextmanager
def file_engine(database: str = ":memory:", **config: Any) -> Iterator[duckdb.DuckDBPyConnection]:
    """Provide an engine with bounded memory to read and write files with, for commands."""
    with closing(duckdb.connect(database, config={"memory_limit": MEMORY, **config})) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_progress_bar = false")  # it would be on our standard output
        yield connection


def copy_events(store: Path, target: Path, selection: EventSelection, *, file_format: str) -> int:
    """Write events of a store that no server has open into a new file, and return how many.

    They stand in the order of their ingestion. ``file_format`` is parquet, csv or json (lines). Memory is bounded.
    Raises `EventStoreUnavailableError` when the store cannot be read or the file cannot be written.
    """
    _, parameters = selection.condition()
    try:
        upgrade(store)
        with file_engine(str(store)) as connection:
            segments = connection.execute(_SEGMENTS).fetchall()
            if not segments:
                return copy_query(connection, selection.query(), parameters, target, file_format, EVENT_TYPES)
            with _scratch(connection, target) as sorted_events:
                for part in _parts(segments, connection.execute(_RECENT).fetchall()):
                    connection.execute(f"INSERT INTO {sorted_events} {selection.query(part)}", parameters)
                return copy_query(connection, f"FROM {sorted_events}", None, target, file_format, EVENT_TYPES)
    except duckdb.Error as error:
        raise EventStoreUnavailableError(first_line(error)) from error


@contextmanager
def _scratch(connection: duckdb.DuckDBPyConnection, target: Path) -> Iterator[str]:
    """Provide a table in a file beside the target for the time of the block: sorting takes too much memory."""
    path = target.with_name(f"{target.name}.sorting")
    columns = ", ".join(f"{name} {kind}" for name, kind in EVENT_TYPES.items())
    quoted = str(path).replace("'", "''")
    connection.execute(f"ATTACH '{quoted}' AS scratch (RECOVERY_MODE 'no_wal_writes')")
    try:
        connection.execute(f"CREATE TABLE scratch.events ({columns})")
        yield "scratch.events"
    finally:
        connection.execute("DETACH scratch")
        path.unlink(missing_ok=True)


def copy_query(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    parameters: dict[str, Any] | None,
    target: Path,
    file_format: str,
    types: Mapping[str, str],
) -> int:
    """Write the rows of a query into a file, and return how many. ``types``: the types of its columns, in order.

    In CSV a text that a spreadsheet would take for a formula gets an apostrophe, as in the files of the UI, and so does
    one that such a text could be mistaken for: `without_apostrophe` gives back what it was.
    """
    name = str(target).replace("'", "''")
    if file_format == "csv":
        cells = ", ".join(_spreadsheet_cell(column, kind) for column, kind in types.items())
        query = f"SELECT {cells} FROM ({query})"  # noqa: S608 - our own words
    options = "FORMAT parquet, COMPRESSION zstd" if file_format == "parquet" else f"FORMAT {file_format}"
    [(rows,)] = connection.execute(f"COPY ({query}) TO '{name}' ({options})", parameters).fetchall()
    return int(rows)


def _spreadsheet_cell(column: str, kind: str) -> str:
    if kind != "VARCHAR":
        return f'"{column}"'
    pattern = FORMULA.replace("'", "''")
    return (
        f'CASE WHEN regexp_matches("{column}", \'{pattern}\') THEN chr(39) || "{column}" ELSE "{column}" END '
        f'AS "{column}"'
    )


def without_apostrophe(text: str) -> str:
    """Return a text of a CSV file of ours as it was."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def spreadsheet_text(text: str) -> str:
    """Return a text for a cell of CSV, with an apostrophe where a spreadsheet would take it for a formula."""
    return f"'{text}" if _FORMULA.match(text) else text
