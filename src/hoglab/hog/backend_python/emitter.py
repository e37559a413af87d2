"""The emitter of expressions, as its parts see it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from hoglab.hog import nodes as n
from hoglab.hog.backend_python.build import any_of, call, choose, const, is_class, name, walrus
from hoglab.hog.compiler.types import NUMBER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hoglab.hog.backend_python.unit import CompilationUnit
    from hoglab.hog.compiler.symbols import FunctionScope


class Emitter:
    """Emitter of the code of one function. `before` collects statements that must run first (function bodies)."""

    def __init__(self, unit: CompilationUnit, scope: FunctionScope) -> None:
        self.unit = unit
        self.scope = scope
        self.before: list[ast.stmt] = []

    def expr(self, node: n.Expr) -> ast.expr:
        """Emit the value of the expression, to be read only."""
        raise NotImplementedError

    def readonly_args(self, parts: Sequence[n.Expr]) -> list[ast.expr]:
        """Emit values to be read only, by code that may compare whether two are the same container."""
        raise NotImplementedError

    def number(self, node: n.Expr) -> ast.expr:
        """Emit the expression as a number (spec: hog-language 8.3)."""
        expression = self.expr(node)
        if not self.kind(node) & ~NUMBER:
            return expression
        first, again = self.bind_once(expression)
        return choose(any_of([is_class(first, "int"), is_class(again, "float")]), again, call("num", again))

    def kind(self, node: n.Expr) -> int:
        return self.unit.kinds.of(node)

    def bind_once(self, expression: ast.expr) -> tuple[ast.expr, ast.expr]:
        """Emit the expression for its first and for every later use, evaluated once."""
        if isinstance(expression, ast.Name):
            return expression, name(expression.id)
        if isinstance(expression, ast.Constant):
            return expression, const(expression.value)
        variable = self.unit.fresh("t")
        return walrus(variable, expression), name(variable)

    def constant_of(self, value: object) -> ast.expr:
        return const(value)
