"""What SQL and tags mean: expressions that build objects.

A query, the argument of `sql(...)` and a tag are data to a running program. One pass turns them into ordinary objects,
arrays and calls, so that nothing behind it has to know them. Inside SQL only a placeholder (`{expression}`) is
evaluated. spec: hog-language 6.11, 6.12.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hoglab.hog import nodes as n
from hoglab.hog import sql_nodes as sql

if TYPE_CHECKING:
    from collections.abc import Iterable

AST_KEY = "__hx_ast"
"""The key under which the object of an SQL node has the name of its class."""

TAG_KEY = "__hx_tag"
"""The key under which the object of a tag has the tag's name."""

_SIGNS = ("<", "sql", "select")
_MARKUP = re.compile(r"<[a-z_]|\bsql\b|\bselect\b")

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


def lower(tree: n.Program | n.Expr, source: str) -> n.Program | n.Expr:
    """The tree without SQL and tags. Trees without any are returned as they are; others share their nodes."""
    text = source.lower()
    if not any(sign in text for sign in _SIGNS) or not _MARKUP.search(text):
        return tree
    return _Lowering().node(tree)  # type: ignore[no-any-return]


class _Lowering:
    """One pass. `names` are the variables in reach: a tag named after one is a call."""

    def __init__(self) -> None:
        self.names: list[set[str]] = [set()]

    # --- Hog

    def node(self, node: Any) -> Any:
        visit = _HOG.get(type(node))
        return visit(self, node) if visit is not None else self.rebuilt(node)

    def rebuilt(self, node: n.Node) -> n.Node:
        """The node with its parts lowered; the node itself when they stay the same."""
        changed = False
        parts: list[Any] = [node.start, node.end]
        for name in n.field_names(type(node)):
            old = getattr(node, name)
            new = self.part(old)
            changed = changed or new is not old
            parts.append(new)
        return type(node)(*parts) if changed else node

    def part(self, value: Any) -> Any:
        if isinstance(value, n.Node):
            return self.node(value)
        if value.__class__ is not tuple:
            return value
        lowered = tuple(self.part(item) for item in value)
        return lowered if any(new is not old for new, old in zip(lowered, value, strict=True)) else value

    def scoped(self, node: n.Node, names: Iterable[str] = ()) -> n.Node:
        self.names.append(set(names))
        found = self.rebuilt(node)
        self.names.pop()
        return found

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
        body = self.node(node.body)
        self.names.pop()
        if expr is node.expr and body is node.body:
            return node
        return n.ForInStatement(node.start, node.end, node.key_var, node.value_var, expr, body)

    def catch(self, node: n.Catch) -> n.Node:
        return self.scoped(node, ("e", "type", *((node.var,) if node.var else ())))

    def call(self, node: n.Call) -> n.Node:
        if node.name == "sql" and len(node.args) == 1 and node.params is None:
            return self.data(node.args[0])
        return self.rebuilt(node)

    def query(self, node: n.Expr) -> n.Node:
        return self.data(node)

    def tag(self, node: n.HogQLXTag) -> n.Expr:
        """An object, or the call of the variable of that name with one."""
        members = []
        for attribute in node.attributes:
            value = self.part(attribute.value)
            if value.__class__ is tuple:
                value = n.Array(attribute.start, attribute.end, value)
            members.append((_text(attribute, attribute.name), value))
        if any(node.kind in names for names in self.names):
            argument = n.Dict(node.start, node.end, tuple(members))
            return n.Call(node.start, node.end, node.kind, (argument,))
        kind = (_text(node, TAG_KEY), _text(node, node.kind))
        return n.Dict(node.start, node.end, (kind, *members))

    # --- SQL

    def data(self, node: n.Node) -> n.Expr:
        """The object that stands for an SQL node; the value itself for a placeholder."""
        if isinstance(node, n.Placeholder):
            return self.node(node.expr)  # type: ignore[no-any-return]
        if isinstance(node, n.HogQLXTag) and any(node.kind in names for names in self.names):
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
        """One field of an SQL node."""
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
    n.HogQLXTag: _Lowering.tag,
    sql.SelectQuery: _Lowering.query,
    sql.SelectSetQuery: _Lowering.query,
}
