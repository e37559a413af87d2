"""The numbers that PostgreSQL gave out for keys that count up and are never used again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

if TYPE_CHECKING:
    from sqlalchemy import Connection

_SEQUENCE = sa.text("SELECT pg_get_serial_sequence(quote_ident(:table), :column)")
_GO_ON = sa.text("SELECT setval(CAST(:sequence AS regclass), :number)")


def last_number(connection: Connection, table: str, column: str) -> int:
    """Return the last number that a table gave; 0 for none."""
    last = (
        f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {_sequence(connection, table, column)}"  # noqa: S608
    )
    return int(connection.exec_driver_sql(last).scalar_one())


def go_on_after(connection: Connection, table: str, column: str, number: int) -> None:
    """Let the next number of a column be larger than ``number``, in a transaction."""
    if number:
        connection.execute(_GO_ON, {"sequence": _sequence(connection, table, column), "number": number})


def _sequence(connection: Connection, table: str, column: str) -> str:
    return str(connection.scalar(_SEQUENCE, {"table": table, "column": column}))
