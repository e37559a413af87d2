"""Types: the kinds of value that an expression can have.

A variable's kinds are the union of the kinds of all values assigned to it anywhere; a function's result has the kinds
of all returned values, and its parameters, when all calls are visible, the kinds of all arguments. So the Python
backend can add two numbers with one instruction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoglab.hog import nodes as n
from hoglab.hog.rt.numbers import exact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hoglab.hog.compiler.symbols import Symbol, SymbolTable
    from hoglab.hog.stdlib.registry import Function

NULL, BOOL, INT, FLOAT, STR, ARRAY, DICT, OTHER = (1 << bit for bit in range(8))
NUMBER = INT | FLOAT
SMALL = NULL | BOOL | NUMBER
SCALAR = NULL | BOOL | NUMBER | STR
ANY = 255

MAX_ROUNDS = 12
"""Maximum number of rounds of inference; after them an expression may have any kind."""

MAX_STEP = 2**20
"""Maximum magnitude of constants that may be added without checking the result."""

_BY_NAME = {
    "any": ANY, "array": ARRAY, "tuple": ARRAY, "boolean": BOOL, "null": NULL, "integer": NUMBER,
    "float": NUMBER, "number": NUMBER, "string": STR, "object": DICT,
}  # fmt: skip


def kinds_of_names(names: Iterable[str]) -> int:
    """Return the kinds that declarations of library functions name; an `integer` may be stored as a float."""
    kinds = 0
    for name in names:
        kinds |= _BY_NAME.get(name, OTHER)
    return kinds


def kinds_of_function(function: Function) -> int:
    """Return the kinds that a library function declares for its result."""
    return kinds_of_names(function.returns)


def kind_of_value(value: object) -> int:
    """Return the kind of a constant."""
    if value is None:
        return NULL
    return {bool: BOOL, int: INT, float: FLOAT, str: STR}.get(exact(value).__class__, ANY)


def infer_types(
    tree: n.Program | n.Expr, names: SymbolTable, functions: Mapping[str, Function]
) -> InferredTypes:
    """Find the kinds of every expression of one tree."""
    types = InferredTypes(names, functions)
    if len(names.scopes) > 1:
        types.collect(tree)
    types.settle()
    return types


class InferredTypes:
    """The kinds of every expression of one tree; `of` returns them. Made by `infer_types`."""

    def __init__(self, names: SymbolTable, functions: Mapping[str, Function]) -> None:
        self.names = names
        self.functions = functions
        self.symbols: dict[Symbol, int] = {}
        self.returns: dict[n.Node, list[n.Expr | None]] = {}
        self.returned: dict[n.Node, int] = {}
        self.arguments: dict[Symbol, list[tuple[n.Expr, ...]]] = {}
        self.memo: dict[n.Expr, int] = {}

    def of(self, node: n.Expr) -> int:
        """Return a bit set of the kinds that the expression may have."""
        known = self.memo.get(node)
        if known is None:
            known = self.memo[node] = _VISITS.get(type(node), _any)(self, node)
        return known

    # --- gathering

    def collect(self, tree: n.Node) -> None:
        """Find the `return`s of every function and the calls of every declared function."""
        stack: list[tuple[n.Node, n.Node]] = [(tree, tree)]
        while stack:
            node, owner = stack.pop()
            if isinstance(node, (n.Function, n.Lambda)):
                owner = node
                self.returns[node] = []
            elif isinstance(node, n.ReturnStatement):
                self.returns.setdefault(owner, []).append(node.expr)
            elif isinstance(node, n.Call):
                symbol = self.names.uses.get(node)
                if symbol is not None and symbol.function is not None:
                    self.arguments.setdefault(symbol, []).append(node.args)
            stack += [(child, owner) for child in n.children(node)]

    def settle(self) -> None:
        symbols = self.names.symbols
        params = self.parameter_values()
        for _ in range(MAX_ROUNDS):
            changed = False
            self.memo.clear()
            for symbol in symbols:
                kinds = self.value_kinds(symbol, params.get(symbol))
                if kinds != self.symbols.get(symbol, 0):
                    self.symbols[symbol] = kinds
                    changed = True
            for function, values in self.returns.items():
                kinds = self.returned_kinds(function, values)
                if kinds != self.returned.get(function, 0):
                    self.returned[function] = kinds
                    changed = True
            if not changed:
                return
        self.symbols = dict.fromkeys(symbols, ANY)
        self.returned = dict.fromkeys(self.returns, ANY)
        self.memo.clear()

    def value_kinds(self, symbol: Symbol, arguments: list[n.Expr | None] | None) -> int:
        if symbol.opaque and arguments is None:
            return ANY
        kinds = OTHER if symbol.function is not None else 0
        for value in symbol.values:
            kinds |= self.of(value)
        for argument in arguments or ():
            kinds |= NULL if argument is None else self.of(argument)
        return kinds

    def returned_kinds(self, function: n.Node, values: list[n.Expr | None]) -> int:
        if isinstance(function, n.Lambda) and not isinstance(function.body, n.Block):
            return NULL if isinstance(function.body, n.Placeholder) else self.of(function.body)
        kinds = NULL  # for falling off the end
        body = function.body if isinstance(function, (n.Function, n.Lambda)) else None
        if isinstance(body, n.Block) and body.declarations and always_returns(body):
            kinds = 0
        for value in values:
            kinds |= NULL if value is None else self.of(value)
        return kinds

    def parameter_values(self) -> dict[Symbol, list[n.Expr | None]]:
        """Return the arguments passed for parameters of functions that are only ever called by name."""
        passed: dict[Symbol, list[n.Expr | None]] = {}
        for scope in self.names.scopes.values():
            if scope.symbol is None or not only_called(scope.symbol):
                continue
            for position, param in enumerate(scope.params):
                passed[param] = [
                    args[position] if position < len(args) else None
                    for args in self.arguments.get(scope.symbol, ())
                ]
        return passed


def only_called(symbol: Symbol) -> bool:
    """Return whether a variable is a declared function that is never reassigned nor used as a value."""
    return symbol.function is not None and not symbol.reassigned and not symbol.read_as_value


def is_step(node: n.Expr) -> bool:
    """Return whether an operand is a constant so small that no loop can add it up beyond the exact integers."""
    return isinstance(node, n.Constant) and node.value.__class__ is int and abs(node.value) <= MAX_STEP


def always_returns(node: n.Node) -> bool:
    """Return whether every path through the statement ends in `return` or `throw`, or never ends."""
    return next(open_ends(node), None) is None


def open_ends(node: n.Node) -> Iterator[n.Node]:
    """Yield the statements after which a run may go on behind ``node``, which may be a program; none if it never does.

    They are innermost statements, an `if` without `else`, or an empty block.
    """
    if isinstance(node, (n.ReturnStatement, n.ThrowStatement)):
        return
    if isinstance(node, (n.Block, n.Program)):
        ends: Sequence[n.Node] = (node,)
        for statement in node.declarations:
            ends = list(open_ends(statement))
            if not ends:
                return
        yield from ends
    elif isinstance(node, n.IfStatement):
        yield from open_ends(node.then)
        if node.else_ is None:
            yield node
        else:
            yield from open_ends(node.else_)
    elif isinstance(node, n.TryCatchStatement):
        yield from open_ends(node.try_stmt)
        for clause in node.catches:
            yield from open_ends(clause.block)
    elif not _is_endless(node):
        yield node


def _is_endless(node: n.Node) -> bool:
    """Return whether a statement is a loop that only `return` and errors end."""
    if isinstance(node, n.ForStatement):
        return node.condition is None
    return (
        isinstance(node, n.WhileStatement) and isinstance(node.expr, n.Constant) and node.expr.value is True
    )


# --- one visit per node class


def _any(_kinds: InferredTypes, _node: n.Expr) -> int:
    return ANY


def _constant(_kinds: InferredTypes, node: n.Constant) -> int:
    return kind_of_value(node.value)


def _field(kinds: InferredTypes, node: n.Field) -> int:
    symbol = kinds.names.uses.get(node)
    if symbol is None or len(node.chain) > 1:
        return ANY
    if node in kinds.names.empty_reads:
        return NULL
    return kinds.symbols.get(symbol, 0)


def _arithmetic(kinds: InferredTypes, node: n.ArithmeticOperation) -> int:
    left, right = kinds.of(node.left), kinds.of(node.right)
    if not left or not right:
        return 0  # nothing is known to get here yet
    if node.op in "+-" and is_step(node.right) and not left & ~INT:
        return INT
    if node.op in "+-*" and not (left | right) & ~NUMBER and not (left & INT and right & INT):
        return FLOAT
    return NUMBER


def _boolean(_kinds: InferredTypes, _node: n.Expr) -> int:
    return BOOL


def _array(_kinds: InferredTypes, _node: n.Expr) -> int:
    return ARRAY


def _dict(_kinds: InferredTypes, _node: n.Expr) -> int:
    return DICT


def _lambda(_kinds: InferredTypes, _node: n.Expr) -> int:
    return OTHER


def _call(kinds: InferredTypes, node: n.Call) -> int:
    symbol = kinds.names.uses.get(node)
    if symbol is not None:
        if symbol.function is None or symbol.reassigned:
            return ANY
        return kinds.returned.get(symbol.function, 0)
    function = kinds.functions.get(node.name)
    return ANY if function is None or function.is_async else kinds_of_function(function)


def _if(kinds: InferredTypes, node: n.If) -> int:
    union = NULL if node.otherwise is None else kinds.of(node.otherwise)
    for _, value in node.branches:
        union |= kinds.of(value)
    return union


def _if_null(kinds: InferredTypes, node: n.IfNull) -> int:
    return (kinds.of(node.expr) & ~NULL) | kinds.of(node.otherwise)


def _text(_kinds: InferredTypes, _node: n.Expr) -> int:
    return STR


_VISITS: dict[type[n.Expr], Callable[..., int]] = {
    n.Constant: _constant,
    n.Field: _field,
    n.ArithmeticOperation: _arithmetic,
    n.CompareOperation: _boolean,
    n.BetweenExpr: _boolean,
    n.And: _boolean,
    n.Or: _boolean,
    n.Not: _boolean,
    n.If: _if,
    n.IfNull: _if_null,
    n.Concat: _text,
    n.Array: _array,
    n.Tuple: _array,
    n.Dict: _dict,
    n.Lambda: _lambda,
    n.Call: _call,
}
