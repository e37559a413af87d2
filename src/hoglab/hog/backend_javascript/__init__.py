"""From nodes to JavaScript: code that runs in node and in browsers without any dependency.

spec: hog-language 11. The trees given here have passed `hoglab.hog.compiler.symbols.resolve`. The code reads globals
with a function `__getGlobal(name)`, which the caller must provide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hoglab.hog import nodes as n
from hoglab.hog.backend_javascript.library import in_order, library_code
from hoglab.hog.backend_javascript.names import BETWEEN, Names
from hoglab.hog.backend_javascript.statements import StatementWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hoglab.hog.compiler.symbols import SymbolTable
    from hoglab.hog.stdlib.registry import Function

__all__ = ["JavaScript", "generate_javascript", "in_order", "library_code"]


@dataclass(frozen=True, slots=True)
class JavaScript:
    """Generated code.

    Attributes:
        code: the program or expression alone.
        stl: the library functions it calls, as JavaScript has them, each after those it calls itself.
    """

    code: str
    stl: tuple[str, ...]

    @property
    def text(self) -> str:
        """The code with the library functions it needs before it."""
        return f"{library_code(self.stl)}\n\n{self.code}" if self.stl else self.code


def generate_javascript(
    tree: n.Program | n.Expr, table: SymbolTable, functions: Mapping[str, Function]
) -> JavaScript:
    """Generate the JavaScript of a program, expression or template; a program's code is the body of a function.

    Raises `HogCompileError` for library functions that browsers cannot have, for unknown functions and for wrong
    numbers of arguments.
    """
    has_between = any(isinstance(node, n.BetweenExpr) for node in n.walk(tree))
    taken = BETWEEN if has_between else frozenset[str]()
    while True:
        names = Names(tree, table, taken)
        writer = StatementWriter(table, names, functions)
        code = writer.statements(tree.declarations) if isinstance(tree, n.Program) else writer.expr(tree)
        stl = in_order(writer.used)
        if not names.collide(stl):
            return JavaScript(code, stl)
        taken |= frozenset(stl)  # the library keeps its names
