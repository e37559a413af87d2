"""Inserting rows, as far as engines differ in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.dialects import postgresql, sqlite

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import ColumnElement, Connection, Table

_SKIP = text("SELECT setval(pg_get_serial_sequence(:table, 'id'), :last)")
_INSERT = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def upsert(
    connection: Connection,
    table: Table,
    rows: Any,
    update: Iterable[str],
    where: ColumnElement[bool] | None = None,
) -> None:
    """Insert one row or several; those whose primary key is known get new values of the columns ``update``.

    Of known ones only those are changed that meet ``where``, if there is such a condition.
    """
    statement: Any = _INSERT[connection.dialect.name](table)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=list(table.primary_key.columns),
            set_={name: statement.excluded[name] for name in update},
            where=where,
        ),
        rows,
    )


def skip_ids(connection: Connection, table: Table, last: int) -> None:
    """Make the ids of new rows follow a chosen one, as SQLite does by itself. There must be no greater id yet."""
    if connection.dialect.name == "postgresql":
        connection.execute(_SKIP, {"table": table.name, "last": last})
