"""Queries that run at every request, compiled once.

SQLAlchemy builds, keys and wraps a statement anew each time it is executed, which costs several times what SQLite
takes for a point read. A `PreparedSelect` is constant: it is compiled when it is first used, and then goes to the
driver as text. It sees what every other statement of the connection sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
import sqlalchemy as sa

if TYPE_CHECKING:
    from sqlalchemy import BindParameter, ColumnElement, Connection, Select


@dataclass(frozen=True, slots=True)
class _Compiled:
    text: str
    names: tuple[str, ...]
    """Parameters in the order of their places."""
    readers: tuple[tuple[int, Callable[[Any], Any]], ...]
    """What makes Python values of stored ones, by place in the row; columns that need none are left out."""


class PreparedSelect:
    """SELECT that is compiled once. Its only variable parts are ``sa.bindparam`` placeholders."""

    def __init__(self, statement: Select[Any]) -> None:
        self._statement = statement
        self._compiled: _Compiled | None = None

    def rows(self, connection: Connection, **parameters: Any) -> list[list[Any]]:
        """The rows, with the values that the columns' types give. Parameters are numbers, texts, or `listed`."""
        readers = self._prepared(connection).readers
        rows = [list(row) for row in self.stored(connection, **parameters)]
        for row in rows:
            for place, read in readers:
                row[place] = read(row[place])
        return rows

    def stored(self, connection: Connection, **parameters: Any) -> list[tuple[Any, ...]]:
        """The rows as the database keeps them: numbers and texts."""
        if not connection.in_transaction():
            connection.begin()
        cursor = connection.connection.cursor()
        try:
            cursor.execute(*self.bound(connection, parameters))
            return list(cursor.fetchall())
        finally:
            cursor.close()

    def bound(self, connection: Connection, parameters: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """Text and values as the driver of a connection takes them."""
        compiled = self._prepared(connection)
        return compiled.text, [parameters[name] for name in compiled.names]

    def _prepared(self, connection: Connection) -> _Compiled:
        if self._compiled is None:
            self._compiled = _compile(self._statement, connection)
        return self._compiled


def among(column: ColumnElement[Any], values: BindParameter[str] | str) -> ColumnElement[bool]:
    """Whether a column is one of some values, however many: those of `listed`, or a placeholder for them.

    ``IN`` with a parameter for each number is compiled anew for each count of them, and ends at 32,766.
    """
    each = sa.func.json_each(values).table_valued("value")
    return column.in_(sa.select(each.c.value))


def listed(values: Iterable[int] | Iterable[str]) -> str:
    """Numbers or texts as `among` takes them."""
    return orjson.dumps(list(values)).decode()


def _compile(statement: Select[Any], connection: Connection) -> _Compiled:
    dialect = connection.dialect
    compiled = statement.compile(dialect=dialect)
    readers = []
    for place, column in enumerate(statement.selected_columns):
        read = column.type.dialect_impl(dialect).result_processor(dialect, None)
        if read is not None:
            readers.append((place, read))
    return _Compiled(str(compiled), tuple(compiled.positiontup or ()), tuple(readers))
