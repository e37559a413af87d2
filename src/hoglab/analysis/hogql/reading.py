"""A ``HogQLQuery`` as data: its text parsed, and every clause that cannot be answered refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.query.expressions import MAX_LENGTH
from hoglab.hog import HogSyntaxError, nodes, parse_expression, sql_nodes

DEFAULT_ROWS = 100
"""Number of rows of a query without a limit, as PostHog answers it."""
MAX_ROWS = 10_000
"""Maximum number of rows of an answer."""
MAX_OFFSET = 1_000_000
"""Maximum number of rows that a query passes over."""
MAX_COLUMNS = 100
"""Maximum number of columns of an answer."""

WRAPPERS = ("DataVisualizationNode", "InsightVizNode")
"""Kinds whose ``source`` is the query that is asked."""

_REFUSED = {
    "ctes": "WITH",
    "array_join_op": "ARRAY JOIN",
    "window_exprs": "WINDOW",
    "prewhere": "PREWHERE",
    "group_by_mode": "ROLLUP, CUBE or GROUPING SETS",
    "qualify": "QUALIFY",
    "limit_by": "LIMIT BY",
    "limit_with_ties": "WITH TIES",
    "limit_percent": "a limit in percent",
}
"""Clauses that are parsed and not answered, by the field of the parsed query that holds them."""


@dataclass(frozen=True, slots=True)
class HogqlQuery:
    """The clauses of a query. Names of events in them are those of ``table``, its alias or nothing."""

    values: Mapping[str, Any]
    """Values of placeholders, by name."""
    columns: tuple[tuple[str, nodes.Expr], ...]
    """Names of the columns of the answer, and what they hold; for ``*`` a field of that name."""
    aliases: Mapping[str, nodes.Expr]
    table: str
    distinct: bool
    where: nodes.Expr | None
    group_by: tuple[nodes.Expr, ...]
    having: nodes.Expr | None
    order_by: tuple[tuple[nodes.Expr, bool], ...]
    """Keys of the order, and whether each descends."""
    limit: int
    offset: int


def unwrapped(query: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the query that is asked: the ``source`` of a node that says how to show its answer.

    Raises `DefinitionError` for such a node without a query.
    """
    if query.get("kind") not in WRAPPERS:
        return query
    source = query.get("source")
    if not isinstance(source, Mapping):
        raise DefinitionError("query.source must be a query")
    return source


def read_hogql(query: Mapping[str, Any]) -> HogqlQuery:
    """Read the text of a ``HogQLQuery``. Raises `DefinitionError`, with the character where there is one."""
    text = query.get("query")
    if not isinstance(text, str) or not text.strip():
        raise DefinitionError("query.query must be the text of a SELECT")
    for name in ("filters", "variables"):
        if query.get(name):
            raise DefinitionError(f"query.{name} cannot be used: write the condition into WHERE")
    values = query.get("values")
    if values is not None and not isinstance(values, Mapping):
        raise DefinitionError("query.values must be an object of the values of placeholders")
    opened = f"({text.strip().removesuffix(';')}\n)"
    select = _parsed(text, opened)
    for field, clause in _REFUSED.items():
        if getattr(select, field):
            raise DefinitionError(f"query.query: {clause} cannot be used")
    columns = tuple(_column(opened, expression) for expression in select.select)
    if len(columns) > MAX_COLUMNS:
        raise DefinitionError(f"query.query: a query can have at most {MAX_COLUMNS} columns")
    return HogqlQuery(
        values or {},
        columns,
        {part.alias: part.expr for part in select.select if isinstance(part, nodes.Alias)},
        _table(select.select_from),
        bool(select.distinct),
        select.where,
        tuple(_placed(part, columns) for part in select.group_by or ()),
        select.having,
        tuple((_placed(part.expr, columns), part.order == "DESC") for part in select.order_by or ()),
        min(_number(select.limit, "LIMIT", DEFAULT_ROWS), MAX_ROWS),
        _number(select.offset, "OFFSET", 0),
    )


def _parsed(text: str, opened: str) -> sql_nodes.SelectQuery:
    if len(text) > MAX_LENGTH:
        raise DefinitionError(f"query.query can have at most {MAX_LENGTH:,} characters")
    begin = len(text) - len(text.lstrip())
    try:
        tree = parse_expression(opened)
    except HogSyntaxError as error:
        place = max(error.offset - 1, 0) + begin + 1
        raise DefinitionError(f"query.query cannot be read at character {place}: {error}") from error
    if not isinstance(tree, sql_nodes.SelectQuery):
        raise DefinitionError("query.query must be one SELECT, without UNION, INTERSECT or EXCEPT")
    return tree


def _table(source: sql_nodes.JoinExpr | None) -> str:
    """Return the name by which a query calls the events."""
    if source is None:
        raise DefinitionError("query.query: FROM events is missing")
    if source.next_join is not None:
        raise DefinitionError("query.query: JOIN cannot be used; events have person.properties already")
    if source.sample is not None or source.table_final or source.table_args or source.column_aliases:
        raise DefinitionError("query.query: SAMPLE, FINAL and arguments of tables cannot be used")
    table = source.table
    if not isinstance(table, nodes.Field) or table.chain != ("events",):
        name = ".".join(table.chain) if isinstance(table, nodes.Field) else "a subquery"
        raise DefinitionError(f"query.query: FROM must name events; {name} cannot be read")
    return source.alias or "events"


def _number(expression: nodes.Expr | None, clause: str, default: int) -> int:
    if expression is None:
        return default
    value = expression.value if isinstance(expression, nodes.Constant) else None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_OFFSET:
        raise DefinitionError(f"query.query: {clause} must be a whole number from 0 to {MAX_OFFSET:,}")
    return value


def _column(text: str, expression: nodes.Expr) -> tuple[str, nodes.Expr]:
    """Return the name of a column of the answer, and what it holds; ``text`` is what was parsed."""
    match expression:
        case nodes.Alias(alias=name, expr=inner):
            return name, inner
        case nodes.Field(chain=chain):
            return chain[-1], expression
    return " ".join(text[expression.start : expression.end].split()), expression


def _placed(expression: nodes.Expr, columns: Sequence[tuple[str, nodes.Expr]]) -> nodes.Expr:
    """Return the column that a number means in GROUP BY and ORDER BY; other expressions as they are."""
    if isinstance(expression, nodes.Constant) and type(expression.value) is int:
        if not 1 <= expression.value <= len(columns):
            raise DefinitionError(f"query.query: there is no column {expression.value}")
        return columns[expression.value - 1][1]
    return expression
