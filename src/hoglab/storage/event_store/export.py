"""Copying events out of a store: into a file when no server has it open, else row by row from its reader."""

from __future__ import annotations

from contextlib import closing, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import duckdb
import msgspec

from hoglab.storage.event_store import EventStoreUnavailableError
from hoglab.storage.event_store.duckdb_file import first_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hoglab.storage.event_store import Reader

MEMORY = "512MB"
_COLUMNS = {
    "uuid": ("events.uuid", "UUID"),
    "event": ("event", "VARCHAR"),
    "properties": ("properties", "VARCHAR"),
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
    """Which events to export. ``after`` is inclusive and ``before`` is not; both are UTC without saying so."""

    project_id: int
    event: str | None = None
    after: datetime | None = None
    before: datetime | None = None

    def condition(self) -> tuple[str, dict[str, Any]]:
        """SQL, and its parameters by name."""
        conditions = {
            "project_id = $project_id": self.project_id,
            "event = $event": self.event,
            "timestamp >= $after": self.after,
            "timestamp < $before": self.before,
        }
        wanted = {condition: value for condition, value in conditions.items() if value is not None}
        return " AND ".join(wanted), {key.rpartition("$")[2]: value for key, value in wanted.items()}

    def query(self, more: str = "true") -> str:
        """SQL of the events that also meet another condition."""
        columns = ", ".join(f"{source} AS {name}" for name, (source, _) in _COLUMNS.items())
        where, _ = self.condition()
        return f"SELECT {columns} FROM resolved_events AS events WHERE {where} AND {more}"  # noqa: S608 - our own words


@contextmanager
def selected_lines(reader: Reader, selection: EventSelection) -> Iterator[tuple[int, Iterator[list[str]]]]:
    """How many events there are now, and each of them as a line of JSON, in the order of their ingestion.

    Raises the errors of `Reader`, also while the lines are read.
    """
    where, parameters = selection.condition()
    [(last,)] = reader.execute("SELECT coalesce(max(seq), 0) FROM events")
    parameters["last"] = last
    [(count,)] = reader.execute(f"SELECT count(*) FROM events WHERE {where} AND seq <= $last", parameters)  # noqa: S608
    query = selection.query("seq <= $last")
    with closing(reader.stream(f"SELECT to_json(row) FROM ({query}) AS row", parameters)) as parts:  # noqa: S608
        yield count, ([text for (text,) in part] for part in parts)


@contextmanager
def file_engine(database: str = ":memory:", **config: Any) -> Iterator[duckdb.DuckDBPyConnection]:
    """An engine with bounded memory to read and write files with, for commands."""
    with closing(duckdb.connect(database, config={"memory_limit": MEMORY, **config})) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_progress_bar = false")  # it would be on our standard output
        yield connection


def copy_events(store: Path, target: Path, selection: EventSelection, *, file_format: str) -> int:
    """Write events of a store that no server has open into a new file, in the order of their ingestion; how many.

    ``file_format`` is parquet, csv or json (lines). Memory is bounded. Raises `EventStoreUnavailableError` when the
    store cannot be read or the file cannot be written.
    """
    _, parameters = selection.condition()
    try:
        with file_engine(str(store)) as connection:
            return copy_query(connection, selection.query(), parameters, target, file_format)
    except duckdb.Error as error:
        raise EventStoreUnavailableError(first_line(error)) from error


def copy_query(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    parameters: dict[str, Any] | None,
    target: Path,
    file_format: str,
) -> int:
    """Write the rows of a query into a file; how many there were."""
    name = str(target).replace("'", "''")
    options = "FORMAT parquet, COMPRESSION zstd" if file_format == "parquet" else f"FORMAT {file_format}"
    [(rows,)] = connection.execute(f"COPY ({query}) TO '{name}' ({options})", parameters).fetchall()
    return int(rows)
