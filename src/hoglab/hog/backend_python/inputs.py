"""All inputs of one hog function in ONE generated function.

Templates of one function share the function call, the context and the globals; each result is visible to later
templates as `inputs.key` (spec: hog-runtime 3).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hoglab.hog.backend_python import Generated, finish, make_unit
from hoglab.hog.backend_python.build import assign, call, const, list_of, mark, name, store, store_item
from hoglab.hog.backend_python.statements import FunctionEmitter
from hoglab.hog.backend_python.unit import Constants, Lines
from hoglab.hog.compiler.analyse import ProgramFacts, analyse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hoglab.hog import nodes as n
    from hoglab.hog.compiler.symbols import SymbolTable
    from hoglab.hog.stdlib.registry import Function

EXTEND_KEY = "$$_extend_object"
"""Key whose value's entries are put before the other entries of its object."""


@dataclass(frozen=True, slots=True, eq=False)
class InputTemplate:
    """One template: its tree, the names in it, and the number of lines of all templates before it."""

    tree: n.Expr
    names: SymbolTable
    base_line: int


@dataclass(frozen=True, slots=True)
class Plain:
    """A value that is no template."""

    value: Any


@dataclass(frozen=True, slots=True)
class Rendered:
    """A value that the embedding program renders (Liquid): `render(key, globals)` gives it."""


Shape = InputTemplate | Plain | Rendered | dict[str, "Shape"] | list["Shape"]
"""An input value with its templates parsed."""


def generate_inputs(
    inputs: Sequence[tuple[str, Shape]], functions: Mapping[str, Function], *, call_depth: int = 1_000
) -> Generated:
    """Generate `main(g, c, b, charge)`, which returns the resolved inputs as a dict.

    Raises `UnsupportedShapeError` when the templates are too deep for Python's compiler.
    """
    builder = _Builder(functions, call_depth)
    body: list[ast.stmt] = [
        assign(store("r"), ast.Dict([], [])),
        assign(store("g"), call("with_inputs", name("g"), name("r"))),
    ]
    for key, shape in inputs:
        body += builder.resolve(key, shape)
    body.append(ast.Return(name("r")))
    return builder.finish(body)


class _Builder:
    def __init__(self, functions: Mapping[str, Function], call_depth: int) -> None:
        self.functions = functions
        self.call_depth = call_depth
        self.constants = Constants()
        self.chains: dict[tuple[int, int], tuple[str, ...]] = {}
        self.counter = [0]
        self.before: list[ast.stmt] = []
        self.leaves: list[InputTemplate] = []
        self.facts = ProgramFacts()

    def resolve(self, key: str, shape: Shape) -> list[ast.stmt]:
        self.before = []
        value = call("render", const(key), name("g")) if isinstance(shape, Rendered) else self.shape(shape)
        return [*self.before, assign(store_item(name("r"), const(key)), value)]

    def shape(self, shape: Shape) -> ast.expr:
        if isinstance(shape, InputTemplate):
            return self.leaf(shape)
        if isinstance(shape, dict):
            return self.members(shape)
        if isinstance(shape, list):
            return list_of(self.shape(part) for part in shape)
        value = shape.value if isinstance(shape, Plain) else None
        if value is None or value.__class__ in (bool, int, float, str):
            return const(value)
        return call("copy", name("c"), self.constants.add(value))

    def members(self, shape: dict[str, Shape]) -> ast.expr:
        own = {key: part for key, part in shape.items() if key != EXTEND_KEY}
        members = ast.Dict([const(key) for key in own], [self.shape(part) for part in own.values()])
        if EXTEND_KEY not in shape:
            return members
        return call("extended", self.shape(shape[EXTEND_KEY]), members)

    def leaf(self, leaf: InputTemplate) -> ast.expr:
        facts = analyse(leaf.tree, leaf.names, self.functions)
        unit = make_unit(leaf.tree, leaf.names, self.functions, facts, self.call_depth)
        unit.lines = Lines(leaf.names.source, leaf.base_line)
        unit.constants, unit.chains, unit.counter = self.constants, self.chains, self.counter
        emitter = FunctionEmitter(unit, leaf.names.scopes[leaf.tree])
        expression = emitter.expr(leaf.tree)
        self.before += emitter.before
        self.leaves.append(leaf)
        self.facts.include(facts)
        mark(expression, *unit.place(leaf.tree))
        return expression

    def finish(self, body: list[ast.stmt]) -> Generated:
        trees = [leaf.tree for leaf in self.leaves]
        return finish(self.constants, self.chains, self.facts, body, trees, bounded=False)
