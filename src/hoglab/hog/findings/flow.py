"""Control flow: unreachable code, discarded values, and conditions that are constant."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hoglab.hog import nodes as n
from hoglab.hog.compiler.analyse import Effects, ProgramFacts, analyse
from hoglab.hog.compiler.optimise import UNKNOWN, Folder
from hoglab.hog.compiler.types import always_returns, open_ends
from hoglab.hog.rt.printing import is_truthy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hoglab.hog.compiler.symbols import SymbolTable
    from hoglab.hog.stdlib.registry import Function


def flow_findings(tree: n.Program | n.Expr, names: SymbolTable, functions: Mapping[str, Function]) -> None:
    """Report unreachable code, unused results and constant conditions."""
    facts: ProgramFacts = analyse(tree, names, functions)
    _Flow(names, functions, Effects(names, facts, functions)).look(tree)


def return_findings(tree: n.Program, names: SymbolTable, consequence: str) -> None:
    """Report the places where a program ends, or returns, without a value. ``consequence`` is the hint."""
    for node in open_ends(tree):
        message = (
            "The program may end here without `return`" if node is not tree else "The program has no `return`"
        )
        names.report("warning", "missing-return", message, node, consequence)
    for node in _own_returns(tree):
        if node.expr is None:
            names.report("warning", "missing-return", "This `return` has no value", node, consequence)


def _own_returns(tree: n.Program) -> Iterator[n.ReturnStatement]:
    """Yield the `return`s of a program itself that may be reached, in no particular order; not those of functions."""
    pending: list[n.Node] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, n.ReturnStatement):
            yield node
        elif isinstance(node, n.Program | n.Block):
            for statement in node.declarations:
                pending.append(statement)
                if always_returns(statement):
                    break
        elif isinstance(node, n.Statement | n.Catch) and not isinstance(node, n.Function):
            pending += n.children(node)


class _Flow:
    def __init__(self, names: SymbolTable, functions: Mapping[str, Function], effects: Effects) -> None:
        self.names = names
        self.functions = functions
        self.effects = effects
        self.folder = Folder()
        self.told = {(diagnostic.start, diagnostic.end) for diagnostic in names.diagnostics}

    def look(self, tree: n.Node) -> None:
        for node in n.walk(tree):
            if isinstance(node, (n.Program, n.Block)):
                self.sequence(node.declarations)
            elif isinstance(node, n.ExprStatement) and node.expr is not None:
                self.dropped(node.expr)
            elif isinstance(node, n.Lambda) and isinstance(node.body, n.Placeholder):
                self.dropped_by_lambda(node.body.expr)
            elif isinstance(node, n.IfStatement):
                self.condition(node.expr)
            elif isinstance(node, n.WhileStatement):
                self.condition(node.expr, endless=True)
            elif isinstance(node, n.If):
                for condition, _ in node.branches:
                    self.condition(condition)

    def warn(self, code: str, message: str, node: n.Node, hint: str | None = None) -> None:
        if (node.start, node.end) not in self.told:
            self.told.add((node.start, node.end))
            self.names.report("warning", code, message, node, hint)

    def sequence(self, statements: Sequence[n.Statement]) -> None:
        for before, after in pairwise(statements):
            if always_returns(before):
                self.warn("unreachable", "This is never reached: what stands before it always leaves", after)
                return

    def dropped(self, value: n.Expr) -> None:
        """Report a statement whose value is discarded."""
        if not self.effects.pure(value):
            return
        if isinstance(value, n.Call) and value.name in self.functions and value not in self.names.uses:
            name = value.name
            target = value.args[0] if value.args else None
            variable = ".".join(target.chain) if isinstance(target, n.Field) else "x"
            self.warn(
                "unused-result",
                f"The result of `{name}(...)` is thrown away, and it does nothing else",
                value,
                f"functions change no values: write `{variable} := {name}(...)`",
            )
        else:
            self.warn("no-effect", "This has no effect: its value is thrown away", value)

    def dropped_by_lambda(self, value: n.Expr) -> None:
        if self.effects.pure(value) and not isinstance(value, n.NamedArgument):
            self.warn(
                "dropped-value",
                "The lambda returns null: braces hold statements, and the value is thrown away",
                value,
                "write `x -> value`, or `x -> { return value }`",
            )

    def condition(self, node: n.Expr, *, endless: bool = False) -> None:
        value = self.folder.value(node)
        if value is UNKNOWN:
            return
        true = is_truthy(value)
        if not (endless and true):
            self.warn("constant-condition", f"This condition is always {'true' if true else 'false'}", node)
