"""Short names for building syntax trees. What is built here stands in no text, so every offset is 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoglab.hog import nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hoglab.hog.nodes import Expr

Scalar = bool | int | float | str | None


def const(value: Scalar) -> nodes.Constant:
    return nodes.Constant(0, 0, value)


TRUE = const(True)
FALSE = const(False)
NULL = const(None)


def field(*chain: str) -> nodes.Field:
    return nodes.Field(0, 0, chain)


def compare(op: str, left: Expr, right: Expr) -> nodes.CompareOperation:
    return nodes.CompareOperation(0, 0, op, left, right)


def call(name: str, *args: Expr) -> nodes.Call:
    return nodes.Call(0, 0, name, args)


def concat(*exprs: Expr) -> nodes.Concat:
    return nodes.Concat(0, 0, exprs)


def lambda_(parameter: str, body: Expr) -> nodes.Lambda:
    return nodes.Lambda(0, 0, (parameter,), body)


def array(items: Sequence[Scalar]) -> nodes.Array:
    return nodes.Array(0, 0, tuple(const(item) for item in items))


def tuple_(items: Sequence[Scalar]) -> nodes.Tuple:
    return nodes.Tuple(0, 0, tuple(const(item) for item in items))


def negate(expr: Expr) -> nodes.Not:
    return nodes.Not(0, 0, expr)


def all_of(exprs: Sequence[Expr]) -> Expr:
    """Return the conjunction: true of nothing, the expression itself of one."""
    if not exprs:
        return TRUE
    return exprs[0] if len(exprs) == 1 else nodes.And(0, 0, tuple(exprs))


def any_of(exprs: Sequence[Expr]) -> Expr:
    """Return the disjunction: false of nothing, the expression itself of one."""
    if not exprs:
        return FALSE
    return exprs[0] if len(exprs) == 1 else nodes.Or(0, 0, tuple(exprs))
