"""Evaluates expressions straight over the runtime: the parser's nodes, the operators and the library's own
code.

No compiler is involved, so these tests say what the library does, and the compiler's tests what becomes of
it.
"""

from collections.abc import Callable
from typing import Any

import pytest

from hoglab.hog import nodes
from hoglab.hog.parser import parse_expression
from hoglab.hog.rt import access, coerce
from hoglab.hog.rt.context import Context, activate
from hoglab.hog.rt.conversion import dict_key
from hoglab.hog.rt.values import HogFunction, HogTuple
from hoglab.hog.stdlib import LIBRARY

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": coerce.add,
    "-": coerce.sub,
    "*": coerce.mul,
    "/": coerce.div,
    "%": coerce.mod,
    "==": coerce.eq,
    "!=": coerce.ne,
    "<": coerce.lt,
    "<=": coerce.le,
    ">": coerce.gt,
    ">=": coerce.ge,
    "in": coerce.contains,
}


class Walker:
    """Evaluates one expression."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx

    def value(self, node: nodes.Expr, names: dict[str, Any]) -> Any:
        match node:
            case nodes.Constant():
                return node.value
            case nodes.Field():
                return self.field(node.chain, names)
            case nodes.ArrayAccess():
                return access.get_property(self.value(node.array, names), self.value(node.property, names))
            case nodes.ArithmeticOperation() | nodes.CompareOperation():
                return OPERATORS[node.op](self.value(node.left, names), self.value(node.right, names))
            case nodes.Array():
                return [self.value(item, names) for item in node.exprs]
            case nodes.Tuple():
                return HogTuple(self.value(item, names) for item in node.exprs)
            case nodes.Dict():
                return {dict_key(self.value(k, names)): self.value(v, names) for k, v in node.items}
            case nodes.Lambda():
                return self.closure(node, names)
            case nodes.Call():
                return LIBRARY[node.name].invoke(self.ctx, [self.value(arg, names) for arg in node.args])
        raise NotImplementedError(type(node).__name__)

    def field(self, chain: tuple[str, ...], names: dict[str, Any]) -> Any:
        root, *path = chain
        value = names[root] if root in names else LIBRARY[root].as_value(self.ctx)
        for key in path:
            value = access.get_property(value, key)
        return value

    def closure(self, node: nodes.Lambda, names: dict[str, Any]) -> HogFunction:
        def call(*args: Any) -> Any:
            assert isinstance(node.body, nodes.Expr)
            return self.value(node.body, {**names, **dict(zip(node.args, args, strict=True))})

        return HogFunction("lambda", len(node.args), len(node.args), call)


Evaluate = Callable[..., Any]


@pytest.fixture
def evaluate() -> Evaluate:
    """`evaluate(source, ctx=None, **names)`: the value of a Hog expression."""

    def run(source: str, ctx: Context | None = None, **names: Any) -> Any:
        ctx = ctx or Context(seed=1)
        former = activate(ctx)
        try:
            return Walker(ctx).value(parse_expression(source), names)
        finally:
            activate(former)

    return run
