"""Rows of tables beside the events, joined with exposed entities by a key (spec experiment-results 3.7).

Names of columns are quoted, files and values are bound, and everything else of a table in a metric goes through the
same translation as HogQL over events.
"""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from hoglab.analysis.query.days import micros
from hoglab.analysis.query.expressions import ExpressionKind, Sql, number_of, text_of
from hoglab.analysis.query.model import Math, TableSource, Value
from hoglab.analysis.query.scope import Scope
from hoglab.filters.model import FilterError, PropertyFilter
from hoglab.filters.sql import TRUE, ComputedField, FilterField
from hoglab.hog import nodes
from hoglab.storage.table_files import ColumnType

_OF_ROWS = frozenset({"event", "data_warehouse"})
"""Types of filters that are about the row itself."""
_NUMBERS = frozenset({ColumnType.INTEGER, ColumnType.FLOAT, ColumnType.BOOLEAN})
_MOMENTS = frozenset({ColumnType.DATETIME, ColumnType.DATE})


@dataclass(frozen=True)
class TableRows:
    """Expressions over a row of one table. Raises `FilterError` for columns that are missing or do not fit."""

    scope: Scope
    source: TableSource
    used: dict[str, None] = field(default_factory=dict)
    """Columns used so far."""

    def key(self) -> str:
        """Return the key that the row is joined by, as text."""
        return self._text(self.source.join_key.expression)

    def ts(self) -> str:
        """Return the time of the row, in microseconds since the epoch."""
        name = self.source.timestamp
        kind = self._type(name)
        if kind not in _MOMENTS:
            raise FilterError(f"the column {name} of {self._name} is {kind}, not a time", "timestamp_field")
        return self.scope.dialect.moment_of_column(self._column(name))

    def matches(self, source: TableSource) -> str:
        """Return the condition that the filters of a source, of this table, let the row through."""
        return self.scope.filters(source.filters, self._filter_field)

    def value(self, value: Value) -> str:
        """Return the contribution of the row to a value; NULL where it has no number."""
        expression = value.expression
        match value.math:
            case Math.UNIQUE_SESSION | Math.UNIQUE_GROUP:
                raise FilterError(f"{value.math} cannot be counted in rows of a table", "math")
            case Math.UNIQUE_PERSON:
                return self.key()
            case Math.TOTAL:
                return "1"
            case Math.UNIQUE_VALUE if expression is not None:
                return self._text(expression)
        if expression is None:
            return "1"
        if isinstance(expression, nodes.Field):
            name = self._named(expression.chain)
            if self._type(name) not in _NUMBERS:
                raise FilterError(
                    f"the column {name} of {self._name} is {self._type(name)}, not a number", "math_property"
                )
        return number_of(expression, self.scope, self._name, self._in_expressions)

    def define(self, name: str, columns: Mapping[str, str], condition: str = TRUE) -> str:
        """Return a subquery of the rows that meet a condition, with these expressions as columns."""
        shown = ", ".join(f"{text} AS {column}" for column, text in columns.items())
        files = self.scope.question.files.get(self.source.table.name, ())
        relation = self.scope.dialect.table(files, self.source.table, list(self.used), self.scope.parameters)
        return self.scope.define(name, f"SELECT {shown} FROM {relation} AS rows_of_table WHERE {condition}")

    def define_owned(
        self,
        name: str,
        columns: Mapping[str, str],
        which: str,
        units: str,
        since: datetime,
        before: datetime,
        condition: str = TRUE,
    ) -> str:
        """Define ``<name>_row(entity, ts, …)``: the rows of ``[since, before)`` that belong to each of ``units``.

        ``columns`` and ``which`` are over the row, ``condition`` over ``<name>_table.ts`` and columns of ``units``.
        """
        table = self.define(f"{name}_table", {"key": self.key(), "ts": self.ts(), **columns}, which)
        shown = "".join(f", {table}.{column} AS {column}" for column in columns)
        return self.scope.define(
            f"{name}_row",
            f"SELECT {units}.entity AS entity, {table}.ts AS ts{shown} "
            f"FROM {table} INNER JOIN {units} ON {units}.{self.scope.key_of(self.source)} = {table}.key "
            f"WHERE {table}.key <> '' AND {between(table, since, before)} AND {condition}",
        )

    def define_joined(
        self, value: Value, name: str, units: str, since: datetime, before: datetime, condition: str
    ) -> str:
        """Define ``<name>_row(entity, ts, x)``: the contribution of each row to the entities that it belongs to.

        ``condition`` is over ``<name>_table.ts`` and columns of ``units``.
        """
        columns, which = {"x": self.value(value)}, self.matches(self.source)
        return self.define_owned(name, columns, which, units, since, before, condition)

    @property
    def _name(self) -> str:
        return f"the table {self.source.table.name}"

    def _type(self, name: str) -> ColumnType:
        kind = self.source.table.type_of(name)
        if kind is None:
            raise FilterError(f"{self._name} has no column {name}", "")
        if kind is ColumnType.UNKNOWN:
            raise FilterError(f"the column {name} of {self._name} has a type that metrics cannot use", "")
        return kind

    def _column(self, name: str) -> str:
        self.used[name] = None
        return self.scope.dialect.quoted(name)

    def _named(self, chain: Sequence[str | int]) -> str:
        """Return the name of a column in an expression: alone, or after the name of the table."""
        name = ".".join(map(str, chain))
        own = f"{self.source.table.name}."
        return name.removeprefix(own) if self.source.table.type_of(name) is None else name

    def _text(self, expression: nodes.Expr) -> str:
        if isinstance(expression, nodes.Field):
            return self._text_of_column(self._named(expression.chain))
        return text_of(expression, self.scope, self._name, self._in_expressions)

    def _text_of_column(self, name: str) -> str:
        column = self._column(name)
        match self._type(name):
            case ColumnType.STRING:
                return column
            case ColumnType.FLOAT:
                return self.scope.dialect.text_of_number(column)
            case ColumnType.BOOLEAN:
                return self.scope.dialect.text_of_truth(column)
        return f"CAST({column} AS VARCHAR)"

    def _in_expressions(self, chain: Sequence[str | int]) -> Sql:
        name = self._named(chain)
        match self._type(name):
            case ColumnType.INTEGER | ColumnType.FLOAT:
                return Sql(f"CAST({self._column(name)} AS DOUBLE)", ExpressionKind.NUMBER, plain=True)
            case ColumnType.BOOLEAN:
                return Sql(self._column(name), ExpressionKind.TRUTH, plain=True)
        return Sql(self._text_of_column(name), ExpressionKind.TEXT, plain=True)

    def _filter_field(self, condition: PropertyFilter) -> FilterField:
        if condition.type not in _OF_ROWS:
            raise FilterError(f"filters of type {condition.type} cannot be used with tables", condition.key)
        name = self._named((condition.key,))
        if self._type(name) is ColumnType.DATETIME:
            # With its offset: the engines' own texts are not alike.
            dialect = self.scope.dialect
            text = dialect.text_of_moment(dialect.moment_of_column(self._column(name)))
        else:
            text = self._text_of_column(name)
        if self._type(name) in (ColumnType.INTEGER, ColumnType.FLOAT):
            number = f"CAST({self._column(name)} AS DOUBLE)"
            return ComputedField(text, number, number)
        return ComputedField(text, self.scope.dialect.number(text))


def between(table: str, since: datetime, before: datetime) -> str:
    """Return rows of a subquery with ``ts`` in ``[since, before)``."""
    return f"{table}.ts >= {micros(since)} AND {table}.ts < {micros(before)}"
