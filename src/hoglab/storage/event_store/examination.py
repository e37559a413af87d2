"""Reading a store through, to see that it can be read: the engine verifies a checksum of every block it loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hoglab.storage.event_store import (
    EventStoreUnavailableError,
    QueryError,
    QueryMemoryError,
    QueryTimeoutError,
)

if TYPE_CHECKING:
    from hoglab.storage.event_store import EventStore

_TABLES = (
    "SELECT table_name FROM duckdb_tables() "
    "WHERE database_name = current_database() AND schema_name = 'main' ORDER BY table_name"
)
_COLUMNS = (
    "SELECT column_name FROM duckdb_columns() WHERE database_name = current_database() AND schema_name = 'main' "
    "AND table_name = $table ORDER BY column_index"
)


class StoreReport(msgspec.Struct, frozen=True):
    """Contents of a store. ``problems``: what could not be read, a line each."""

    position: int
    rows: dict[str, int]
    identity: tuple[str, int, int] | None
    problems: list[str]


def examine(store: EventStore, *, timeout_s: float) -> StoreReport:
    """Count the rows of every table, and read every value of every column.

    Raises `EventStoreUnavailableError` for a store that answers nothing.
    """
    rows: dict[str, int] = {}
    problems: list[str] = []
    with store.reader() as reader:
        for (table,) in reader.execute(_TABLES):
            try:
                [(count,)] = reader.execute(f'SELECT count(*) FROM "{table}"', timeout_s=timeout_s)  # noqa: S608
                rows[table] = int(count)
                for (column,) in reader.execute(
                    _COLUMNS, {"table": table}
                ):  # one at a time, so that the one that is damaged is named
                    reader.execute(f'SELECT bit_xor(hash("{column}")) FROM "{table}"', timeout_s=timeout_s)  # noqa: S608
            except (QueryError, QueryMemoryError, QueryTimeoutError, EventStoreUnavailableError) as error:
                problems.append(f"the table {table} cannot be read: {error}")
    return StoreReport(store.position(), rows, store.identity(), problems)
