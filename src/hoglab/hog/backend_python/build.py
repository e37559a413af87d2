"""Building blocks for Python syntax trees.

The backend emits `ast` objects, never text: user strings can only become constants, and no user text ever becomes
an identifier.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LOAD = ast.Load()
_STORE = ast.Store()


class Name(ast.Name):
    """A name. Looking up a variable cannot fail, so that its place is not needed: all names share one."""

    lineno = end_lineno = 1
    col_offset = end_col_offset = 0


class Constant(ast.Constant):
    """A constant, whose place is not needed; named as its base, by which `ast.unparse` recognises it."""

    lineno = end_lineno = 1
    col_offset = end_col_offset = 0


LEAVES = frozenset({Name, Constant})
"""Nodes that need no position of their own."""


def const(value: Any) -> ast.Constant:
    return Constant(value)


@lru_cache(maxsize=4_096)
def name(identifier: str) -> ast.Name:
    """Build a variable that is read; equal names share one node."""
    return Name(identifier, _LOAD)


def store(identifier: str) -> ast.Name:
    return Name(identifier, _STORE)


def walrus(identifier: str, value: ast.expr) -> ast.expr:
    """Build `(identifier := value)`."""
    return ast.NamedExpr(store(identifier), value)


def call(function: str | ast.expr, *args: ast.expr) -> ast.expr:
    callee = name(function) if isinstance(function, str) else function
    return ast.Call(callee, list(args), [])


def method(subject: ast.expr, attribute: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(subject, attribute, _LOAD), list(args), [])


def choose(test: ast.expr, then: ast.expr, other: ast.expr) -> ast.expr:
    """Build `then if test else other`."""
    return ast.IfExp(test, then, other)


def is_class(value: ast.expr, cls: str) -> ast.expr:
    """Build `value.__class__ is cls`."""
    return ast.Compare(ast.Attribute(value, "__class__", _LOAD), [ast.Is()], [name(cls)])


def in_classes(value: ast.expr, classes: str) -> ast.expr:
    """Build `value.__class__ in classes`."""
    return ast.Compare(ast.Attribute(value, "__class__", _LOAD), [ast.In()], [name(classes)])


def compare(left: ast.expr, op: ast.cmpop, right: ast.expr) -> ast.expr:
    return ast.Compare(left, [op], [right])


def binary(left: ast.expr, op: ast.operator, right: ast.expr) -> ast.expr:
    return ast.BinOp(left, op, right)


def negate(value: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), value)


def all_of(values: Sequence[ast.expr]) -> ast.expr:
    return values[0] if len(values) == 1 else ast.BoolOp(ast.And(), list(values))


def any_of(values: Sequence[ast.expr]) -> ast.expr:
    return values[0] if len(values) == 1 else ast.BoolOp(ast.Or(), list(values))


def tuple_of(values: Iterable[ast.expr]) -> ast.expr:
    return ast.Tuple(list(values), _LOAD)


def list_of(values: Iterable[ast.expr]) -> ast.expr:
    return ast.List(list(values), _LOAD)


def item(subject: ast.expr, key: ast.expr) -> ast.expr:
    """Build `subject[key]`."""
    return ast.Subscript(subject, key, _LOAD)


def store_item(subject: ast.expr, key: ast.expr) -> ast.expr:
    return ast.Subscript(subject, key, _STORE)


def last_of(*values: ast.expr) -> ast.expr:
    """Build an expression that evaluates all values in order and gives the last one."""
    return item(tuple_of(values), const(len(values) - 1))


def assign(target: ast.expr, value: ast.expr) -> ast.stmt:
    return ast.Assign([target], value)


def run(value: ast.expr) -> ast.stmt:
    """Build a statement of the expression."""
    return ast.Expr(value)


def function(
    identifier: str,
    params: Sequence[str],
    shared: Sequence[str],
    body: list[ast.stmt],
    *,
    depth: str | None = None,
) -> ast.stmt:
    """Build `def identifier(params, depth=1, *, shared=shared): body`.

    `shared` are variables whose current cells the function keeps (as defaults of keyword-only parameters).
    """
    arguments = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(param) for param in params] + ([ast.arg(depth)] if depth else []),
        kwonlyargs=[ast.arg(cell) for cell in shared],
        kw_defaults=[name(cell) for cell in shared],
        defaults=[const(1)] if depth else [],
    )
    return ast.FunctionDef(identifier, arguments, body, [], lineno=1)


def place(root: ast.AST, line: int, column: int) -> None:
    """Give every node below `root` without a position that of its nearest ancestor with one."""
    pending: list[tuple[ast.AST, dict[str, int]]] = [(root, _position(line, column))]
    while pending:
        node, position = pending.pop()
        fields = node.__dict__
        values = [*fields.values()]
        if "end_lineno" in fields:
            position = _position(fields["lineno"], fields["col_offset"])
        else:
            fields.update(position)
        for value in values:
            kind = value.__class__
            if kind is list:
                pending += [(entry, position) for entry in value if entry.__class__ not in _UNPLACED]
            elif kind not in _UNPLACED:
                pending.append((value, position))


_UNPLACED: frozenset[type] = frozenset(
    LEAVES
    | {type(None), str, int, float, bool, frozenset, ast.Load, ast.Store, ast.And, ast.Or}
    | {kind for base in (ast.operator, ast.unaryop, ast.cmpop) for kind in base.__subclasses__()}
)
"""Types, in the fields of nodes, that need no position of their own."""


def _position(line: int, column: int) -> dict[str, int]:
    return {"lineno": line, "col_offset": column, "end_lineno": line, "end_col_offset": column}


def mark(node: ast.AST, line: int, column: int) -> None:
    """Give one node its position."""
    node.__dict__.update(_position(line, column))
