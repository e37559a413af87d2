"""Watching a program while it runs: every statement, with the values that variables get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hoglab.hog import nodes as n
from hoglab.hog.compiler.analyse import analyse
from hoglab.hog.errors import position_at
from hoglab.hog.interpreter import VISITORS, Interpreted, run_on
from hoglab.hog.interpreter.machine import Machine
from hoglab.hog.interpreter.statements import Returned
from hoglab.hog.rt.printing import repr_value
from hoglab.hog.rt.values import ENDED, Value, copy_value

if TYPE_CHECKING:
    from collections.abc import Generator

    from hoglab.hog.program import Program

_PASSED_OVER = (n.Block, n.Function)
_TARGETS = (n.VariableDeclaration, n.VariableAssignment)


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One statement that ran, or one turn of a `for ... in`.

    `depth` counts the calls around it, `text` is the first line of the statement, `values` are the new values of
    variables (or of `return`), by name, as printed.
    """

    line: int
    depth: int
    text: str
    values: tuple[tuple[str, str], ...] = ()


Watch = Callable[[TraceStep], None]


def traced(program: Program, watch: Watch) -> Program:
    """Make an interpreted copy of a program that calls `watch` for every statement. `watch` must not raise."""
    tree, names, functions = program.tree, program.names, program.env.functions
    if tree is None or names is None:
        raise ValueError("inputs cannot be traced")

    def run(variables: dict[str, Value], context: Any, _render: Any) -> Value:
        machine = _Watched(names, functions, variables, context, program.env.limits.call_depth, VISITORS)
        machine.prepare(tree, watch)
        return run_on(machine, tree, names)

    interpreted = Interpreted(run, analyse(tree, names, functions), {})
    return replace(program, interpreted=True, _generated=interpreted, _function=None)


class _Watched(Machine):
    watch: Watch
    turns: dict[n.Node, n.ForInStatement]

    def prepare(self, tree: n.Node, watch: Watch) -> None:
        self.watch = watch
        self.turns = {loop.body: loop for loop in n.walk(tree) if isinstance(loop, n.ForInStatement)}

    def begin(self, wanted: Any) -> Value:
        loop = self.turns.get(wanted) if isinstance(wanted, n.Statement) else None
        if loop is not None:
            symbols = self.names.declares[loop]
            self.tell(loop, *((symbol.name, self.cell(symbol)[0]) for symbol in symbols))
        if isinstance(wanted, n.Statement) and not isinstance(wanted, _PASSED_OVER):
            wanted = self.statement(wanted)
        return super().begin(wanted)

    def statement(self, node: n.Statement) -> Generator[Any, Any, Any]:
        """Yield the visits of a statement and report it: before it runs, or when its value is known."""
        valued = isinstance(node, (*_TARGETS, n.ReturnStatement))
        if not valued and not isinstance(node, n.ForInStatement):
            self.tell(node)
        result = VISITORS[type(node)](self, node)
        if hasattr(result, "send"):
            result = yield from result
        if isinstance(node, n.VariableDeclaration):
            (symbol,) = self.names.declares[node]
            self.tell(node, (node.name, self.cell(symbol)[0]))
        elif isinstance(node, n.VariableAssignment):
            self.tell(node, *self.assigned(node.left))
        elif isinstance(node, n.ReturnStatement) and isinstance(result, Returned):
            self.tell(node, ("return", None if result.value is ENDED else result.value))
        return result

    def assigned(self, left: n.Expr) -> list[tuple[str, Value]]:
        """Return the variable that an assignment changed, if it is one variable."""
        while isinstance(left, (n.ArrayAccess, n.TupleAccess)):
            left = left.array if isinstance(left, n.ArrayAccess) else left.tuple
        symbol = self.names.uses.get(left)
        return [] if symbol is None else [(symbol.name, self.cell(symbol)[0])]

    def tell(self, node: n.Node, *values: tuple[str, Value]) -> None:
        source = self.names.source
        text = source[node.start : node.end].split("\n", 1)[0].rstrip()
        shown = tuple((name, repr_value(copy_value(value))) for name, value in values)
        line = position_at(source, node.start).line
        self.watch(TraceStep(line, len(self.frames) - 1, text, shown))
