"""Expressions: from nodes to Python expression trees.

Every operator takes the short way when the kinds of its operands are known or recognised at run time, and
calls a helper of `support` otherwise (spec: hog-language 8).

There are two ways to ask for an expression. `expr` may give a container that belongs to the globals, which may only
be read. `value` gives one that the program may keep and change: globals are copied (spec: hog-language 5.6).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from hoglab.hog import nodes as n
from hoglab.hog.backend_python import operators
from hoglab.hog.backend_python.build import (
    LEAVES,
    all_of,
    any_of,
    binary,
    call,
    choose,
    compare,
    const,
    in_classes,
    is_class,
    item,
    last_of,
    list_of,
    mark,
    method,
    name,
    negate,
    tuple_of,
    walrus,
)
from hoglab.hog.backend_python.emitter import Emitter
from hoglab.hog.backend_python.intrinsics import intrinsic
from hoglab.hog.backend_python.support import SHORT_TEXT
from hoglab.hog.backend_python.unit import in_cell, is_direct
from hoglab.hog.compiler.analyse import enclosing
from hoglab.hog.compiler.optimise import UNKNOWN
from hoglab.hog.compiler.types import (
    ARRAY,
    BOOL,
    DICT,
    FLOAT,
    NULL,
    NUMBER,
    SCALAR,
    SMALL,
    STR,
    kinds_of_function,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hoglab.hog.compiler.symbols import Symbol
    from hoglab.hog.stdlib.registry import Function


class ExpressionEmitter(Emitter):
    """Emitter of expressions."""

    # --- the ways to ask for an expression

    def expr(self, node: n.Expr) -> ast.expr:
        """Emit the value of the expression, to be read only."""
        known = self.unit.folder.value(node)
        expression = _EXPRESSIONS[type(node)](self, node) if known is UNKNOWN else self.constant_of(known)
        if expression.__class__ not in LEAVES and "end_lineno" not in expression.__dict__:
            mark(expression, *self.unit.place(node))
        return expression

    def value(self, node: n.Expr) -> ast.expr:
        """Emit the value of the expression, to be kept."""
        if isinstance(node, n.If):
            return self.choice(node, self.value)
        if isinstance(node, n.IfNull):
            return self.first_known(node, self.value)
        expression = self.expr(node)
        if not self.may_alias_global(node):
            return expression
        first, again = self.bind_once(expression)
        own = any_of([is_class(first, "str"), in_classes(again, "scalars")])
        return choose(own, again, call("copy", name("c"), again))

    def test(self, node: n.Expr) -> ast.expr:
        """Emit an expression that is true in Python exactly when it is true in Hog."""
        if isinstance(node, (n.And, n.Or)):
            return self.logic(node.exprs, isinstance(node, n.And), self.test)
        if isinstance(node, n.Not):
            return negate(self.test(node.expr))
        expression = self.expr(node)
        if not self.kind(node) & (FLOAT | ARRAY | DICT):
            return expression
        first, again = self.bind_once(expression)
        return choose(is_class(first, "bool"), again, call("truthy", again))

    def boolean(self, node: n.Expr) -> ast.expr:
        """Emit the truth of the expression as a boolean."""
        expression = self.expr(node)
        if not self.kind(node) & ~BOOL:
            return expression
        first, again = self.bind_once(expression)
        return choose(is_class(first, "bool"), again, call("truthy", again))

    def text(self, node: n.Expr) -> ast.expr:
        """Emit the expression as its text in a `concat`."""
        expression = self.expr(node)
        if not self.kind(node) & ~STR:
            return expression
        first, again = self.bind_once(expression)
        return choose(is_class(first, "str"), again, call("text", again))

    # --- tools

    def values(self, nodes: Sequence[n.Expr]) -> list[ast.expr]:
        """Emit the values of several expressions, to be kept."""
        return self.spill(nodes, [self.value(node) for node in nodes])

    def spill(self, nodes: Sequence[n.Expr], emitted: list[ast.expr]) -> list[ast.expr]:
        """Emit the expressions; values that wait while a later one runs a function are put into variables.

        The accounting of memory sees variables only, and a recursion can make any number of values wait.
        """
        waits = False
        for at in range(len(emitted) - 1, -1, -1):
            if (
                waits
                and self.kind(nodes[at]) & ~SMALL
                and not isinstance(emitted[at], (ast.Constant, ast.Name))
            ):
                emitted[at] = walrus(self.unit.fresh("t"), emitted[at])
            waits = waits or self.unit.effects.enters(nodes[at])
        return emitted

    def may_alias_global(self, node: n.Expr) -> bool:
        """Return whether the value of the expression may be part of a global."""
        while isinstance(node, (n.ArrayAccess, n.TupleAccess)):
            node = node.array if isinstance(node, n.ArrayAccess) else node.tuple
        if isinstance(node, n.Field):
            return node not in self.unit.names.uses
        if isinstance(node, (n.If, n.IfNull)):
            return any(isinstance(part, n.Expr) and self.may_alias_global(part) for part in n.children(node))
        return False

    # --- names and members

    def constant(self, node: n.Constant) -> ast.expr:
        return const(node.value)

    def field(self, node: n.Field) -> ast.expr:
        symbol = self.unit.names.uses.get(node)
        if symbol is None:
            return self.global_read(node)
        if node in self.unit.names.empty_reads:
            expression: ast.expr = const(None)
        else:
            expression = self.variable(symbol)
        for key in node.chain[1:]:
            expression = self.member(expression, key)
        return expression

    def variable(self, symbol: Symbol) -> ast.expr:
        variable = name(f"v{symbol.number}")
        return item(variable, const(0)) if in_cell(symbol) else variable

    def global_read(self, node: n.Field) -> ast.expr:
        chain = node.chain
        for length in range(len(chain), 0, -1):
            hoisted = self.unit.hoisted.get(chain[:length])
            if hoisted is not None:
                read: ast.expr = name(hoisted)
                rest = chain[length:]
                break
        else:
            read = self.root_read(node)
            rest = chain[1:]
        for key in rest:
            read = self.member(read, key)
        return read

    def root_read(self, node: n.Field) -> ast.expr:
        root = node.chain[0]
        place = self.unit.place(node)
        self.unit.chains.setdefault(place, node.chain)
        read = item(name("g"), const(root))
        mark(read, *place)
        function = self.unit.functions.get(root) if len(node.chain) == 1 else None
        if function is None:
            return read
        known = compare(const(root), ast.In(), name("g"))
        return choose(known, read, call("library_value", name("c"), self.unit.constants.add(function)))

    def member(self, subject: ast.expr, key: str) -> ast.expr:
        if isinstance(subject, ast.Name) and subject.id in self.unit.dicts:
            return method(subject, "get", const(key))
        first, again = self.bind_once(subject)
        return choose(
            is_class(first, "dict"), method(again, "get", const(key)), call("get", again, const(key))
        )

    def array_access(self, node: n.ArrayAccess) -> ast.expr:
        key = self.unit.folder.value(node.property)
        if key.__class__ is str:
            return self.member(self.expr(node.array), key)
        return call("get", self.expr(node.array), self.expr(node.property))

    def tuple_access(self, node: n.TupleAccess) -> ast.expr:
        return call("get", self.expr(node.tuple), const(node.index))

    # --- operators

    def ordered(
        self, left: n.Expr, right: n.Expr, make: Callable[[ast.expr, ast.expr], ast.expr]
    ) -> ast.expr | None:
        """Emit a binary operation whose right operand may have visible effects; None when it has none."""
        if self.unit.effects.swappable(left, right):
            return None
        variable = self.unit.fresh("t")
        first = walrus(variable, self.expr(right))
        return last_of(first, make(self.expr(left), name(variable)))

    def arithmetic(self, node: n.ArithmeticOperation) -> ast.expr:
        fast = self.ordered(
            node.left, node.right, lambda a, b: call(operators.ARITHMETIC_HELPERS[node.op], a, b)
        )
        return fast if fast is not None else operators.arithmetic(self, node)

    def comparison(self, node: n.CompareOperation) -> ast.expr:
        fast = self.ordered(node.left, node.right, lambda a, b: operators.by_helper(node.op, a, b))
        return fast if fast is not None else operators.comparison(self, node)

    def between(self, node: n.BetweenExpr) -> ast.expr:
        parts = (node.expr, node.low, node.high)
        operands = [self.expr(part) for part in parts]
        if not node.negated and not any(self.kind(part) & ~NUMBER for part in parts):
            return ast.Compare(operands[1], [ast.LtE(), ast.LtE()], [operands[0], operands[2]])
        return call("not_between" if node.negated else "between", *operands)

    def all_true(self, node: n.And) -> ast.expr:
        return self.logic(node.exprs, True, self.boolean)

    def any_true(self, node: n.Or) -> ast.expr:
        return self.logic(node.exprs, False, self.boolean)

    def logic(
        self, parts: Sequence[n.Expr], conjunction: bool, ask: Callable[[n.Expr], ast.expr]
    ) -> ast.expr:
        """Emit `and`, `or`: later operands are skipped only if nobody can tell (spec: hog-language 6.3)."""
        known = set(self.unit.sure_roots)
        known.update(chain[0] for chain in self.unit.hoisted)
        first = parts[0]
        if isinstance(first, n.CompareOperation):
            known.update(node.chain[0] for node in n.walk(first) if isinstance(node, n.Field))
        if all(self.unit.effects.infallible(part, known) for part in parts[1:]):
            operands = [ask(part) for part in parts]
            return all_of(operands) if conjunction else any_of(operands)
        operands = [self.boolean(part) for part in parts]
        result = operands[0]
        for part in operands[1:]:
            result = binary(result, ast.BitAnd() if conjunction else ast.BitOr(), part)
        return result

    def negation(self, node: n.Not) -> ast.expr:
        return negate(self.test(node.expr))

    def if_(self, node: n.If) -> ast.expr:
        return self.choice(node, self.expr)

    def choice(self, node: n.If, ask: Callable[[n.Expr], ast.expr]) -> ast.expr:
        """Emit `if`, `multiIf`: branches are evaluated only when chosen."""
        chosen = const(None) if node.otherwise is None else ask(node.otherwise)
        for condition, value in reversed(node.branches):
            chosen = choose(self.test(condition), ask(value), chosen)
        return chosen

    def if_null(self, node: n.IfNull) -> ast.expr:
        return self.first_known(node, self.expr)

    def first_known(self, node: n.IfNull, ask: Callable[[n.Expr], ast.expr]) -> ast.expr:
        """Emit `ifNull`: the second expression is evaluated only when the first is null."""
        if not self.kind(node.expr) & NULL:
            return ask(node.expr)
        first, again = self.bind_once(ask(node.expr))
        return choose(operators.is_null(first, wanted=False), again, ask(node.otherwise))

    # --- texts

    def concat(self, node: n.Concat) -> ast.expr:
        """Emit the joined texts of all parts."""
        joined = self.joined_parts(node.exprs)
        if isinstance(joined, ast.Constant):
            return joined
        variable = self.unit.fresh("t")
        short = compare(call("size", walrus(variable, joined)), ast.Lt(), const(SHORT_TEXT))
        return choose(short, name(variable), call("grown", name("c"), name(variable)))

    def joined_parts(self, parts: Sequence[n.Expr]) -> ast.expr:
        values: list[ast.expr] = []
        constant = ""
        texts = self.spill(parts, [self.text(part) for part in parts])
        for part, text in zip(parts, texts, strict=True):
            known = self.unit.folder.value(part)
            if known is not UNKNOWN:
                constant += operators.concat_constant(known)
                continue
            if constant:
                values.append(const(constant))
                constant = ""
            values.append(ast.FormattedValue(text, -1))
        if constant or not values:
            values.append(const(constant))
        only = values[0]
        if len(values) > 1:
            return ast.JoinedStr(values)
        return only.value if isinstance(only, ast.FormattedValue) else only

    # --- containers

    def array(self, node: n.Array) -> ast.expr:
        return list_of(self.values(node.exprs))

    def tuple(self, node: n.Tuple) -> ast.expr:
        return call("tuple", list_of(self.values(node.exprs)))

    def dict(self, node: n.Dict) -> ast.expr:
        keys: list[ast.expr | None] = []
        for key, _ in node.items:
            known = self.unit.folder.value(key)
            plain = known.__class__ is str or (known.__class__ is int and abs(known) < 2**53)
            key_expression = self.expr(key)
            keys.append(key_expression if plain or not self.kind(key) & ~STR else call("key", key_expression))
        return ast.Dict(keys, self.values([value for _, value in node.items]))

    # --- calls

    def call(self, node: n.Call) -> ast.expr:
        args = node.args
        symbol = self.unit.names.uses.get(node)
        if symbol is not None:
            if symbol.function is not None and is_direct(symbol):
                return self.direct_call(symbol, args)
            callee = const(None) if node in self.unit.names.empty_reads else self.variable(symbol)
            return call("call_value", name("c"), *self.values(args), callee)
        function = self.unit.functions.get(node.name)
        if function is None:
            message = f"Unsupported function call: {node.name}"
            return call("fail", const(message), *(self.expr(arg) for arg in args))
        return self.library_call(function, args)

    def direct_call(self, symbol: Symbol, args: Sequence[n.Expr]) -> ast.expr:
        assert symbol.function is not None  # noqa: S101 - is_direct says so
        expected = len(symbol.function.params)
        arguments = self.values(args)
        if len(arguments) > expected:
            message = f"Too many arguments. Passed {len(arguments)}, expected {expected}"
            return call("fail", const(message), *arguments)
        arguments += [const(None)] * (expected - len(arguments))
        arguments += self.depth_argument(symbol)
        result = call(f"f{symbol.number}", *arguments)
        facts = self.unit.facts
        suspends = self.unit.names.scopes[symbol.function] in facts.suspending
        return ast.YieldFrom(result) if suspends and facts.suspension == "generator" else result

    def depth_argument(self, symbol: Symbol) -> list[ast.expr]:
        """Emit the depth of the call, an argument of functions that call themselves (1 when left out)."""
        recursive = self.unit.facts.recursive
        if symbol not in recursive:
            return []
        for levels, scope in enumerate(enclosing(self.scope)):
            if scope.symbol in recursive and is_direct(scope.symbol):
                # a function in between has been called by a library function, as a rule
                return [binary(name(f"d{scope.symbol.number}"), ast.Add(), const(1 + 2 * levels))]
        return []

    def library_call(self, function: Function, args: Sequence[n.Expr]) -> ast.expr:
        problem = function.arity_error(len(args))
        if problem is not None:
            return call("fail", const(problem), *(self.expr(arg) for arg in args))
        if function.is_async:
            emitted = [const(function.name), list_of(self.values(args))]
            if self.unit.facts.suspension == "replay":
                return call("wait", name("c"), *emitted)
            return ast.Yield(tuple_of(emitted))
        short = intrinsic(self, function, args)
        if short is not None:
            return short
        looks_only = function.pure and not kinds_of_function(function) & ~SCALAR
        context = [name("c")] if function.needs_context else []
        emitted = self.spill(args, self.readonly_args(args)) if looks_only else self.values(args)
        return call(self.unit.constants.add(function.call), *context, *emitted)

    def readonly_args(self, parts: Sequence[n.Expr]) -> list[ast.expr]:
        """Emit values to be read only, by code that may compare whether two are the same container.

        Every reading of a global gives a container of its own, so only one of the parts may go without a copy.
        """
        borrowed = False
        arguments = []
        for part in parts:
            may_alias_global = self.may_alias_global(part)
            arguments.append(self.value(part) if may_alias_global and borrowed else self.expr(part))
            borrowed = borrowed or may_alias_global
        return arguments

    def expr_call(self, node: n.ExprCall) -> ast.expr:
        args = self.values(node.args)
        return call("call_value", name("c"), *args, self.expr(node.expr))

    def lambda_(self, node: n.Lambda) -> ast.expr:
        function = self.define(node, f"f{self.unit.fresh('x')}")
        return call("local_function", const("lambda"), const(len(node.args)), name(function))

    def define(self, node: n.Function | n.Lambda, identifier: str) -> str:
        """Emit the Python function for a Hog one before the current statement; return its name."""
        raise NotImplementedError


_EXPRESSIONS: dict[type[n.Expr], Callable[..., ast.expr]] = {
    n.Constant: ExpressionEmitter.constant,
    n.Field: ExpressionEmitter.field,
    n.ArrayAccess: ExpressionEmitter.array_access,
    n.TupleAccess: ExpressionEmitter.tuple_access,
    n.ArithmeticOperation: ExpressionEmitter.arithmetic,
    n.CompareOperation: ExpressionEmitter.comparison,
    n.BetweenExpr: ExpressionEmitter.between,
    n.And: ExpressionEmitter.all_true,
    n.Or: ExpressionEmitter.any_true,
    n.Not: ExpressionEmitter.negation,
    n.If: ExpressionEmitter.if_,
    n.IfNull: ExpressionEmitter.if_null,
    n.Concat: ExpressionEmitter.concat,
    n.Array: ExpressionEmitter.array,
    n.Tuple: ExpressionEmitter.tuple,
    n.Dict: ExpressionEmitter.dict,
    n.Call: ExpressionEmitter.call,
    n.ExprCall: ExpressionEmitter.expr_call,
    n.Lambda: ExpressionEmitter.lambda_,
}
