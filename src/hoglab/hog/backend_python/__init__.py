"""From nodes to a Python function (research: the generated code runs 6 to 58 times faster than the official VM).

The stages: names and kinds are known (`symbols`, `kinds`, `analyse`); `expressions` and `statements` emit `ast`
objects; `compile()` makes code of them; `verify` checks the result.
"""

from __future__ import annotations

import ast
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hoglab.hog import nodes as n
from hoglab.hog.backend_python.build import name, place
from hoglab.hog.backend_python.statements import FunctionEmitter
from hoglab.hog.backend_python.support import NAMES
from hoglab.hog.backend_python.unit import CompilationUnit, Constants, Lines
from hoglab.hog.backend_python.verify import UnsafeCodeError, verify
from hoglab.hog.compiler.analyse import Effects, ProgramFacts, analyse
from hoglab.hog.compiler.types import infer_types
from hoglab.hog.rt.context import UNMETERED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from hoglab.hog.compiler.symbols import SymbolTable
    from hoglab.hog.stdlib.registry import Function

__all__ = [
    "FILE_NAME",
    "Generated",
    "UnsafeCodeError",
    "UnsupportedShapeError",
    "assemble",
    "finish",
    "generate",
    "make_unit",
]

FILE_NAME = "<hog>"
"""File name of generated code in tracebacks."""


class UnsupportedShapeError(Exception):
    """Python's compiler refuses code of this shape (too deep, too many names), which must be interpreted."""


@dataclass(frozen=True, slots=True)
class Generated:
    """Generated code, with the data needed to run it and to explain its failures.

    `chains` maps places (line from 1, column from 0) to the global read there. `tick_bytes` is the amount
    that one turn of a loop may allocate without accounting for it.
    """

    code: types.CodeType
    constants: Mapping[str, Any]
    facts: ProgramFacts
    chains: Mapping[tuple[int, int], tuple[str, ...]]
    tick_bytes: int
    bounded: bool

    def link(self, extra: Mapping[str, Any] | None = None) -> Callable[..., Any]:
        """Return the function, ready to be called: `main(g, c)` if bounded, else `main(g, c, b, charge)`.

        `g` are the globals, `c` the context, `b` its ticks, `charge` its method of that name.
        """
        namespace = {**NAMES, **_RUN_NAMES, **self.constants, **(extra or {})}
        exec(self.code, namespace)  # noqa: S102 - the code was made from `ast` objects and verified
        main: Callable[..., Any] = namespace["main"]
        return main


_RUN_NAMES: dict[str, Any] = {"__builtins__": {}, "no_members": {}, "unmetered": UNMETERED}
_USUAL_NAMES = frozenset({*NAMES, *_RUN_NAMES, "render"})  # the last one is supplied when linking


def generate(
    tree: n.Program | n.Expr,
    names: SymbolTable,
    functions: Mapping[str, Function],
    *,
    sure_roots: frozenset[str] = frozenset(),
    call_depth: int = 1_000,
) -> Generated:
    """Generate the function for a program, an expression or a template.

    `sure_roots` are globals that always exist; `call_depth` limits nested calls of functions.

    Raises `UnsupportedShapeError` if the text asks for more than Python's compiler can take.
    """
    unit, facts, body, bounded = _emitted(tree, names, functions, sure_roots, call_depth)
    return finish(unit.constants, unit.chains, facts, body, [tree], bounded=bounded)


def generate_source(
    tree: n.Program | n.Expr,
    names: SymbolTable,
    functions: Mapping[str, Function],
    *,
    sure_roots: frozenset[str] = frozenset(),
    call_depth: int = 1_000,
) -> str:
    """Return the generated code as text, for people; the code that runs is never made from text."""
    _, _, body, bounded = _emitted(tree, names, functions, sure_roots, call_depth)
    return ast.unparse(ast.fix_missing_locations(ast.Module([_main(body, bounded=bounded)], [])))


def _emitted(
    tree: n.Program | n.Expr,
    names: SymbolTable,
    functions: Mapping[str, Function],
    sure_roots: frozenset[str],
    call_depth: int,
) -> tuple[CompilationUnit, ProgramFacts, list[ast.stmt], bool]:
    """Return the statements of `main` with the facts about the text, and whether their work is bounded."""
    facts = analyse(tree, names, functions)
    bounded = facts.bounded and facts.suspension == "never" and not isinstance(tree, n.Program)
    unit = make_unit(tree, names, functions, facts, call_depth)
    unit.sure_roots = sure_roots
    emitter = FunctionEmitter(unit, names.scopes[tree])
    if isinstance(tree, n.Program):
        body = [*emitter.block(tree.declarations), ast.Return(name("ended"))]
    else:
        body = emitter.hoist(list(_global_fields(tree, names))) if bounded else []
        body += emitter.returned_value(tree)
    return unit, facts, body, bounded


