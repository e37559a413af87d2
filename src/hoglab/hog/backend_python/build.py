"""Building blocks for Python syntax trees.

The backend emits `ast` objects, never text: user strings can only become constants, and no user text ever becomes
an identifier.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LOAD = ast.Load()
_STORE = ast.Store()


def const(value: Any) -> ast.Constant:
    return ast.Constant(value)


def name(identifier: str) -> ast.Name:
    return ast.Name(identifier, _LOAD)


def store(identifier: str) -> ast.Name:
    return ast.Name(identifier, _STORE)


def walrus(identifier: str, value: ast.expr) -> ast.expr:
    """`(identifier := value)`."""
    return ast.NamedExpr(store(identifier), value)


def call(function: str | ast.expr, *args: ast.expr) -> ast.expr:
    callee = name(function) if isinstance(function, str) else function
    return ast.Call(callee, list(args), [])


def method(subject: ast.expr, attribute: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(subject, attribute, _LOAD), list(args), [])


def choose(test: ast.expr, then: ast.expr, other: ast.expr) -> ast.expr:
    """`then if test else other`."""
    return ast.IfExp(test, then, other)


def is_class(value: ast.expr, cls: str) -> ast.expr:
    """`value.__class__ is cls`."""
    return ast.Compare(ast.Attribute(value, "__class__", _LOAD), [ast.Is()], [name(cls)])


def in_classes(value: ast.expr, classes: str) -> ast.expr:
    """`value.__class__ in classes`."""
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
    """`subject[key]`."""
    return ast.Subscript(subject, key, _LOAD)


def store_item(subject: ast.expr, key: ast.expr) -> ast.expr:
    return ast.Subscript(subject, key, _STORE)


def last_of(*values: ast.expr) -> ast.expr:
    """Evaluates all values in order and gives the last one."""
    return item(tuple_of(values), const(len(values) - 1))


def assign(target: ast.expr, value: ast.expr) -> ast.stmt:
    return ast.Assign([target], value)


def run(value: ast.expr) -> ast.stmt:
    """The expression as a statement."""
    return ast.Expr(value)


def function(
    identifier: str,
    params: Sequence[str],
    shared: Sequence[str],
    body: list[ast.stmt],
    *,
    depth: str | None = None,
) -> ast.stmt:
    """`def identifier(params, depth=1, *, shared=shared): body`.

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
    """Gives every node below `root` that has no position the one of its nearest ancestor that has."""
    stack: list[tuple[ast.AST, int, int]] = [(root, line, column)]
    while stack:
        node, line, column = stack.pop()
        fields = node.__dict__
        if "end_lineno" in fields:
            line, column = fields["lineno"], fields["col_offset"]
        elif node._attributes:  # noqa: SLF001 - the documented list of position attributes
            fields["lineno"] = fields["end_lineno"] = line
            fields["col_offset"] = fields["end_col_offset"] = column
        for field in node._fields:
            value = fields.get(field)
            if isinstance(value, ast.AST):
                stack.append((value, line, column))
            elif value.__class__ is list:
                stack.extend((entry, line, column) for entry in value if isinstance(entry, ast.AST))


def mark(node: ast.AST, line: int, column: int) -> None:
    """Gives one node its position."""
    fields = node.__dict__
    fields["lineno"] = fields["end_lineno"] = line
    fields["col_offset"] = fields["end_col_offset"] = column
