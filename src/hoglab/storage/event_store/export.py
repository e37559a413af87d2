"""Copying events out of a store that no server has open."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import duckdb

from hoglab.storage.event_store import EventStoreUnavailableError
from hoglab.storage.event_store.duckdb_file import first_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

MEMORY = "512MB"
_COLUMNS = """
    events.uuid, event, properties, elements_chain, distinct_id, project_id AS team_id, person_id, person_properties,
    timestamp, captured_at AS created_at
"""
"""Named as in PostHog's batch exports; persons as they were when the events were ingested, after merges."""


@contextmanager
def file_engine(database: str = ":memory:", **config: Any) -> Iterator[duckdb.DuckDBPyConnection]:
    """An engine with bounded memory to read and write files with, for commands."""
    with closing(duckdb.connect(database, config={"memory_limit": MEMORY, **config})) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_progress_bar = false")  # it would be on our standard output
        yield connection


def copy_events(
    store: Path,
    target: Path,
    *,
    file_format: str,
    project_id: int,
    event: str | None = None,
    after: datetime | None = None,
    before: datetime | None = None,
) -> int:
    """Write the events of a project into a new file, in the order of their ingestion; how many there were.

    ``file_format`` is parquet, csv or json (lines). ``after`` is inclusive and ``before`` is not. Memory is
    bounded. Raises `EventStoreUnavailableError` when the store cannot be read or the file cannot be written.
    """
    conditions = {
        "project_id = $project_id": project_id,
        "event = $event": event,
        "timestamp >= $after": after,
        "timestamp < $before": before,
    }
    wanted = {condition: value for condition, value in conditions.items() if value is not None}
    parameters: dict[str, Any] = {condition.rpartition("$")[2]: value for condition, value in wanted.items()}
    where = " AND ".join(wanted)
    query = f"SELECT {_COLUMNS} FROM resolved_events AS events WHERE {where}"  # noqa: S608 - our own words
    try:
        with file_engine(str(store)) as connection:
            return copy_query(connection, query, parameters, target, file_format)
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
