"""Compilation unit: the state that all functions of one compiled text share, such as facts, constants and positions."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hoglab.hog.backend_python.build import name
from hoglab.hog.compiler.optimise import Folder

if TYPE_CHECKING:
    import ast
    from collections.abc import Mapping

    from hoglab.hog import nodes as n
    from hoglab.hog.compiler.analyse import Effects, ProgramFacts
    from hoglab.hog.compiler.symbols import Symbol, SymbolTable
    from hoglab.hog.compiler.types import InferredTypes
    from hoglab.hog.stdlib.registry import Function


class Lines:
    """Converter of offsets of one source text into lines (from 1, after `base` others) and columns (from 0)."""

    def __init__(self, source: str, base: int = 0) -> None:
        self.base = base
        self.starts = [0]
        at = source.find("\n")
        while at >= 0:
            self.starts.append(at + 1)
            at = source.find("\n", at + 1)

    def place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self.starts, offset)
        return self.base + line, offset - self.starts[line - 1]


@dataclass(slots=True)
class Constants:
    """Objects that generated code refers to by the names `k0`, `k1`, ..."""

    values: dict[str, Any] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def add(self, value: Any) -> ast.expr:
        """Return an expression for the object; the same object keeps its name."""
        known = self.names.get(id(value))
        if known is None:
            known = f"k{len(self.values)}"
            self.values[known] = value
            self.names[id(value)] = known
        return name(known)


@dataclass(slots=True)
class CompilationUnit:
    """One text being compiled.

    `sure_roots`: globals that always exist. `chains`: the global read at each place, to name a missing one.
    """

    names: SymbolTable
    kinds: InferredTypes
    facts: ProgramFacts
    effects: Effects
    functions: Mapping[str, Function]
    lines: Lines
    constants: Constants
    chains: dict[tuple[int, int], tuple[str, ...]]
    call_depth: int
    sure_roots: frozenset[str] = frozenset()
    folder: Folder = field(default_factory=Folder)
    counter: list[int] = field(default_factory=lambda: [0])
    hoisted: dict[tuple[str, ...], str] = field(default_factory=dict)
    dicts: set[str] = field(default_factory=set)

    def fresh(self, prefix: str) -> str:
        """Return a new name for a variable of the generated code."""
        self.counter[0] += 1
        return f"{prefix}{self.counter[0]}"

    def place(self, node: n.Node) -> tuple[int, int]:
        return self.lines.place(node.start)


def in_cell(symbol: Symbol) -> bool:
    """Return whether a variable lives in a one-element list: it is captured, and declared by every turn of a loop."""
    return symbol.captured and symbol.in_loop


def is_direct(symbol: Symbol | None) -> bool:
    """Return whether a name always means one declared function, so that it can be called directly."""
    return (
        symbol is not None
        and symbol.function is not None
        and not symbol.reassigned
        and not (symbol.in_loop and symbol.captured)
    )
