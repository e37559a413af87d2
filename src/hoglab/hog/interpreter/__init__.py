"""A plain interpreter of the same nodes that the Python compiler translates.

It infers no kinds, folds nothing, copies every global that it reads and evaluates every operand; it shares only the
runtime (`rt`) and the library with compiled programs, which are therefore tested against it. It also runs the few
texts whose shape Python's own compiler refuses: it has its own stack, so neither nesting nor recursion can be too
deep for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hoglab.hog.backend_python.inputs import EXTEND_KEY, InputTemplate, Rendered, Shape
from hoglab.hog.backend_python.support import extended
from hoglab.hog.backend_python.unit import Lines
from hoglab.hog.compiler.analyse import ProgramFacts, analyse
from hoglab.hog.errors import note_place
from hoglab.hog.interpreter.expressions import EXPRESSIONS
from hoglab.hog.interpreter.machine import Machine
from hoglab.hog.interpreter.statements import STATEMENTS
from hoglab.hog.rt.access import copied
from hoglab.hog.rt.values import SCALARS, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hoglab.hog import nodes as n
    from hoglab.hog.compiler.symbols import SymbolTable
    from hoglab.hog.rt.context import Context
    from hoglab.hog.stdlib.registry import Function

__all__ = ["VISITORS", "Interpreted", "interpret", "interpret_inputs"]

VISITORS = {**EXPRESSIONS, **STATEMENTS}

Variables = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Interpreted:
    """A text to be interpreted, in the place of generated code (`backend_python.Generated`).

    Calls that the host performs are answered from the journal of the execution, which runs again from its start.
    Nothing is left unaccounted (`tick_bytes`), and missing globals are named at once (`chains`).
    """

    run: Callable[[Variables, Context, Callable[..., Value]], Value]
    facts: ProgramFacts
    chains: Mapping[tuple[int, int], tuple[str, ...]]
    tick_bytes: int = 0
    bounded: bool = False

    def link(self, extra: Mapping[str, Any]) -> Callable[..., Any]:
        """Return the function `main(g, c, b, charge)`; see `backend_python.Generated.link`."""
        render = extra["render"]

        def main(g: Variables, c: Context, _b: Any, _charge: Any) -> Value:
            return self.run(g, c, render)

        return main


def interpret(
    tree: n.Program | n.Expr,
    names: SymbolTable,
    functions: Mapping[str, Function],
    *,
    call_depth: int = 1_000,
) -> Interpreted:
    """Make a program, an expression or a template ready to be interpreted; see `backend_python.generate`."""

    def run(variables: Variables, context: Context, _render: Callable[..., Value]) -> Value:
        return run_on(Machine(names, functions, variables, context, call_depth, VISITORS), tree, names)

    return Interpreted(run, analyse(tree, names, functions), {})


def interpret_inputs(
    inputs: Sequence[tuple[str, Shape]], functions: Mapping[str, Function], *, call_depth: int = 1_000
) -> Interpreted:
    """Make all inputs of a hog function ready to be interpreted; see `backend_python.inputs.generate_inputs`."""

    def run(variables: Variables, context: Context, render: Callable[..., Value]) -> Value:
        resolved: Variables = {}
        seen = {**variables, "inputs": resolved}

        def value(key: str, shape: Shape) -> Value:
            if isinstance(shape, InputTemplate):
                machine = Machine(shape.names, functions, seen, context, call_depth, VISITORS)
                return run_on(machine, shape.tree, shape.names, shape.base_line)
            if isinstance(shape, Rendered):
                return render(key, seen)
            if isinstance(shape, list):
                return [value(key, part) for part in shape]
            if isinstance(shape, dict):
                more = value(key, shape[EXTEND_KEY]) if EXTEND_KEY in shape else None
                return extended(
                    more, {name: value(key, part) for name, part in shape.items() if name != EXTEND_KEY}
                )
            return shape.value if shape.value.__class__ in SCALARS else copied(context, shape.value)

        for key, shape in inputs:
            resolved[key] = value(key, shape)
        return resolved

    return Interpreted(run, _facts(inputs, functions), {})


def run_on(machine: Machine, tree: n.Program | n.Expr, names: SymbolTable, base_line: int = 0) -> Value:
    """Run one text; every exception carries the place where it happened."""
    try:
        return machine.run(tree)
    except BaseException as error:
        if machine.at is not None:
            note_place(error, *Lines(names.source, base_line).place(machine.at.start))
        raise


def _facts(inputs: Sequence[tuple[str, Shape]], functions: Mapping[str, Function]) -> ProgramFacts:
    """Combine the facts about all templates of the inputs."""
    facts = ProgramFacts()
    pending = [shape for _, shape in inputs]
    while pending:
        shape = pending.pop()
        if isinstance(shape, InputTemplate):
            facts.include(analyse(shape.tree, shape.names, functions))
        elif isinstance(shape, (dict, list)):
            pending += shape.values() if isinstance(shape, dict) else shape
    return facts
