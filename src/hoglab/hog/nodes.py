"""The syntax tree: immutable nodes, each with the character offsets of the text it came from.

The classes and field names follow the official tree (spec: hog-language 4), so that `dump` can be compared with
the official parser's answer. Nodes compare by identity: the compilers use them as keys of their facts.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from hoglab.hog.patterns import searched

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """Base of all nodes; `start` and `end` are character offsets into the source."""

    start: int
    end: int


# --- expressions ---


@dataclass(frozen=True, slots=True, eq=False)
class Expr(Node):
    """Any node with a value."""


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Expr):
    value: bool | int | float | str | None


@dataclass(frozen=True, slots=True, eq=False)
class Field(Expr):
    """A chain of names: a variable, or a path into a global."""

    chain: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ArrayAccess(Expr):
    array: Expr
    property: Expr
    nullish: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class TupleAccess(Expr):
    tuple: Expr
    index: int
    nullish: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ArithmeticOperation(Expr):
    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True, eq=False)
class CompareOperation(Expr):
    op: str
    left: Expr
    right: Expr
    is_null_comparison_style: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class BetweenExpr(Expr):
    expr: Expr
    low: Expr
    high: Expr
    negated: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class And(Expr):
    exprs: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Or(Expr):
    exprs: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Not(Expr):
    expr: Expr


@dataclass(frozen=True, slots=True, eq=False)
class WithFillExpr(Node):
    """`with fill from ... to ... step ...`: each part may be missing."""

    from_value: Expr | None = None
    to_value: Expr | None = None
    step_value: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class OrderExpr(Node):
    """One key of an ordering; `order` is `ASC` or `DESC`."""

    expr: Expr
    order: str
    with_fill: WithFillExpr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Call(Expr):
    """A call by name. `params` is the first of two argument groups (`name(params)(args)`), else None.

    The other fields are SQL's.
    """

    name: str
    args: tuple[Expr, ...]
    params: tuple[Expr, ...] | None = None
    distinct: bool = False
    order_by: tuple[OrderExpr, ...] | None = None
    within_group: tuple[OrderExpr, ...] | None = None
    filter_expr: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ExprCall(Expr):
    expr: Expr
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Lambda(Expr):
    """A lambda; `body` is an expression, a `Block`, or a `Placeholder` (`x -> { f(x) }`: evaluated, then null)."""

    args: tuple[str, ...]
    body: Expr | Block


@dataclass(frozen=True, slots=True, eq=False)
class Dict(Expr):
    """A dict; `ast` marks the object that stands for an SQL node: its booleans are written in the official way."""

    items: tuple[tuple[Expr, Expr], ...]
    ast: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Array(Expr):
    exprs: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Tuple(Expr):
    exprs: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Placeholder(Expr):
    expr: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Alias(Expr):
    """`expr as name`: SQL only."""

    alias: str
    expr: Expr


@dataclass(frozen=True, slots=True, eq=False)
class TypeCast(Expr):
    """`expr::type`, `cast(expr as type)`: SQL only."""

    expr: Expr
    type_name: str


@dataclass(frozen=True, slots=True, eq=False)
class TryCast(Expr):
    """`try_cast(expr as type)`: SQL only."""

    expr: Expr
    type_name: str


@dataclass(frozen=True, slots=True, eq=False)
class NamedArgument(Expr):
    """`name := value` in the place of an expression: SQL only."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class HogQLXAttribute(Node):
    """One attribute of a tag; children are an attribute whose value is a tuple."""

    name: str
    value: Expr | tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class HogQLXTag(Expr):
    """`<Kind attr='x' />`: an object, or the call of a variable of that name."""

    kind: str
    attributes: tuple[HogQLXAttribute, ...]


# --- operators that are written as calls; `lower` makes them, the official tree has calls in their place ---


@dataclass(frozen=True, slots=True, eq=False)
class If(Expr):
    """`if`, `multiIf`, `case`, `a ? b : c`: the value of the first branch whose condition holds.

    `branches` are pairs of a condition and a value; `otherwise` is for no branch, None means null.
    """

    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class IfNull(Expr):
    """`ifNull(a, b)`, `a ?? b`."""

    expr: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Concat(Expr):
    """`concat(a, b)`, `a || b`, texts with expressions: the joined texts of all parts."""

    exprs: tuple[Expr, ...]


# --- statements ---


@dataclass(frozen=True, slots=True, eq=False)
class Statement(Node):
    """Any node without a value."""


@dataclass(frozen=True, slots=True, eq=False)
class Program(Node):
    declarations: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Block(Statement):
    declarations: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, eq=False)
