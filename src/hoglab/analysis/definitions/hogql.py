"""The HogQL that metrics may hold: one aggregate over an expression of an event (spec experiment-results 1.6)."""

from __future__ import annotations

from dataclasses import dataclass

from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.query.expressions import read
from hoglab.analysis.query.model import Math
from hoglab.filters import FilterError
from hoglab.hog import nodes

_AGGREGATES = {
    "sum": Math.SUM,
    "avg": Math.AVG,
    "min": Math.MIN,
    "max": Math.MAX,
    "uniq": Math.UNIQUE_VALUE,
    "uniqexact": Math.UNIQUE_VALUE,
    "quantile": Math.QUANTILE,
    "median": Math.QUANTILE,
}
_ZERO, _ONE, _NULL = (nodes.Constant(0, 0, value) for value in (0, 1, None))


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Aggregation of an entity's events: ``math`` over ``expression``, or over the events without one.

    ``level`` is the level of a quantile. With ``skips_null`` events without a value are ignored, else they count as
    0.
    """

    math: Math
    expression: nodes.Expr | None
    level: float = 0.5
    skips_null: bool = False


def aggregated(text: object, path: str) -> Aggregate:
    """Return the outer aggregate and its argument; without a known aggregate the sum of the whole expression.

    Raises `DefinitionError`.
    """
    if not isinstance(text, str) or not text.strip():
        raise DefinitionError(f"{path}.math_hogql is required for the math hogql.")
    path = f"{path}.math_hogql"
    tree = parsed(text, path)
    if not isinstance(tree, nodes.Call):
        return Aggregate(Math.SUM, tree)
    name = tree.name.lower()
    plain = name.removesuffix("if")
    if tree.filter_expr is not None or tree.order_by is not None or tree.within_group is not None:
        raise _refused(tree, path, "cannot have a FILTER or an order")
    if tree.params is not None and plain != "quantile":
        raise _refused(tree, path, "takes no parameters")
    if name == "count":
        return _count(tree, path)
    if name in ("countif", "sumif"):
        return Aggregate(Math.SUM, _where(tree, path))
    kind = _AGGREGATES.get(plain)
    if kind is None:
        return Aggregate(Math.SUM, tree)
    if plain != name:
        return _of_some(tree, kind, path)
    if len(tree.args) != 1 or tree.distinct:
        raise _refused(tree, path, "takes one argument")
    if kind is not Math.QUANTILE:
        return Aggregate(kind, tree.args[0])
    return Aggregate(kind, tree.args[0], _level(tree, path))


def parsed(text: str, path: str) -> nodes.Expr:
    """Return the expression of a text. Raises `DefinitionError`."""
    try:
        return read(text, path)
    except FilterError as error:
        raise DefinitionError(f"{path} {error.message}") from error


def _count(tree: nodes.Call, path: str) -> Aggregate:
    if not tree.args or (isinstance(tree.args[0], nodes.Field) and tree.args[0].chain == ("*",)):
        return Aggregate(Math.TOTAL, None)
    if len(tree.args) == 1 and tree.distinct:
        return Aggregate(Math.UNIQUE_VALUE, tree.args[0])
    if len(tree.args) == 1:
        there = nodes.CompareOperation(tree.start, tree.end, "!=", tree.args[0], nodes.Constant(0, 0, None))
        return Aggregate(Math.SUM, _either(tree, there, _ONE))
    raise _refused(tree, path, "takes one argument")


def _where(tree: nodes.Call, path: str) -> nodes.Expr:
    """Return the values of ``countIf(condition)`` or ``sumIf(x, condition)``: 0 where the condition does not hold."""
    *summed, condition = tree.args or (None,)
    if condition is None or tree.distinct or len(summed) != (tree.name.lower() == "sumif"):
        several = "a number and a condition" if tree.name.lower() == "sumif" else "one condition"
        raise _refused(tree, path, f"takes {several}")
    return _either(tree, condition, *summed or [_ONE])


def _of_some(tree: nodes.Call, kind: Math, path: str) -> Aggregate:
    """Return the aggregate of ``avgIf(x, condition)`` and others that ignore events without the condition."""
    if len(tree.args) != 2 or tree.distinct:
        raise _refused(tree, path, "takes a value and a condition")
    value, condition = tree.args
    if kind is Math.UNIQUE_VALUE:
        text, none = (
            nodes.Call(tree.start, tree.end, "toString", (argument,)) for argument in (value, _NULL)
        )
        return Aggregate(kind, _either(tree, condition, text, none))
    level = _level(tree, path) if kind is Math.QUANTILE else 0.5
    number = nodes.Call(tree.start, tree.end, "toFloatOrZero", (value,))
    return Aggregate(kind, _either(tree, condition, number, _NULL), level, skips_null=True)


def _either(
    tree: nodes.Call, condition: nodes.Expr, value: nodes.Expr, other: nodes.Expr = _ZERO
) -> nodes.Expr:
    """Return an expression for the value where the condition holds, else for the other one."""
    return nodes.Call(tree.start, tree.end, "if", (condition, value, other))


def _level(tree: nodes.Call, path: str) -> float:
    """Read the level of ``quantile(0.9)(x)``; without a level the median."""
    if not tree.params:
        return 0.5
    match tree.params:
        case (nodes.Constant(value=int() | float() as level),) if (
            not isinstance(level, bool) and 0 <= level <= 1
        ):
            return float(level)
    raise _refused(tree, path, "takes one level from 0 to 1")


def _refused(tree: nodes.Call, path: str, reason: str) -> DefinitionError:
    return DefinitionError(f"{path}: {tree.name}(), at character {tree.start + 1}, {reason}.")
