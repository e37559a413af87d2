"""Programs entered piece by piece: later pieces can use and change the declarations of earlier ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hoglab.hog import nodes as n
from hoglab.hog.compiler.analyse import analyse
from hoglab.hog.compiler.lower import lower
from hoglab.hog.compiler.symbols import SymbolTable, resolve
from hoglab.hog.env import ANY, Environment
from hoglab.hog.errors import Diagnostic, HogSyntaxError
from hoglab.hog.interpreter import VISITORS, Interpreted, run_on
from hoglab.hog.interpreter.machine import Machine
from hoglab.hog.parser import parse_program
from hoglab.hog.program import Program, check_globals
from hoglab.hog.rt.conversion import from_json
from hoglab.hog.rt.values import Value
from hoglab.hog.run import Execution, Result, Suspended

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hoglab.hog.compiler.symbols import Symbol

_OPEN_CODES = frozenset({"unmatched-brace", "unterminated-string", "unterminated-comment"})


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Result of a piece of a session.

    It has the value of the last statement if that is an expression (or of a `return`), and the diagnostics.
    """

    result: Result
    diagnostics: tuple[Diagnostic, ...]


class _Kept(Machine):
    """A machine that reports the place of a failure only if it is in the piece being run."""

    def run(self, tree: n.Program | n.Expr) -> Value:
        try:
            return super().run(tree)
        except BaseException:
            if self.at not in set(n.walk(tree)):
                self.at = None
            raise


class Session:
    """Session that runs pieces of one program, with globals that may be changed between them."""

    def __init__(self, variables: Mapping[str, Any] | None = None, env: Environment = ANY) -> None:
        self.env = env
        self.globals: dict[str, Value] = {}
        self.set_globals(variables or {})
        self._names = SymbolTable("")
        self._known: dict[str, Symbol] = {}
        self._machine: _Kept | None = None

    def set_globals(self, variables: Mapping[str, Any]) -> None:
        """Replace the globals; `variables` is plain JSON data."""
        self.globals.clear()
        self.globals.update({name: from_json(value) for name, value in variables.items()})

    @property
    def variables(self) -> dict[str, Value]:
        """The variables and functions declared so far."""
        if self._machine is None:
            return {}
        return {name: self._machine.cell(symbol)[0] for name, symbol in self._known.items()}

    def run(self, source: str) -> Evaluation:
        """Run one piece. Raises `HogSyntaxError` or `HogCompileError`; later errors are in the result."""
        warnings: list[Diagnostic] = []
        tree = lower(_giving_its_last_value(parse_program(source, warnings)), source, self._known)
        names = resolve(tree, source, self._known)
        check_globals(names, self.env)
        diagnostics = (*warnings, *names.diagnostics)
        self._merge(names)

        def run(variables: dict[str, Value], context: Any, _render: Any) -> Value:
            return run_on(self._ready(variables, context), tree, names)

        interpreted = Interpreted(run, analyse(tree, names, self.env.functions), {})
        program = Program(source, "program", self.env, tree, names, diagnostics)
        execution = Execution(replace(program, interpreted=True, _generated=interpreted), self.globals)
        step = execution.start()
        if isinstance(step, Suspended):
            step = execution.fail(f"Unknown async function '{step.name}'")
        self._keep(tree, names)
        return Evaluation(step.result, diagnostics)

    def _merge(self, names: SymbolTable) -> None:
        """Merge the analysis of a piece into that of earlier ones, whose functions are still found by their nodes."""
        self._names.uses.update(names.uses)
        self._names.declares.update(names.declares)
        self._names.scopes.update(names.scopes)
        self._names.empty_reads.update(names.empty_reads)

    def _ready(self, variables: dict[str, Value], context: Any) -> _Kept:
        """Return the one machine of the session, without the unfinished work of a failed piece."""
        depth = self.env.limits.call_depth
        machine = _Kept(self._names, self.env.functions, variables, context, depth, VISITORS)
        if self._machine is None:
            self._machine = machine
        kept = self._machine
        kept.globals, kept.context = machine.globals, context
        context.budget.live_roots = kept.live
        del kept.frames[1:]
        kept.visits.clear()
        kept.at = None
        return kept

    def _keep(self, tree: n.Program, names: SymbolTable) -> None:
        """Keep the variables that the piece declared."""
        declared = self._machine.frames[0] if self._machine is not None else {}
        for statement in tree.declarations:
            if isinstance(statement, (n.VariableDeclaration, n.Function)):
                (symbol,) = names.declares[statement]
                if symbol in declared:
                    self._known[symbol.name] = symbol


def _giving_its_last_value(tree: n.Program) -> n.Program:
    last = tree.declarations[-1] if tree.declarations else None
    if not isinstance(last, n.ExprStatement) or last.expr is None:
        return tree
    returned = n.ReturnStatement(last.start, last.end, last.expr)
    return replace(tree, declarations=(*tree.declarations[:-1], returned))


def is_complete(source: str) -> bool:
    """Return whether a text can be run, or is wrong for another reason than a missing end."""
    try:
        parse_program(source)
    except HogSyntaxError as error:
        return error.code not in _OPEN_CODES and error.offset < len(source.rstrip())
    return True
