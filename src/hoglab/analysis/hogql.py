"""The HogQL that metrics may hold: one aggregate over an expression of an event (spec experiment-results 1.6)."""

from __future__ import annotations

from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.query.expressions import read
from hoglab.analysis.query.model import Math
from hoglab.filters import FilterError
from hoglab.hog import nodes

_AGGREGATES = {"sum": Math.SUM, "avg": Math.AVG, "min": Math.MIN, "max": Math.MAX}


def aggregated(text: object, path: str) -> tuple[Math, nodes.Expr | None]:
    """The outer aggregate and what it is taken of; without a known aggregate the sum of the whole.

    None as expression counts events. Raises `DefinitionError`.
    """
    if not isinstance(text, str) or not text.strip():
        raise DefinitionError(f"{path}.math_hogql is required for the math hogql.")
    path = f"{path}.math_hogql"
    tree = parsed(text, path)
    if not isinstance(tree, nodes.Call):
        return Math.SUM, tree
    name = tree.name.lower()
    if name in ("quantile", "median"):
        raise DefinitionError(
            f"{path}: {tree.name}(), at character {tree.start + 1}, of one entity's events is not supported; "
            "see metric_type quantile."
        )
    if name == "count":
        return _count(tree, path)
    kind = _AGGREGATES.get(name)
    if kind is None:
        return Math.SUM, tree
    if len(tree.args) != 1 or tree.distinct:
        raise DefinitionError(f"{path}: {tree.name}(), at character {tree.start + 1}, takes one argument.")
    return kind, tree.args[0]


def parsed(text: str, path: str) -> nodes.Expr:
    """The expression of a text. Raises `DefinitionError`."""
    try:
        return read(text, path)
    except FilterError as error:
        raise DefinitionError(f"{path} {error.message}") from error


def _count(tree: nodes.Call, path: str) -> tuple[Math, nodes.Expr | None]:
    if not tree.args or (isinstance(tree.args[0], nodes.Field) and tree.args[0].chain == ("*",)):
        return Math.TOTAL, None
    if len(tree.args) == 1 and tree.distinct:
        return Math.UNIQUE_VALUE, tree.args[0]
    if len(tree.args) == 1:
        return Math.SUM, nodes.Call(
            tree.start,
            tree.end,
            "if",
            (
                nodes.CompareOperation(tree.start, tree.end, "!=", tree.args[0], nodes.Constant(0, 0, None)),
                nodes.Constant(0, 0, 1),
                nodes.Constant(0, 0, 0),
            ),
        )
    raise DefinitionError(f"{path}: {tree.name}(), at character {tree.start + 1}, takes one argument.")
