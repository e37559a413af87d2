"""The nodes of SQL inside Hog: the parts of `(select ...)` and `sql(...)` besides ordinary expressions.

A running program never executes SQL. It carries queries as data, into which `hoglab.hog.compiler.lower` turns these
nodes; the fields are in the order of that data. spec: hog-language 4, 6.11.
"""

from __future__ import annotations

from dataclasses import dataclass

from hoglab.hog.nodes import Constant, Expr, Node, OrderExpr


@dataclass(frozen=True, slots=True, eq=False)
class CTE(Node):
    """One name of a `with` clause; `cte_type` is `subquery` (`x as (select ...)`) or `column` (`1 as x`)."""

    name: str
    expr: Expr
    cte_type: str
    recursive: bool = False
    materialized: bool | None = None
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LimitByExpr(Node):
    """`limit n [offset offset_value] by exprs`."""

    n: Expr
    exprs: tuple[Expr, ...]
    offset_value: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RatioExpr(Node):
    """Ratio `left` or `left / right`: the share of a table that a sample takes."""

    left: Constant
    right: Constant | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SampleExpr(Node):
    sample_value: RatioExpr | Expr
    offset_value: RatioExpr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class JoinConstraint(Node):
    """Condition of a join; `constraint_type` is `ON` or `USING`."""

    expr: Expr
    constraint_type: str


@dataclass(frozen=True, slots=True, eq=False)
class JoinExpr(Node):
    """A table of a `from` clause, and the next table joined to it."""

    join_type: str | None
    table: Expr
    table_args: tuple[Expr, ...] | None = None
    alias: str | None = None
    column_aliases: tuple[str, ...] | None = None
    table_final: bool = False
    next_join: JoinExpr | None = None
    constraint: JoinConstraint | None = None
    sample: SampleExpr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class WindowFrameExpr(Node):
    """Bound of a window; `frame_type` is `CURRENT ROW`, `PRECEDING` or `FOLLOWING`; without a value it is unbounded."""

    frame_type: str
    frame_value: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class WindowExpr(Node):
    partition_by: tuple[Expr, ...] | None = None
    order_by: tuple[OrderExpr, ...] | None = None
    frame_method: str | None = None
    frame_start: WindowFrameExpr | None = None
    frame_end: WindowFrameExpr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class WindowFunction(Expr):
    """`name(exprs)(args) over (...)`; `args` only where there are two groups of arguments."""

    name: str
    exprs: tuple[Expr, ...]
    args: tuple[Expr, ...] | None = None
    over_expr: WindowExpr | None = None
    over_identifier: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class NamedWindow(Node):
    """One entry of a `window` clause."""

    name: str
    window: WindowExpr


@dataclass(frozen=True, slots=True, eq=False)
class GroupingSet(Expr):
    exprs: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ColumnsExpr(Expr):
    """`columns('regex')`, `columns(a, b)`, `* exclude (a)`."""

    regex: str | None = None
    columns: tuple[Expr, ...] | None = None
    all_columns: bool = False
    exclude: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PositionalRef(Expr):
    """`#1`: a column by its place."""

    index: int


@dataclass(frozen=True, slots=True, eq=False)
class IsDistinctFrom(Expr):
    """`a is [not] distinct from b`."""

    left: Expr
    right: Expr
    negated: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SelectQuery(Expr):
    ctes: tuple[CTE, ...] | None
    select: tuple[Expr, ...]
    distinct: bool | None = None
    select_from: JoinExpr | None = None
    array_join_op: str | None = None
    array_join_list: tuple[Expr, ...] | None = None
    window_exprs: tuple[NamedWindow, ...] | None = None
    where: Expr | None = None
    prewhere: Expr | None = None
    group_by: tuple[Expr, ...] | None = None
    group_by_mode: str | None = None
    having: Expr | None = None
    qualify: Expr | None = None
    order_by: tuple[OrderExpr, ...] | None = None
    limit: Expr | None = None
    limit_by: LimitByExpr | None = None
    limit_with_ties: bool | None = None
    limit_percent: bool | None = None
    offset: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SelectSetNode(Node):
    """One further query; `set_operator` says how it is combined with the query before."""

    select_query: Expr
    set_operator: str


@dataclass(frozen=True, slots=True, eq=False)
class SelectSetQuery(Expr):
    """Queries combined by `union`, `intersect` or `except`."""

    initial_select_query: Expr
    subsequent_select_queries: tuple[SelectSetNode, ...]


QUERIES = (SelectQuery, SelectSetQuery)
