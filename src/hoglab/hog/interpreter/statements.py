"""Statements: one visitor for each kind of node. spec: hog-language 3, 6.8-6.10.

The visit of a statement gives None, or `Returned` when its function is to return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hoglab.hog import nodes as n
from hoglab.hog.backend_python.support import thrown
from hoglab.hog.errors import HogThrow
from hoglab.hog.rt.access import get_property, items, set_property, values
from hoglab.hog.rt.printing import is_truthy
from hoglab.hog.rt.values import ENDED, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from hoglab.hog.interpreter.machine import Machine

    Visit = Generator[Any, Any, "Returned | None"]


class Returned:
    """The value with which a function returns."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


def block(_machine: Machine, node: n.Block) -> Visit:
    for statement in node.declarations:
        returned = yield statement
        if returned is not None:
            return returned  # type: ignore[no-any-return]
    return None


def let(machine: Machine, node: n.VariableDeclaration) -> Visit:
    """Yield the visits of a declaration, null while its value is evaluated (spec: hog-language 6.8)."""
    (symbol,) = machine.names.declares[node]
    cell = machine.bind(symbol, None)
    if node.expr is not None:
        cell[0] = yield node.expr
    return None


def assignment(machine: Machine, node: n.VariableAssignment) -> Visit:
    left = node.left
    subject: Value
    key: Value
    if isinstance(left, n.Field):
        cell = machine.cell(machine.names.uses[left])
        if len(left.chain) == 1:
            cell[0] = yield node.right
            return None
        subject = cell[0]
        for name in left.chain[1:-1]:
            subject = get_property(subject, name)
        key = left.chain[-1]
    elif isinstance(left, n.ArrayAccess):
        subject = yield left.array
        key = yield left.property
    else:
        assert isinstance(left, n.TupleAccess)  # noqa: S101 - the resolver lets nothing else through
        subject = yield left.tuple
        key = left.index
    value = yield node.right
    machine.at = node
    set_property(machine.context, subject, key, value)
    return None


def expression(_machine: Machine, node: n.ExprStatement) -> Visit:
    if node.expr is not None:
        yield node.expr
    return None


def return_(machine: Machine, node: n.ReturnStatement) -> Visit:
    if node.expr is not None:
        return Returned((yield node.expr))
    return Returned(None if machine.is_in_function else ENDED)


def throw(machine: Machine, node: n.ThrowStatement) -> Visit:
    value = yield node.expr
    machine.at = node
    raise thrown(value)


def if_(_machine: Machine, node: n.IfStatement) -> Visit:
    condition = yield node.expr
    if is_truthy(condition):
        return (yield node.then)  # type: ignore[no-any-return]
    if node.else_ is not None:
        return (yield node.else_)  # type: ignore[no-any-return]
    return None


# --- loops


def while_(machine: Machine, node: n.WhileStatement) -> Visit:
    while True:
        machine.at = node
        machine.tick(node)
        condition = yield node.expr
        if not is_truthy(condition):
            return None
        returned = yield node.body
        if returned is not None:
            return returned  # type: ignore[no-any-return]


def for_(machine: Machine, node: n.ForStatement) -> Visit:
    if node.initializer is not None:
        yield node.initializer
    while True:
        machine.at = node
        machine.tick(node)
        condition = True if node.condition is None else (yield node.condition)
        if not is_truthy(condition):
            return None
        returned = yield node.body
        if returned is not None:
            return returned  # type: ignore[no-any-return]
        if node.increment is not None:
            yield node.increment


def for_in(machine: Machine, node: n.ForInStatement) -> Visit:
    """Yield the visits of a loop, whose turns share their variables; the iterated value is fixed before the first."""
    collection = yield node.expr
    machine.at = node
    cells = [machine.bind(symbol, None) for symbol in machine.names.declares[node]]
    turns = items(collection) if len(cells) == 2 else [(value,) for value in values(collection)]
    for turn in turns:
        machine.at = node
        machine.tick(node.body)
        for cell, value in zip(cells, turn, strict=True):
            cell[0] = value
        returned = yield node.body
        if returned is not None:
            return returned  # type: ignore[no-any-return]
    return None


# --- functions and errors


def function(machine: Machine, node: n.Function) -> None:
    (symbol,) = machine.names.declares[node]
    machine.at = node
    cell = machine.bind(symbol, None)  # first, because the function may call itself
    cell[0] = machine.closure(node.name, node)


def try_catch(machine: Machine, node: n.TryCatchStatement) -> Visit:
    """Yield the visits of a `try`, which catches thrown errors only. Clauses see the error `e` and its type `type`."""
    try:
        return (yield node.try_stmt)  # type: ignore[no-any-return]
    except HogThrow as exception:
        uncaught = exception
    error, kind = machine.names.declares[node]
    machine.bind(error, uncaught.error)
    machine.bind(kind, uncaught.error.type)
    for clause in node.catches:
        if clause.type in (None, "Error", uncaught.error.type):
            for symbol in machine.names.declares.get(clause, ()):
                machine.bind(symbol, uncaught.error)
            return (yield clause.block)  # type: ignore[no-any-return]
    raise uncaught


STATEMENTS: dict[type, Callable[[Machine, Any], Any]] = {
    n.Block: block,
    n.VariableDeclaration: let,
    n.VariableAssignment: assignment,
    n.ExprStatement: expression,
    n.ReturnStatement: return_,
    n.ThrowStatement: throw,
    n.IfStatement: if_,
    n.WhileStatement: while_,
    n.ForStatement: for_,
    n.ForInStatement: for_in,
    n.Function: function,
    n.TryCatchStatement: try_catch,
}
"""The visitor for each kind of statement."""
