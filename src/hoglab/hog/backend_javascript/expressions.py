"""JavaScript for expressions, in the shapes of spec: hog-language 11.2."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from hoglab.hog import nodes as n
from hoglab.hog.backend_javascript.library import runs_in_browsers
from hoglab.hog.backend_javascript.names import Names, function_name
from hoglab.hog.errors import HogCompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hoglab.hog.compiler.symbols import Symbol, SymbolTable
    from hoglab.hog.stdlib.registry import Function

_PATTERN_CALLS = {
    "like": "like", "ilike": "ilike", "not like": "!like", "not ilike": "!ilike",
    "=~": "match", "=~*": "__imatch", "!~": "!match", "!~*": "!__imatch",
}  # fmt: skip


class ExpressionWriter:
    """Writer of expressions. `used` collects the library functions that they need, under their JavaScript names."""

    def __init__(self, table: SymbolTable, names: Names, functions: Mapping[str, Function]) -> None:
        self.table = table
        self.names = names
        self.functions = functions
        self.used: set[str] = set()
        self.caught: dict[Symbol, str] = {}  # what the hidden names of the clause around stand for

    def expr(self, node: n.Expr) -> str:
        return _WRITERS[type(node)](self, node)

    def listed(self, parts: Sequence[n.Expr]) -> str:
        return ", ".join(self.expr(part) for part in parts)

    def helper(self, name: str) -> str:
        self.used.add(name)
        return name

    def body(self, node: n.Block | n.Expr) -> str:
        """Write the body of a lambda. Statements are written by `StatementWriter`."""
        raise NotImplementedError

    def error(self, message: str, node: n.Node, *, code: str, hint: str | None = None) -> HogCompileError:
        return HogCompileError(
            message, source=self.table.source, start=node.start, end=node.end, code=code, hint=hint
        )

    # --- values

    def constant(self, node: n.Constant) -> str:
        return literal(node.value)

    def array(self, node: n.Array) -> str:
        return f"[{self.listed(node.exprs)}]"

    def tuple_(self, node: n.Tuple) -> str:
        return f"{self.helper('tuple')}({self.listed(node.exprs)})"

    def dict_(self, node: n.Dict) -> str:
        return "{" + ", ".join(f"{self.key(key)}: {self.expr(value)}" for key, value in node.items) + "}"

    def key(self, node: n.Expr) -> str:
        if isinstance(node, n.Constant) and isinstance(node.value, str) and node.value != "__proto__":
            return literal(node.value)
        return f"[{self.expr(node)}]"

    def lambda_(self, node: n.Lambda) -> str:
        params = ", ".join(self.variable(symbol) for symbol in self.table.scopes[node].params)
        code = self.body(node.body)
        body = f"({code})" if isinstance(node.body, n.Dict) else code
        return f"{self.helper('__lambda')}(({params}) => {body})"

    # --- names and members

    def variable(self, symbol: Symbol) -> str:
        return self.caught.get(symbol) or self.names.of(symbol)

    def field(self, node: n.Field) -> str:
        symbol = self.table.uses.get(node)
        if node in self.table.empty_reads:
            code = "null"
        elif symbol is not None:
            code = self.variable(symbol)
        else:
            code = self.global_read(node)
        for name in node.chain[1:]:
            code = self.member(code, literal(name), nullish=True)
        return code

    def global_read(self, node: n.Field) -> str:
        name = node.chain[0]
        if len(node.chain) == 1 and name in self.functions:
            return self.library_function(name, node)
        return f"__getGlobal({literal(name)})"

    def member(self, code: str, key: str, *, nullish: bool) -> str:
        return f"{self.helper('__getProperty')}({code}, {key}, {'true' if nullish else 'false'})"

    def array_access(self, node: n.ArrayAccess) -> str:
        return self.member(self.expr(node.array), self.expr(node.property), nullish=node.nullish)

    def tuple_access(self, node: n.TupleAccess) -> str:
        return self.member(self.expr(node.tuple), str(node.index), nullish=node.nullish)

    # --- operators

    def arithmetic(self, node: n.ArithmeticOperation) -> str:
        return f"({self.expr(node.left)} {node.op} {self.expr(node.right)})"

    def compare(self, node: n.CompareOperation) -> str:
        left, right = self.expr(node.left), self.expr(node.right)
        call = _PATTERN_CALLS.get(node.op)
        if call is not None:
            self.helper(call.removeprefix("!"))
            return f"{call}({left}, {right})"
        if node.op in ("in", "not in"):
            if isinstance(node.right, n.Constant) and not isinstance(node.right.value, str):
                right = f"({right})"  # a dot after a number belongs to the number
            return f"({'!' if node.op == 'not in' else ''}{right}.includes({left}))"
        return f"({left} {node.op} {right})"

    def between(self, node: n.BetweenExpr) -> str:
        operands = (
            f"expr=({self.expr(node.expr)}), low=({self.expr(node.low)}), high=({self.expr(node.high)})"
        )
        known = " && ".join(f"{name} !== null && {name} !== undefined" for name in ("expr", "low", "high"))
        test = "expr < low || expr > high" if node.negated else "expr >= low && expr <= high"
        return f"(() => {{ const {operands}; return {known} && !!({test}); }})()"

    def all_of(self, node: n.And) -> str:
        return self.joined(node.exprs, "&&")

    def any_of(self, node: n.Or) -> str:
        return self.joined(node.exprs, "||")

    def joined(self, parts: Sequence[n.Expr], operator: str) -> str:
        return f"!!({f' {operator} '.join(self.expr(part) for part in parts)})"

    def negation(self, node: n.Not) -> str:
        return f"(!{self.expr(node.expr)})"

    def if_(self, node: n.If) -> str:
        code = "null" if node.otherwise is None else self.expr(node.otherwise)
        for condition, value in reversed(node.branches):
            code = f"({self.expr(condition)} ? {self.expr(value)} : {code})"
        return code

    def if_null(self, node: n.IfNull) -> str:
        return f"({self.expr(node.expr)} ?? {self.expr(node.otherwise)})"

    def concat(self, node: n.Concat) -> str:
        return f"{self.library_function('concat', node)}({self.listed(node.exprs)})"

    # --- calls

    def call(self, node: n.Call) -> str:
        symbol = self.table.uses.get(node)
        if node in self.table.empty_reads:
            callee = "null"
        elif symbol is not None:
            callee = self.variable(symbol)
        else:
            callee = self.library_function(node.name, node)
            problem = self.functions[node.name].arity_error(len(node.args))
            if problem is not None:
                raise self.error(problem, node, code="arity")
        return f"{callee}({self.listed(node.args)})"

    def library_function(self, name: str, node: n.Node) -> str:
        """Return the JavaScript name of a library function. Refuses functions that browsers cannot have."""
        if name not in self.functions:
            raise self.error(f"Hog function `{name}` is not implemented", node, code="unknown-function")
        if not runs_in_browsers(name):
            raise self.error(
                f"Hog function `{name}` does not exist in JavaScript",
                node,
                code="not-in-javascript",
                hint="code for browsers cannot wait for the server or call it",
            )
        return self.helper(function_name(name))

    def expr_call(self, node: n.ExprCall) -> str:
        return f"{self.expr(node.expr)}({self.listed(node.args)})"


def literal(value: object) -> str:
    """Write a constant as JavaScript. Infinities and NaN have names there, as JSON has none."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return json.dumps(value)


_WRITERS: dict[type[n.Node], Callable[..., str]] = {
    n.Constant: ExpressionWriter.constant,
    n.Field: ExpressionWriter.field,
    n.ArrayAccess: ExpressionWriter.array_access,
    n.TupleAccess: ExpressionWriter.tuple_access,
    n.ArithmeticOperation: ExpressionWriter.arithmetic,
    n.CompareOperation: ExpressionWriter.compare,
    n.BetweenExpr: ExpressionWriter.between,
    n.And: ExpressionWriter.all_of,
    n.Or: ExpressionWriter.any_of,
    n.Not: ExpressionWriter.negation,
    n.If: ExpressionWriter.if_,
    n.IfNull: ExpressionWriter.if_null,
    n.Concat: ExpressionWriter.concat,
    n.Array: ExpressionWriter.array,
    n.Tuple: ExpressionWriter.tuple_,
    n.Dict: ExpressionWriter.dict_,
    n.Lambda: ExpressionWriter.lambda_,
    n.Call: ExpressionWriter.call,
    n.ExprCall: ExpressionWriter.expr_call,
}