class VariableDeclaration(Statement):
    name: str
    expr: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class VariableAssignment(Statement):
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True, eq=False)
class ExprStatement(Statement):
    """An expression as a statement; `expr` is None for the empty statement used as a body."""

    expr: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class ReturnStatement(Statement):
    expr: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class ThrowStatement(Statement):
    expr: Expr


@dataclass(frozen=True, slots=True, eq=False)
class IfStatement(Statement):
    expr: Expr
    then: Statement
    else_: Statement | None


@dataclass(frozen=True, slots=True, eq=False)
class WhileStatement(Statement):
    expr: Expr
    body: Statement


@dataclass(frozen=True, slots=True, eq=False)
class ForStatement(Statement):
    initializer: Statement | Expr | None
    condition: Expr | None
    increment: Statement | Expr | None
    body: Statement


@dataclass(frozen=True, slots=True, eq=False)
class ForInStatement(Statement):
    key_var: str | None
    value_var: str
    expr: Expr
    body: Statement


@dataclass(frozen=True, slots=True, eq=False)
class Function(Statement):
    name: str
    params: tuple[str, ...]
    body: Block


@dataclass(frozen=True, slots=True, eq=False)
class Catch(Node):
    """One `catch (var: type) { ... }`; `var` and `type` may be absent."""

    var: str | None
    type: str | None
    block: Block


@dataclass(frozen=True, slots=True, eq=False)
class TryCatchStatement(Statement):
    try_stmt: Block
    catches: tuple[Catch, ...]
    finally_stmt: Block | None


# --- walking and printing ---

_FIELDS: dict[type, tuple[str, ...]] = {}
_CHILD_FIELDS: dict[type, tuple[str, ...]] = {}
_WORDS = searched(r"\w+")
_PLAIN_TYPES = frozenset({"None", "bool", "float", "int", "str", "tuple"})


def field_names(kind: type[Node]) -> tuple[str, ...]:
    """Return the names of a node class's own fields (positions left out), in declaration order."""
    names = _FIELDS.get(kind)
    if names is None:
        names = tuple(f.name for f in fields(kind) if f.name not in ("start", "end"))
        _FIELDS[kind] = names
    return names


def child_fields(kind: type[Node]) -> tuple[str, ...]:
    """Return the names of the fields of a node class that can hold nodes, in declaration order."""
    names = _CHILD_FIELDS.get(kind)
    if names is None:
        types = {f.name: str(f.type) for f in fields(kind)}
        names = tuple(
            name for name in field_names(kind) if not _PLAIN_TYPES.issuperset(_WORDS.findall(types[name]))
        )
        _CHILD_FIELDS[kind] = names
    return names


def children(node: Node) -> list[Node]:
    """Return the direct sub-nodes, in source order for everything but conditional loops."""
    nodes: list[Node] = []
    for name in child_fields(node.__class__):
        value = getattr(node, name)
        if value.__class__ is tuple:
            _add_nodes(value, nodes)
        elif value is not None:
            nodes.append(value)
    return nodes


def _add_nodes(values: tuple[Any, ...], nodes: list[Node]) -> None:
    for value in values:
        if value.__class__ is tuple:
            _add_nodes(value, nodes)
        elif isinstance(value, Node):
            nodes.append(value)


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and everything below it, parents first."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(children(current)))


_WIRE_NAMES = {"key_var": "keyVar", "value_var": "valueVar", "body": "body"}


def dump(node: Node, *, positions: bool = False) -> dict[str, Any]:
    """Return the node as plain data, in the shape of the official parser's JSON (spec: hog-language 4).

    Optional fields that are empty are left out, so that two trees can be compared with `==`.
    """
    out: dict[str, Any] = {"node": type(node).__name__}
    for name in field_names(type(node)):
        value = getattr(node, name)
        if value is None and not isinstance(node, Constant):
            continue
        if value is False and not isinstance(node, Constant):
            continue
        wire = "expr" if name == "body" and isinstance(node, Lambda) else _WIRE_NAMES.get(name, name)
        out[wire] = _dump_value(value, positions=positions)
    if positions:
        out["start"], out["end"] = node.start, node.end
    return out


def _dump_value(value: Any, *, positions: bool) -> Any:
    if isinstance(value, Catch):
        block = dump(value.block, positions=positions)
        return [value.var, value.type, block]
    if isinstance(value, Node):
        return dump(value, positions=positions)
    if value.__class__ is tuple and value and type(value[0]).__name__ == "NamedWindow":
        return {item.name: dump(item.window, positions=positions) for item in value}
    if value.__class__ is tuple:
        return [_dump_value(item, positions=positions) for item in value]
    return value
