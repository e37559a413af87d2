"""Statements and functions: from nodes to Python statements.

Loops and function entries draw a tick from the budget iterator `b`; a finished iterator means that a limit is
reached: a loop over it ends and the runner raises (spec: hog-language 8.11).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from hoglab.hog import nodes as n
from hoglab.hog.backend_python.build import (
    all_of,
    assign,
    binary,
    call,
    choose,
    compare,
    const,
    function,
    in_classes,
    is_class,
    item,
    list_of,
    mark,
    name,
    negate,
    run,
    store,
    store_item,
)
from hoglab.hog.backend_python.expressions import ExpressionEmitter
from hoglab.hog.backend_python.support import SHORT_TEXT
from hoglab.hog.backend_python.unit import in_cell, is_direct
from hoglab.hog.compiler.analyse import loop_charge
from hoglab.hog.compiler.optimise import UNKNOWN
from hoglab.hog.compiler.types import STR

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hoglab.hog.compiler.symbols import Symbol


class FunctionEmitter(ExpressionEmitter):
    """Emitter of the statements of one function (or of the program itself)."""

    # --- sequences

    def block(self, declarations: Sequence[n.Statement]) -> list[ast.stmt]:
        """Emit the statements in a row; never empty."""
        statements: list[ast.stmt] = []
        for statement in declarations:
            statements += self.statement(statement)
        return statements or [ast.Pass()]

    def statement(self, node: n.Statement) -> list[ast.stmt]:
        """Emit one statement, after the functions that its expressions need."""
        outer, self.before = self.before, []
        statements = _STATEMENTS[type(node)](self, node)
        place = self.unit.place(node)
        for statement in statements:
            if "end_lineno" not in statement.__dict__:
                mark(statement, *place)
        statements = self.before + statements
        self.before = outer
        return statements

    def with_before(self, make: Callable[[], list[ast.stmt]]) -> list[ast.stmt]:
        """Emit statements by `make`, with the functions of their expressions directly before them."""
        outer, self.before = self.before, []
        statements = make()
        statements = self.before + statements
        self.before = outer
        return statements

    def inner_block(self, node: n.Block) -> list[ast.stmt]:
        return self.block(node.declarations)

    # --- variables

    def bind(self, symbol: Symbol, value: ast.expr) -> ast.stmt:
        """Emit the declaration of a variable with a value."""
        return assign(store(f"v{symbol.number}"), list_of([value]) if in_cell(symbol) else value)

    def set_variable(self, symbol: Symbol, value: ast.expr) -> ast.stmt:
        """Emit a change of a declared variable."""
        if in_cell(symbol):
            return assign(store_item(name(f"v{symbol.number}"), const(0)), value)
        return assign(store(f"v{symbol.number}"), value)

    def let(self, node: n.VariableDeclaration) -> list[ast.stmt]:
        (symbol,) = self.unit.names.declares[node]
        if node.expr is None:
            return [self.bind(symbol, const(None))]
        if symbol.captured and any(isinstance(inner, n.Lambda) for inner in n.walk(node.expr)):
            # a lambda in the value may refer to the variable: it must exist first
            self.before.append(self.bind(symbol, const(None)))
            return [self.set_variable(symbol, self.value(node.expr))]
        return [self.bind(symbol, self.value(node.expr))]

    def assignment(self, node: n.VariableAssignment) -> list[ast.stmt]:
        left = node.left
        if isinstance(left, n.Field) and len(left.chain) == 1:
            symbol = self.unit.names.uses[left]
            return self.append_text(symbol, node.right) or [self.set_variable(symbol, self.value(node.right))]
        if isinstance(left, n.Field):
            base = n.Field(left.start, left.end, left.chain[:-1])
            self.unit.names.uses[base] = self.unit.names.uses[left]
            return self.store_member(self.expr(base), left.chain[-1], node.right)
        if isinstance(left, n.ArrayAccess):
            key = self.unit.folder.value(left.property)
            if key.__class__ is str:
                return self.store_member(self.value(left.array), key, node.right)
            return self.store_element(left, node.right)
        assert isinstance(left, n.TupleAccess)  # noqa: S101 - the resolver lets nothing else through
        arguments = [self.value(left.tuple), const(left.index), self.value(node.right)]
        return [run(call("set_property", name("c"), *arguments))]

    def append_text(self, symbol: Symbol, right: n.Expr) -> list[ast.stmt] | None:
        """Build `s := concat(s, ...)`: in this form CPython grows the text in place."""
        if not isinstance(right, n.Concat) or len(right.exprs) < 2 or symbol.captured:
            return None
        first = right.exprs[0]
        same = isinstance(first, n.Field) and len(first.chain) == 1
        if not same or self.unit.names.uses.get(first) is not symbol or self.kind(first) & ~STR:
            return None
        variable = f"v{symbol.number}"
        grown = binary(name(variable), ast.Add(), self.joined_parts(right.exprs[1:]))
        is_long = compare(call("size", name(variable)), ast.Gt(), const(SHORT_TEXT))
        account = run(call("grown", name("c"), name(variable)))
        return [assign(store(variable), grown), ast.If(is_long, [account], [])]

    def store_element(self, left: n.ArrayAccess, right: n.Expr) -> list[ast.stmt]:
        """Build `base[key] := right`; a member with a text key costs the amount of `_allocation` in each turn."""
        parts = [self.value(left.array), self.expr(left.property), self.value(right)]
        if not self.kind(left.property) & STR:
            return [run(call("set_property", name("c"), *parts))]
        names = [self.unit.fresh("t") for _ in parts]
        subject, key, value = (name(identifier) for identifier in names)
        short = assign(store_item(subject, key), value)
        long = run(call("set_property", name("c"), subject, key, value))
        plain = all_of([is_class(subject, "dict"), is_class(key, "str")])
        evaluated = [assign(store(identifier), part) for identifier, part in zip(names, parts, strict=True)]
        return [*evaluated, ast.If(plain, [short], [long])]

    def store_member(self, base: ast.expr, key: str, right: n.Expr) -> list[ast.stmt]:
        """Build `base.key := right`; members with constant names are bounded in number, so a dict needs no account."""
        subject, value = self.unit.fresh("t"), self.unit.fresh("t")
        short = assign(store_item(name(subject), const(key)), name(value))
        long = run(call("set_property", name("c"), name(subject), const(key), name(value)))
        return [
            assign(store(subject), base),
            assign(store(value), self.value(right)),
            ast.If(is_class(name(subject), "dict"), [short], [long]),
        ]

    # --- plain statements

    def expression(self, node: n.ExprStatement) -> list[ast.stmt]:
        if node.expr is None or self.unit.folder.value(node.expr) is not UNKNOWN:
            return [ast.Pass()]
        return [run(self.expr(node.expr))]

    def returned(self, node: n.ReturnStatement) -> list[ast.stmt]:
        if node.expr is not None:
            return [ast.Return(self.value(node.expr))]
        return [ast.Return(name("ended") if isinstance(self.scope.node, n.Program) else const(None))]

    def thrown(self, node: n.ThrowStatement) -> list[ast.stmt]:
        return [ast.Raise(call("thrown", self.value(node.expr)), None)]

    def condition(self, node: n.IfStatement) -> list[ast.stmt]:
        test = self.test(node.expr)
        other = [] if node.else_ is None else self.statement(node.else_)
        return [ast.If(test, self.statement(node.then), other)]

    # --- loops

    def leave_unless(self, condition: n.Expr | None) -> list[ast.stmt]:
        """Build `if not condition: break`."""
        if condition is None or self.unit.folder.value(condition) is True:
            return []
        return self.with_before(lambda: [ast.If(negate(self.test(condition)), [ast.Break()], [])])

    def work(self, *bodies: n.Node | None) -> list[ast.stmt]:
        """Emit the charge for one pass through large bodies, for which ticks alone would be too few."""
        units = sum(loop_charge(body) for body in bodies if body is not None)
        return [run(call("charge", const(units)))] if units else []

    def loop(self, body: list[ast.stmt]) -> ast.stmt:
        return ast.For(store("_"), name("b"), body, [])

    def while_loop(self, node: n.WhileStatement) -> list[ast.stmt]:
        body = self.work(node) + self.leave_unless(node.expr) + self.statement(node.body)
        return [self.loop(body)]

    def for_loop(self, node: n.ForStatement) -> list[ast.stmt]:
        start = self.part(node.initializer)
        body = self.work(node) + self.leave_unless(node.condition) + self.statement(node.body)
        return [*start, self.loop(body + self.part(node.increment))]

    def part(self, node: n.Statement | n.Expr | None) -> list[ast.stmt]:
        if node is None:
            return []
        if isinstance(node, n.Statement):
            return self.statement(node)
        expression = node
        return self.with_before(lambda: [run(self.expr(expression))])

    def for_in_loop(self, node: n.ForInStatement) -> list[ast.stmt]:
        symbols = self.unit.names.declares[node]
        statements: list[ast.stmt] = [
            assign(store(f"v{symbol.number}"), list_of([const(None)]))
            for symbol in symbols
            if in_cell(symbol)
        ]
        inner: list[ast.stmt] = []
        targets: list[ast.expr] = []
        for symbol in symbols:
            target = self.unit.fresh("t") if in_cell(symbol) else f"v{symbol.number}"
            targets.append(store(target))
            if symbol is symbols[-1] and self.may_alias_global(node.expr):
                shared = [
                    negate(is_class(name(target), "str")),
                    negate(in_classes(name(target), "scalars")),
                ]
                own = ast.If(
                    all_of(shared),
                    [assign(store(target), call("copy", name("c"), name(target)))],
                    [],
                )
                inner.append(own)
            if in_cell(symbol):
                inner.append(self.set_variable(symbol, name(target)))
        snapshot = call("items" if len(symbols) == 2 else "values", self.expr(node.expr))
        target_each = ast.Tuple(targets, ast.Store()) if len(targets) == 2 else targets[0]
        turn = ast.Tuple([target_each, store("_")], ast.Store())
        body = inner + self.work(node.body) + self.statement(node.body)
        statements.append(ast.For(turn, call("zip", snapshot, name("b")), body, []))
        return statements

    # --- errors

    def try_catch(self, node: n.TryCatchStatement) -> list[ast.stmt]:
        """Emit a `try`; clauses run after the handler, not inside it, where only one of them is chosen."""
        error, kind = self.unit.names.declares[node]
        exception, chosen, type_name = (self.unit.fresh(prefix) for prefix in ("x", "t", "t"))
        value = call("caught", name(exception))
        handler: list[ast.stmt] = [
            self.bind(error, value),
            assign(store(type_name), call("get", self.variable(error), const("type"))),
            self.bind(kind, name(type_name)),
        ]
        choice: ast.expr = const(0)
        total = False
        for number, clause in reversed(list(enumerate(node.catches, 1))):
            if clause.type is None or clause.type == "Error":
                choice, total = const(number), True
            else:
                matches = compare(name(type_name), ast.Eq(), const(clause.type))
                choice = choose(matches, const(number), choice)
        handler.append(assign(store(chosen), choice))
        if not total:
            missed = compare(name(chosen), ast.Eq(), const(0))
            handler.append(ast.If(missed, [ast.Raise(None, None)], []))
        attempt = ast.Try(
            self.inner_block(node.try_stmt),
            [ast.ExceptHandler(name("throw"), exception, handler)],
            [],
            [],
        )
        return [assign(store(chosen), const(0)), attempt, *self.clauses(node, error, chosen)]

    def clauses(self, node: n.TryCatchStatement, error: Symbol, chosen: str) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        for number, clause in reversed(list(enumerate(node.catches, 1))):
            named = self.unit.names.declares.get(clause, ())
            body = [self.bind(symbol, self.variable(error)) for symbol in named]
            body += self.inner_block(clause.block)
            statements = [ast.If(compare(name(chosen), ast.Eq(), const(number)), body, statements)]
        return statements

    # --- functions

    def function_declaration(self, node: n.Function) -> list[ast.stmt]:
        (symbol,) = self.unit.names.declares[node]
        statements: list[ast.stmt] = []
        if in_cell(symbol):
            self.before.append(self.bind(symbol, const(None)))
        identifier = self.define(node, f"f{symbol.number}")
        if symbol.read_as_value or not is_direct(symbol):
            value = call("local_function", const(node.name), const(len(node.params)), name(identifier))
            statements.append(self.set_variable(symbol, value))
        return statements or [ast.Pass()]

    def define(self, node: n.Function | n.Lambda, identifier: str) -> str:
        scope = self.unit.names.scopes[node]
        inner = FunctionEmitter(self.unit, scope)
        body = inner.function_body(node)
        captured = list(scope.captures)
        changed = [f"v{s.number}" for s in captured if s.reassigned and not in_cell(s)]
        if changed:
            body.insert(0, ast.Nonlocal(changed))
        shared = [f"v{s.number}" for s in captured if in_cell(s)]
        params = [f"v{s.number}" for s in scope.params]
        definition = function(identifier, params, shared, body, depth=inner.depth_name())
        mark(definition, *self.unit.place(node))
        self.before.append(definition)
        return identifier

    def depth_name(self) -> str | None:
        """Return the parameter with the depth of a function that calls itself."""
        symbol = self.scope.symbol
        if symbol is None or symbol not in self.unit.facts.recursive or not is_direct(symbol):
            return None
        return f"d{symbol.number}"

    def function_body(self, node: n.Function | n.Lambda) -> list[ast.stmt]:
        statements: list[ast.stmt] = [ast.For(store("_"), name("b"), [ast.Break()], [])]
        depth = self.depth_name()
        if depth is not None:
            too_deep = compare(name(depth), ast.GtE(), const(self.unit.call_depth))
            statements.append(ast.If(too_deep, [run(call("too_deep", const(self.unit.call_depth)))], []))
        statements += self.work(node.body)
        body = node.body
        if isinstance(body, n.Block):
            return statements + self.block(body.declarations)
        if isinstance(body, n.Placeholder):
            inner = body.expr
            return statements + self.with_before(lambda: [run(self.expr(inner))])
        return statements + self.with_before(lambda: [ast.Return(self.value(body))])

    def returned_value(self, node: n.Expr) -> list[ast.stmt]:
        """Emit `return node` as a whole body."""
        return self.with_before(lambda: [ast.Return(self.value(node))])

    # --- filters: reading each global once

    def hoist(self, paths: Sequence[tuple[n.Field, bool]]) -> list[ast.stmt]:
        """Move the read of globals that an expression always reads to its beginning.

        `paths` are the fields of globals and whether each is always evaluated.
        """
        statements: list[ast.stmt] = []
        for root, first in _certain_roots(paths).items():
            if root in self.unit.functions and root not in self.unit.sure_roots:
                continue  # it may stand for the function
            variable = self.unit.fresh("h")
            read = item(name("g"), const(root))
            place = self.unit.place(first)
            self.unit.chains.setdefault(place, first.chain)
            mark(read, *place)
            statements.append(assign(store(variable), read))
            self.unit.hoisted[(root,)] = variable
            statements += self.hoist_members((root,), variable, [field for field, _ in paths])
        return statements

    def hoist_members(
        self, base: tuple[str, ...], variable: str, fields: Sequence[n.Field]
    ) -> list[ast.stmt]:
        """Check that a hoisted global which is only read is a dict, and read shared members."""
        depth = len(base)
        under = [field.chain for field in fields if field.chain[:depth] == base]
        if any(len(chain) == depth or chain[depth] in _PART_NAMES for chain in under):
            return []
        # only dicts have members of these names
        statements: list[ast.stmt] = [
            ast.If(
                negate(is_class(name(variable), "dict")),
                [assign(store(variable), name("no_members"))],
                [],
            )
        ]
        self.unit.dicts.add(variable)
        counts: dict[str, int] = {}
        for chain in under:
            if len(chain) > depth + 1:
                counts[chain[depth]] = counts.get(chain[depth], 0) + 1
        for member, uses in counts.items():
            path = (*base, member)
            if uses > 1 and not any(chain == path for chain in under):
                inner = self.unit.fresh("h")
                statements.append(assign(store(inner), self.member(name(variable), member)))
                self.unit.hoisted[path] = inner
                statements += self.hoist_members(path, inner, fields)
        return statements


_PART_NAMES = frozenset(
    {"length", "type", "message", "payload", "dt", "zone", "year", "month", "day", "value", "unit"}
)
"""Members that values other than objects have."""


def _certain_roots(paths: Sequence[tuple[n.Field, bool]]) -> dict[str, n.Field]:
    """Return the roots that are always read, each with its first field."""
    roots: dict[str, n.Field] = {}
    for field, certain in paths:
        if certain:
            roots.setdefault(field.chain[0], field)
    return roots


_STATEMENTS: dict[type[n.Node], Callable[..., list[ast.stmt]]] = {
    n.Block: FunctionEmitter.inner_block,
    n.VariableDeclaration: FunctionEmitter.let,
    n.VariableAssignment: FunctionEmitter.assignment,
    n.ExprStatement: FunctionEmitter.expression,
    n.ReturnStatement: FunctionEmitter.returned,
    n.ThrowStatement: FunctionEmitter.thrown,
    n.IfStatement: FunctionEmitter.condition,
    n.WhileStatement: FunctionEmitter.while_loop,
    n.ForStatement: FunctionEmitter.for_loop,
    n.ForInStatement: FunctionEmitter.for_in_loop,
    n.Function: FunctionEmitter.function_declaration,
    n.TryCatchStatement: FunctionEmitter.try_catch,
}
