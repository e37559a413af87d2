"""Expressions: one visitor for each kind of node, evaluated in the order of the bytecode.

spec: hog-language 6.3-6.7, 8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hoglab.hog import nodes as n
from hoglab.hog.errors import HogRuntimeError, missing_global
from hoglab.hog.rt import coerce
from hoglab.hog.rt.access import copied, get_property
from hoglab.hog.rt.conversion import dict_key
from hoglab.hog.rt.numbers import exact
from hoglab.hog.rt.printing import concat_text, is_truthy
from hoglab.hog.rt.values import CONTAINER_COST, ENTRY_COST, SCALARS, VALUE_COST, HogTuple, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from hoglab.hog.interpreter.machine import Machine

    Visit = Generator[Any, Any, Value]


def evaluated(nodes: Sequence[n.Expr]) -> Visit:
    """Yield the values of several nodes, in order."""
    values: list[Value] = []
    for node in nodes:
        value = yield node
        values.append(value)
    return values


# --- names and members


def constant(_machine: Machine, node: n.Constant) -> Value:
    return exact(node.value)


def field(machine: Machine, node: n.Field) -> Value:
    symbol = machine.names.uses.get(node)
    if symbol is None:
        return global_read(machine, node)
    value = machine.cell(symbol)[0]
    machine.at = node
    for key in node.chain[1:]:
        value = get_property(value, key)
    return value


def global_read(machine: Machine, node: n.Field) -> Value:
    """Return a copy of the value at a path into the globals; a single name may also be a library function."""
    machine.at = node
    root = node.chain[0]
    if root not in machine.globals:
        function = machine.functions.get(root) if len(node.chain) == 1 else None
        if function is None:
            raise HogRuntimeError(missing_global(node.chain))
        return function.as_value(machine.context)
    value = machine.globals[root]
    for key in node.chain[1:]:
        value = get_property(value, key)
    return value if value.__class__ in SCALARS else copied(machine.context, value)


def array_access(machine: Machine, node: n.ArrayAccess) -> Visit:
    subject = yield node.array
    key = yield node.property
    machine.at = node
    return get_property(subject, key)


def tuple_access(machine: Machine, node: n.TupleAccess) -> Visit:
    subject = yield node.tuple
    machine.at = node
    return get_property(subject, node.index)


# --- operators


def arithmetic(machine: Machine, node: n.ArithmeticOperation) -> Visit:
    right = yield node.right
    left = yield node.left
    machine.at = node
    return coerce.ARITHMETIC[node.op](left, right)


def comparison(machine: Machine, node: n.CompareOperation) -> Visit:
    right = yield node.right
    left = yield node.left
    machine.at = node
    positive = coerce.NEGATED.get(node.op)
    if positive is not None:
        return not coerce.COMPARISON[positive](left, right)
    return coerce.COMPARISON[node.op](left, right)


def between(machine: Machine, node: n.BetweenExpr) -> Visit:
    value = yield node.expr
    low = yield node.low
    high = yield node.high
    machine.at = node
    return (coerce.not_between if node.negated else coerce.between)(value, low, high)


def conjunction(_machine: Machine, node: n.And) -> Visit:
    values = yield evaluated(node.exprs)
    return all(map(is_truthy, values))


def disjunction(_machine: Machine, node: n.Or) -> Visit:
    values = yield evaluated(node.exprs)
    return any(map(is_truthy, values))


def negation(_machine: Machine, node: n.Not) -> Visit:
    value = yield node.expr
    return not is_truthy(value)


def if_(_machine: Machine, node: n.If) -> Visit:
    for condition, value in node.branches:
        holds = yield condition
        if is_truthy(holds):
            return (yield value)
    return None if node.otherwise is None else (yield node.otherwise)


def if_null(_machine: Machine, node: n.IfNull) -> Visit:
    value = yield node.expr
    return value if value is not None else (yield node.otherwise)


def concat(machine: Machine, node: n.Concat) -> Visit:
    parts: list[str] = []
    for part in node.exprs:
        value = yield part
        machine.at = node
        parts.append(concat_text(value))
    machine.context.grow(sum(map(len, parts)))
    return "".join(parts)


# --- containers and functions


def array(machine: Machine, node: n.Array) -> Visit:
    values = yield evaluated(node.exprs)
    machine.at = node
    machine.context.grow(CONTAINER_COST + VALUE_COST * len(values))
    return values


def tuple_(machine: Machine, node: n.Tuple) -> Visit:
    values = yield evaluated(node.exprs)
    machine.at = node
    machine.context.grow(CONTAINER_COST + VALUE_COST * len(values))
    return HogTuple(values)


def dict_(machine: Machine, node: n.Dict) -> Visit:
    result: dict[Any, Value] = {}
    for key_node, value_node in node.items:
        key = yield key_node
        machine.at = key_node
        key = dict_key(key)
        result[key] = yield value_node
    machine.at = node
    machine.context.grow(CONTAINER_COST + 2 * ENTRY_COST * len(result))
    return result


def lambda_(machine: Machine, node: n.Lambda) -> Value:
    machine.at = node
    return machine.closure("lambda", node)


# --- calls


class Called:
    """The call of a function value, which is visited like a node."""

    __slots__ = ("args", "function")

    def __init__(self, function: Value, args: list[Value]) -> None:
        self.function = function
        self.args = args


def called(machine: Machine, call: Called) -> Any:
    return machine.call(call.function, call.args)


def call(machine: Machine, node: n.Call) -> Visit:
    """Yield a call of a variable, of the library, or of the host (spec: hog-language 5.5, 6.6)."""
    values = yield evaluated(node.args)
    machine.at = node
    symbol = machine.names.uses.get(node)
    if symbol is not None:
        return (yield Called(machine.cell(symbol)[0], values))
    function = machine.functions.get(node.name)
    if function is None:
        raise HogRuntimeError(f"Unsupported function call: {node.name}")
    problem = function.arity_error(len(values))
    if problem is not None:
        raise HogRuntimeError(problem)
    if function.is_async:
        return machine.context.answer(function.name, values)
    return function.invoke(machine.context, values)


def expr_call(machine: Machine, node: n.ExprCall) -> Visit:
    args = yield evaluated(node.args)
    function = yield node.expr
    machine.at = node
    return (yield Called(function, args))


EXPRESSIONS: dict[type, Callable[[Machine, Any], Any]] = {
    Called: called,
    n.Constant: constant,
    n.Field: field,
    n.ArrayAccess: array_access,
    n.TupleAccess: tuple_access,
    n.ArithmeticOperation: arithmetic,
    n.CompareOperation: comparison,
    n.BetweenExpr: between,
    n.And: conjunction,
    n.Or: disjunction,
    n.Not: negation,
    n.If: if_,
    n.IfNull: if_null,
    n.Concat: concat,
    n.Array: array,
    n.Tuple: tuple_,
    n.Dict: dict_,
    n.Call: call,
    n.ExprCall: expr_call,
    n.Lambda: lambda_,
}
"""The visitor for each kind of expression: it returns a value, or a generator that will."""
