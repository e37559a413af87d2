"""Queries that run at every request, compiled once.

SQLAlchemy builds, keys and wraps a statement each time it is executed, which costs several times what SQLite
takes for a point read. A `PreparedSelect` is constant: it is compiled when it is first used, and then goes to the
driver as text. It sees what every other statement of the connection sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

if TYPE_CHECKING:
    from sqlalchemy import BindParameter, ColumnElement, Connection, Select
    from sqlalchemy.sql.compiler import SQLCompiler


@dataclass(frozen=True, slots=True)
class _Compiled:
    text: str
    names: tuple[str, ...] | None
    """Parameters in the order of their places; None where the text has their names."""
    constants: Mapping[str, Any]
    """Values that the statement has itself, by the names of their parameters."""
    readers: tuple[tuple[int, Callable[[Any], Any]], ...]
    """Converters of stored values to Python, by place in the row; columns that need none are left out."""


class PreparedSelect:
    """SELECT that is compiled once. Its only variable parts are ``sa.bindparam`` placeholders."""

    def __init__(self, statement: Select[Any]) -> None:
        self._statement = statement
        self._compiled: dict[str, _Compiled] = {}  # by engine

    def rows(self, connection: Connection, **parameters: Any) -> list[list[Any]]:
        """Return the rows, with the values that the columns' types give. Parameters are numbers, texts, or `listed`."""
        readers = self._prepared(connection).readers
        rows = [list(row) for row in self.stored(connection, **parameters)]
        for row in rows:
            for place, read in readers:
                row[place] = read(row[place])
        return rows

    def stored(self, connection: Connection, **parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows as the database keeps them: numbers and texts."""
        if not connection.in_transaction():
            connection.begin()
        cursor = connection.connection.cursor()
        try:
            cursor.execute(*self.bound(connection, parameters))
            return list(cursor.fetchall())
        finally:
            cursor.close()

    def bound(
        self, connection: Connection, parameters: Mapping[str, Any]
    ) -> tuple[str, list[Any] | Mapping[str, Any]]:
        """Return text and values as the driver of a connection takes them."""
        compiled = self._prepared(connection)
        if compiled.names is None:
            return compiled.text, {**compiled.constants, **parameters}
        return compiled.text, [parameters[name] for name in compiled.names]

    def _prepared(self, connection: Connection) -> _Compiled:
        compiled = self._compiled.get(connection.dialect.name)
        if compiled is None:
            compiled = self._compiled[connection.dialect.name] = _compile(self._statement, connection)
        return compiled


def among(column: ColumnElement[Any], values: BindParameter[str] | str) -> ColumnElement[bool]:
    """Return whether a column is one of some values, however many: those of `listed`, or a placeholder for them.

    ``IN`` with a parameter for each number is compiled once for each count of them, and ends at 32,766.
    """
    return _Among(column, sa.literal(values) if isinstance(values, str) else values)


class _Among(FunctionElement[bool]):
    """A column and a JSON list."""

    type = sa.Boolean()
    inherit_cache = True


@compiles(_Among)
def _with_rows(element: _Among, compiler: SQLCompiler, **keywords: Any) -> str:
    column, values = (compiler.process(clause, **keywords) for clause in element.clauses)
    return f"{column} IN (SELECT value FROM json_each({values}))"  # noqa: S608


@compiles(_Among, "postgresql")
def _with_array(element: _Among, compiler: SQLCompiler, **keywords: Any) -> str:
    column, values = (compiler.process(clause, **keywords) for clause in element.clauses)
    kind = "bigint" if isinstance(next(iter(element.clauses)).type, sa.Integer) else "text"
    return f"{column} = ANY (ARRAY(SELECT json_array_elements_text(CAST({values} AS json)))::{kind}[])"


def listed(values: Iterable[int] | Iterable[str]) -> str:
    """Return numbers or texts as `among` takes them."""
    return orjson.dumps(list(values)).decode()


def _compile(statement: Select[Any], connection: Connection) -> _Compiled:
    dialect = connection.dialect
    compiled = statement.compile(dialect=dialect)
    readers = []
    for place, column in enumerate(statement.selected_columns):
        read = column.type.dialect_impl(dialect).result_processor(dialect, None)
        if read is not None:
            readers.append((place, read))
    names = tuple(compiled.positiontup or ()) if compiled.positional else None
    return _Compiled(str(compiled), names, compiled.params, tuple(readers))
