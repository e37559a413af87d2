"""Installation that a ClickHouse database belongs to: the newest row counts (see `hoglab.storage.identity`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoglab.storage.event_store.clickhouse.schema import INSTALLATION

if TYPE_CHECKING:
    from hoglab.storage.event_store.clickhouse.connection import Connection


def identity(connection: Connection) -> tuple[str, int, int] | None:
    """Return installation id, generation and number of starts; None for a database that has none yet."""
    sql = f"SELECT id, generation, starts FROM {INSTALLATION} ORDER BY version DESC LIMIT 1"  # noqa: S608
    rows = connection.rows(sql)
    return (str(rows[0][0]), int(rows[0][1]), int(rows[0][2])) if rows else None


def set_identity(connection: Connection, installation_id: str, generation: int, starts: int) -> None:
    """Write them, durably."""
    types = {"id": "String", "generation": "Int64", "starts": "Int64", "version": "Int64"}
    [(newest,)] = connection.rows(f"SELECT max(version) FROM {INSTALLATION}")  # noqa: S608
    row = (installation_id, generation, starts, newest + 1)
    connection.insert(INSTALLATION, types, dict(zip(types, ([value] for value in row), strict=True)))
