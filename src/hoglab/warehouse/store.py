"""The queries of warehouse tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from hoglab.storage.database.tables import warehouse_table
from hoglab.storage.table_files import ColumnType, FileFormat, FileTable


@dataclass(frozen=True, slots=True)
class TableRow:
    """One table: the columns of its row."""

    id: str
    project_id: int
    name: str
    format: str
    url_pattern: str
    columns: list[list[str]]
    created_by_id: int | None
    created_at: datetime
    updated_at: datetime

    @property
    def table(self) -> FileTable:
        """The table in the form with which results are computed."""
        columns = tuple((name, ColumnType(kind)) for name, kind in self.columns)
        return FileTable(self.name, FileFormat(self.format), self.url_pattern, columns)


_COLUMNS = tuple(warehouse_table.c[field.name] for field in fields(TableRow))


def by_id(connection: Connection, project_id: int, table_id: str) -> TableRow | None:
    return _one(connection, project_id, warehouse_table.c.id == table_id)


def by_name(connection: Connection, project_id: int, name: str) -> TableRow | None:
    return _one(connection, project_id, warehouse_table.c.name == name)


def _one(connection: Connection, project_id: int, condition: sa.ColumnElement[bool]) -> TableRow | None:
    statement = sa.select(*_COLUMNS).where(warehouse_table.c.project_id == project_id, condition)
    row = connection.execute(statement).one_or_none()
    return None if row is None else TableRow(*row)


def named(connection: Connection, project_id: int, names: Collection[str]) -> dict[str, FileTable]:
    """Return the tables of a project that have one of some names."""
    if not names:
        return {}
    statement = sa.select(*_COLUMNS).where(
        warehouse_table.c.project_id == project_id, warehouse_table.c.name.in_(names)
    )
    return {row.name: TableRow(*row).table for row in connection.execute(statement)}


def list_tables(
    connection: Connection, project_id: int, *, search: str | None = None, limit: int, offset: int
) -> tuple[list[TableRow], int]:
    """Return tables, newest first, and how many there are. ``search``: a part of the name."""
    matching = sa.select(*_COLUMNS).where(warehouse_table.c.project_id == project_id)
    if search:
        matching = matching.where(warehouse_table.c.name.icontains(search, autoescape=True))
    count = connection.scalar(sa.select(sa.func.count()).select_from(matching.subquery())) or 0
    newest_first = (warehouse_table.c.created_at.desc(), warehouse_table.c.id.desc())
    page = matching.order_by(*newest_first).limit(limit).offset(offset)
    return [TableRow(*row) for row in connection.execute(page)], count


def count_tables(connection: Connection, project_id: int) -> int:
    statement = sa.select(sa.func.count()).select_from(warehouse_table)
    return connection.scalar(statement.where(warehouse_table.c.project_id == project_id)) or 0


def insert_table(connection: Connection, values: Mapping[str, Any]) -> TableRow:
    statement = sa.insert(warehouse_table).values(**values).returning(*_COLUMNS)
    return TableRow(*connection.execute(statement).one())


def update_table(connection: Connection, table_id: str, values: Mapping[str, Any]) -> TableRow:
    statement = sa.update(warehouse_table).where(warehouse_table.c.id == table_id).values(**values)
    return TableRow(*connection.execute(statement.returning(*_COLUMNS)).one())


def delete_table(connection: Connection, table_id: str) -> None:
    connection.execute(sa.delete(warehouse_table).where(warehouse_table.c.id == table_id))
