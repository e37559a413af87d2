"""Trees of expressions as source text, for people.

The text parses to the same tree (but for `not` before a bracket, which is read as a call). Unlike
`hoglab.hog.formatter.printer`, which lays out what authors wrote, it begins with a tree and knows no comments.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hoglab.hog import nodes as n
from hoglab.hog.errors import quote
from hoglab.hog.parser.lexer import LITERALS, RESERVED
from hoglab.hog.patterns import anchored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PLAIN = anchored(r"[A-Za-z_$][A-Za-z0-9_$]*")
_WORDS = frozenset(
    {*RESERVED, *LITERALS, "and", "or", "not", "in", "is", "as", "like", "ilike", "between", "true", "false"}
    | {"case", "when", "then", "else", "end", "interval", "select", "with", "distinct", "if", "for", "return"}
)


def write(node: n.Expr) -> str:
    """Write the expression as Hog. Raises `TypeError` for blocks and SQL, which are no single line of Hog."""
    writer = _WRITERS.get(type(node))
    if writer is None:
        raise TypeError(f"{type(node).__name__} cannot be written as an expression")
    return writer(node)


def write_name(name: str) -> str:
    """Write a name, quoted where it must be."""
    if _PLAIN.fullmatch(name) and name.lower() not in _WORDS:
        return name
    escaped = name.replace("\\", "\\\\").replace("`", "``")
    return f"`{escaped}`"


def _inner(node: n.Expr) -> str:
    """Write an operand: in brackets unless it binds as tightly as a name."""
    text = write(node)
    return text if isinstance(node, _TIGHT) and not text.startswith("-") else f"({text})"


def _list(exprs: Iterable[n.Expr]) -> str:
    return ", ".join(map(write, exprs))


def _constant(node: n.Constant) -> str:
    value = node.value
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return repr(value)


def _field(node: n.Field) -> str:
    return ".".join(map(write_name, node.chain))


def _access(node: n.ArrayAccess) -> str:
    link = "?." if node.nullish else ""
    return f"{_inner(node.array)}{link}[{write(node.property)}]"


def _tuple_access(node: n.TupleAccess) -> str:
    return f"{_inner(node.tuple)}{'?.' if node.nullish else '.'}{node.index}"


def _infix(node: n.ArithmeticOperation | n.CompareOperation) -> str:
    op = "=" if node.op == "==" else node.op
    if isinstance(node, n.CompareOperation) and node.is_null_comparison_style:
        return f"{_inner(node.left)} is {'not ' * (op == '!=')}null"
    return f"{_inner(node.left)} {op} {_inner(node.right)}"


def _between(node: n.BetweenExpr) -> str:
    return f"{_inner(node.expr)} {'not ' * node.negated}between {_inner(node.low)} and {_inner(node.high)}"


def _chain(word: str) -> Callable[[n.And | n.Or], str]:
    return lambda node: f" {word} ".join(
        write(operand) if isinstance(operand, (n.CompareOperation, n.Not)) else _inner(operand)
        for operand in node.exprs
    )


def _not(node: n.Not) -> str:
    """Write `not` of an expression; before a bracket it reads as a call of the same meaning."""
    inner = write(node.expr)
    return f"not {inner}" if isinstance(node.expr, (*_TIGHT, n.CompareOperation)) else f"not({inner})"


def _call(node: n.Call) -> str:
    params = "" if node.params is None else f"({_list(node.params)})"
    return f"{write_name(node.name)}{params}({'distinct ' * node.distinct}{_list(node.args)})"


def _if(node: n.If) -> str:
    parts = [part for branch in node.branches for part in branch]
    parts += () if node.otherwise is None else (node.otherwise,)
    return f"{'if' if len(node.branches) == 1 else 'multiIf'}({_list(parts)})"


def _lambda(node: n.Lambda) -> str:
    if not isinstance(node.body, n.Expr) or isinstance(node.body, n.Placeholder):
        raise TypeError("a lambda with a block cannot be written as an expression")
    names = ", ".join(map(write_name, node.args))
    return f"({names}) -> {write(node.body)}"


def _tuple(node: n.Tuple) -> str:
    return f"({_list(node.exprs)}{',' * (len(node.exprs) == 1)})"


def _dict(node: n.Dict) -> str:
    return "{" + ", ".join(f"{write(key)}: {write(value)}" for key, value in node.items) + "}"


_TIGHT = (
    n.Constant, n.Field, n.ArrayAccess, n.TupleAccess, n.Call, n.If, n.IfNull, n.Concat, n.ExprCall, n.Array, n.Tuple,
    n.Dict,
)  # fmt: skip
_WRITERS: dict[type[n.Node], Callable[..., str]] = {
    n.Constant: _constant,
    n.Field: _field,
    n.ArrayAccess: _access,
    n.TupleAccess: _tuple_access,
    n.ArithmeticOperation: _infix,
    n.CompareOperation: _infix,
    n.BetweenExpr: _between,
    n.And: _chain("and"),
    n.Or: _chain("or"),
    n.Not: _not,
    n.Call: _call,
    n.If: _if,
    n.IfNull: lambda node: f"ifNull({_list((node.expr, node.otherwise))})",
    n.Concat: lambda node: f"concat({_list(node.exprs)})",
    n.ExprCall: lambda node: f"{_inner(node.expr)}({_list(node.args)})",
    n.Lambda: _lambda,
    n.Array: lambda node: f"[{_list(node.exprs)}]",
    n.Tuple: _tuple,
    n.Dict: _dict,
}
