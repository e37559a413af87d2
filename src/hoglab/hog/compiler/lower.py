"""The core tree: the meaning of a text, in the few nodes that everything behind the parser handles.

A call of an operator (`not`, `and`, `or`, `if`, `multiIf`, `ifNull`, `concat`) becomes the operator's node: no
later pass depends on the name of a call. `name(a)(b)` becomes the call of the result of `name(a)`. A query, the
argument of `sql(...)` and a tag are data to a running program; they become ordinary objects, arrays and calls.
Inside SQL only a placeholder (`{expression}`) is evaluated. spec: hog-language 6.5, 6.11, 6.12.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from hoglab.hog import nodes as n
from hoglab.hog import sql_nodes as sql
from hoglab.hog.errors import HogCompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Tree = TypeVar("Tree", bound=n.Program | n.Expr)

MAX_ARGUMENTS = 300
"""Maximum number of arguments of a call."""

AST_KEY = "__hx_ast"
"""The key under which the object of an SQL node has the name of its class."""

TAG_KEY = "__hx_tag"
"""The key under which the object of a tag has the tag's name."""

# fields that the official tree has besides the parsed ones, with their place
_MARKS: dict[type[n.Node], tuple[tuple[str, bool], ...]] = {
    n.Field: (("from_asterisk", False),),
    n.Constant: (("is_sensitive", False),),
    n.Alias: (("hidden", False), ("from_asterisk", False)),
}
# the order of the official tree, where it is not that of our nodes
_ORDERS: dict[type[n.Node], tuple[str, ...]] = {
    n.CompareOperation: ("left", "right", "op", "is_null_comparison_style"),
    n.ArithmeticOperation: ("left", "right", "op"),
}
# true or absent, never false
_ONLY_TRUE = frozenset({"is_null_comparison_style", "table_final", "recursive", "all_columns"})


def lower(tree: Tree, source: str, known: Iterable[str] = (), *, markup: bool = True) -> Tree:
    """Return the core tree, which shares unchanged nodes with the tree.

    `known` are variables of earlier parts of the program. Without `markup`, queries and tags are unchanged, for
    `resolve` to refuse. Raises `HogCompileError` for calls with more than `MAX_ARGUMENTS` arguments.
    """
    visits = _MARKUP if markup else _HOG
    return _Lowering(source, known, visits).node(tree)  # type: ignore[no-any-return]


# --- operators


@dataclass(frozen=True, slots=True)
class _Operator:
    """An operator that is written as a call; with another number of arguments it is a call of that name.

    `hideable`: a variable or function of that name is called instead. The others always mean the operator, as they do
    for the official compilers.
    """

    make: Callable[[n.Call, tuple[n.Expr, ...]], n.Expr]
    least: int
    most: int | None = None
    hideable: bool = False


def _branches(call: n.Call, args: tuple[n.Expr, ...]) -> n.Expr:
    pairs = tuple(zip(args[::2], args[1::2], strict=False))
    return n.If(call.start, call.end, pairs, args[-1] if len(args) % 2 else None)


OPERATORS: dict[str, _Operator] = {
    "not": _Operator(lambda call, args: n.Not(call.start, call.end, args[0]), 1, 1),
    "and": _Operator(lambda call, args: n.And(call.start, call.end, args), 2),
    "or": _Operator(lambda call, args: n.Or(call.start, call.end, args), 2),
    "if": _Operator(_branches, 2, 3),
    "multiIf": _Operator(_branches, 2),
    "ifNull": _Operator(lambda call, args: n.IfNull(call.start, call.end, *args), 2, 2),
    "concat": _Operator(lambda call, args: n.Concat(call.start, call.end, args), 1, hideable=True),
}
"""The operators by the names of their calls (spec: hog-language 6.5)."""


# --- the pass


