"""The numbers that SQLite gave out for keys that count up and are never used again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection


def last_number(connection: Connection, table: str, column: str) -> int:  # noqa: ARG001 - a table has one such key
    """Return the last number that a table gave; 0 for none."""
    row = connection.exec_driver_sql("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).first()
    return 0 if row is None else int(row[0])


def go_on_after(connection: Connection, table: str, column: str, number: int) -> None:
    """Let the next number of a column be larger than ``number``, in a transaction; rowids follow the largest one."""
    if column == "rowid":
        return
    changed = connection.exec_driver_sql("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (number, table))
    if not changed.rowcount:
        connection.exec_driver_sql("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, number))