def make_unit(
    tree: n.Program | n.Expr,
    names: SymbolTable,
    functions: Mapping[str, Function],
    facts: ProgramFacts,
    call_depth: int,
) -> CompilationUnit:
    """Create the state that the functions of one tree share while they are generated."""
    return CompilationUnit(
        names=names,
        kinds=infer_types(tree, names, functions),
        facts=facts,
        effects=Effects(names, facts, functions),
        functions=functions,
        lines=Lines(names.source),
        constants=Constants(),
        chains={},
        call_depth=call_depth,
    )


def finish(
    constants: Constants,
    chains: Mapping[tuple[int, int], tuple[str, ...]],
    facts: ProgramFacts,
    body: list[ast.stmt],
    trees: Sequence[n.Node],
    *,
    bounded: bool,
) -> Generated:
    """Wrap the statements into `main`, compile and verify it.

    Raises `UnsupportedShapeError` when Python's compiler gives up on the code.
    """
    code = assemble([_main(body, bounded=bounded)], FILE_NAME, _USUAL_NAMES, constants.values)
    return Generated(
        code=code,
        constants=constants.values,
        facts=facts,
        chains=chains,
        tick_bytes=0 if facts.bounded else sum(_allocations(tree) for tree in trees),
        bounded=bounded,
    )


def assemble(
    functions: list[ast.stmt], file_name: str, usual: Collection[str], own: Collection[str]
) -> types.CodeType:
    """Compile the functions of a module and verify that they use no names but the `usual` and their `own` ones.

    Raises `UnsupportedShapeError` when Python's compiler gives up on the code.
    """
    module = ast.Module(functions, [])
    place(module, 1, 0)
    try:
        code = compile(module, file_name, "exec", dont_inherit=True, optimize=0)
    except (RecursionError, SyntaxError, MemoryError, ValueError) as error:
        raise UnsupportedShapeError(str(error)) from error
    verify(code, usual, own)
    return code


def _main(body: list[ast.stmt], *, bounded: bool) -> ast.stmt:
    """Build the function `main` of the statements."""
    parameters = ["g", "c"] if bounded else ["g", "c", "b", "charge"]
    defaults: list[ast.expr] = [name("unmetered")] if bounded else []
    arguments = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(parameter) for parameter in parameters],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=defaults,
    )
    return ast.FunctionDef("main", arguments, body, [], lineno=1)


def _global_fields(node: n.Expr, names: SymbolTable, certain: bool = True) -> Iterator[tuple[n.Field, bool]]:
    """Yield the fields of globals in an expression, and whether each is always evaluated."""
    if isinstance(node, n.Field):
        if node not in names.uses:
            yield node, certain
        return
    if isinstance(node, (n.If, n.IfNull)):
        for position, part in enumerate(n.children(node)):
            if isinstance(part, n.Expr):
                yield from _global_fields(part, names, certain and position == 0)
        return
    for child in n.children(node):
        if isinstance(child, n.Expr):
            yield from _global_fields(child, names, certain)


def _allocations(tree: n.Node) -> int:
    """Return the bytes that literals and joins inside loops and functions may allocate in one turn."""
    total = 0
    stack: list[tuple[n.Node, bool]] = [(tree, False)]
    while stack:
        node, repeats = stack.pop()
        repeats = repeats or isinstance(node, _REPEATING)
        if repeats:
            total += _allocation(node)
        stack.extend((child, repeats) for child in n.children(node))
    return total


_REPEATING = (n.WhileStatement, n.ForStatement, n.ForInStatement, n.Function, n.Lambda)


def _allocation(node: n.Node) -> int:
    if isinstance(node, (n.Array, n.Tuple)):
        return 64 + 8 * len(node.exprs)
    if isinstance(node, n.Dict):
        return 64 + 100 * len(node.items)
    if isinstance(node, (n.Function, n.Lambda)):
        return 200
    if isinstance(node, n.VariableAssignment) and isinstance(node.left, n.ArrayAccess):
        return 150
    return 100 if isinstance(node, (n.Call, n.Concat)) else 0