class _Lowering:
    """One pass of lowering. `names` are the variables in reach, innermost last."""

    def __init__(self, source: str, known: Iterable[str], visits: dict[type[n.Node], Any]) -> None:
        self.source = source
        self.visits = visits
        self.names: list[set[str]] = [set(known), set()]

    def hidden(self, name: str) -> bool:
        """Return whether a name means a variable or function of the program."""
        return any(name in names for names in self.names)

    # --- Hog

    def node(self, node: Any) -> Any:
        visit = self.visits.get(node.__class__)
        return visit(self, node) if visit is not None else self.rebuilt(node)

    def rebuilt(self, node: n.Node) -> n.Node:
        """Return the node with its parts lowered; the node itself when they do not change."""
        changed: dict[str, Any] = {}
        for name in n.child_fields(node.__class__):
            old = getattr(node, name)
            new = self.alone(old) if old.__class__ is n.Function else self.part(old)
            if new is not old:
                changed[name] = new
        return replace(node, **changed) if changed else node

    def part(self, value: Any) -> Any:
        if isinstance(value, n.Node):
            return self.node(value)
        if value.__class__ is not tuple:
            return value
        lowered = tuple([self.part(item) for item in value])
        return lowered if any(new is not old for new, old in zip(lowered, value, strict=True)) else value

    def scoped(self, node: n.Node, names: Iterable[str] = ()) -> n.Node:
        self.names.append(set(names))
        lowered = self.rebuilt(node)
        self.names.pop()
        return lowered

    def alone(self, node: n.Function) -> Any:
        """Lower a function that is the whole body of a branch or loop, where alone its name is visible."""
        self.names.append(set())
        lowered = self.function(node)
        self.names.pop()
        return lowered

    def block(self, node: n.Node) -> n.Node:
        return self.scoped(node)

    def declaration(self, node: n.VariableDeclaration) -> n.Node:
        self.names[-1].add(node.name)
        return self.rebuilt(node)

    def function(self, node: n.Function) -> n.Node:
        self.names[-1].add(node.name)
        return self.scoped(node, node.params)

    def lambda_(self, node: n.Lambda) -> n.Node:
        return self.scoped(node, node.args)

    def for_in(self, node: n.ForInStatement) -> n.Node:
        expr = self.node(node.expr)
        self.names.append({node.value_var, *((node.key_var,) if node.key_var else ())})
        body = self.alone(node.body) if isinstance(node.body, n.Function) else self.node(node.body)
        self.names.pop()
        if expr is node.expr and body is node.body:
            return node
        return replace(node, expr=expr, body=body)

    def catch(self, node: n.Catch) -> n.Node:
        return self.scoped(node, ("e", "type", *((node.var,) if node.var else ())))

    def call(self, node: n.Call) -> n.Expr:
        """Lower a call by name to an operator, or a call `name(...)(...)` to the call of the first result."""
        self.check_arguments(node, node.args)
        if node.params is not None:
            callee = self.call(replace(node, args=node.params, params=None))
            return n.ExprCall(node.start, node.end, callee, self.part(node.args))
        operator = OPERATORS.get(node.name)
        if operator is None or not self.means(operator, node):
            return self.rebuilt(node)  # type: ignore[return-value]
        return operator.make(node, self.part(node.args))

    def means(self, operator: _Operator, node: n.Call) -> bool:
        """Return whether a call with an operator's name is the operator."""
        count = len(node.args)
        right = operator.least <= count and (operator.most is None or count <= operator.most)
        plain = node.order_by is None and node.within_group is None and node.filter_expr is None
        return right and plain and not (operator.hideable and self.hidden(node.name))

    def call_or_query(self, node: n.Call) -> n.Expr:
        if node.name == "sql" and len(node.args) == 1 and node.params is None:
            return self.data(node.args[0])
        return self.call(node)

    def expr_call(self, node: n.ExprCall) -> n.Node:
        self.check_arguments(node, node.args)
        return self.rebuilt(node)

    def check_arguments(self, node: n.Expr, args: tuple[n.Expr, ...]) -> None:
        if len(args) > MAX_ARGUMENTS:
            raise HogCompileError(
                "Too many arguments",
                source=self.source,
                start=node.start,
                end=node.end,
                code="too-many-arguments",
            )

    def query(self, node: n.Expr) -> n.Node:
        return self.data(node)

    def tag(self, node: n.HogQLXTag) -> n.Expr:
        """Return an object, or the call of the variable of that name with one."""
        members = []
        for attribute in node.attributes:
            value = self.part(attribute.value)
            if value.__class__ is tuple:
                value = n.Array(attribute.start, attribute.end, value)
            members.append((_text(attribute, attribute.name), value))
        if self.hidden(node.kind):
            argument = n.Dict(node.start, node.end, tuple(members))
            return n.Call(node.start, node.end, node.kind, (argument,))
        kind = (_text(node, TAG_KEY), _text(node, node.kind))
        return n.Dict(node.start, node.end, (kind, *members))

    # --- SQL

    def data(self, node: n.Node) -> n.Expr:
        """Return the object that stands for an SQL node; the value itself for a placeholder."""
        if isinstance(node, n.Placeholder):
            return self.node(node.expr)  # type: ignore[no-any-return]
        if isinstance(node, n.HogQLXTag) and self.hidden(node.kind):
            return self.tag(node)
        members: list[tuple[n.Expr, n.Expr]] = [(_text(node, AST_KEY), _text(node, type(node).__name__))]
        for name in _ORDERS.get(type(node)) or n.field_names(type(node)):
            value = getattr(node, name)
            if value is None or (value is False and name in _ONLY_TRUE):
                continue
            key = "expr" if name == "body" else name
            members.append((_text(node, key), self.value(value, node, key)))
        for name, mark in _MARKS.get(type(node), ()):
            members.append((_text(node, name), n.Constant(node.start, node.start, mark)))
        return n.Dict(node.start, node.end, tuple(members), ast=True)

    def value(self, value: Any, owner: n.Node, name: str) -> n.Expr:
        """Return the value of one field of an SQL node."""
        if isinstance(value, n.Node):
            return self.data(value)
        if value.__class__ is not tuple:
            return n.Constant(owner.start, owner.start, value)
        if name in ("ctes", "window_exprs"):  # the official tree has them by name
            items = tuple((_text(item, item.name), self.named(item)) for item in value)
            return n.Dict(owner.start, owner.end, items, ast=True)
        return n.Array(owner.start, owner.end, tuple(self.value(item, owner, "") for item in value))

    def named(self, item: sql.CTE | sql.NamedWindow) -> n.Expr:
        return self.data(item.window if isinstance(item, sql.NamedWindow) else item)


def _text(node: n.Node, text: str) -> n.Constant:
    return n.Constant(node.start, node.start, text)


_HOG: dict[type[n.Node], Any] = {
    n.Block: _Lowering.block,
    n.ForStatement: _Lowering.block,
    n.VariableDeclaration: _Lowering.declaration,
    n.Function: _Lowering.function,
    n.Lambda: _Lowering.lambda_,
    n.ForInStatement: _Lowering.for_in,
    n.Catch: _Lowering.catch,
    n.Call: _Lowering.call,
    n.ExprCall: _Lowering.expr_call,
}
_MARKUP: dict[type[n.Node], Any] = {
    **_HOG,
    n.Call: _Lowering.call_or_query,
    n.HogQLXTag: _Lowering.tag,
    sql.SelectQuery: _Lowering.query,
    sql.SelectSetQuery: _Lowering.query,
}
