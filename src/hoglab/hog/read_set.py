"""Read set of a text: the parts of an event, a person, a group or the inputs that it can read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hoglab.hog import nodes as n
from hoglab.hog.compiler.analyse import global_path, read_paths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hoglab.hog.compiler.symbols import SymbolTable
    from hoglab.hog.program import Program

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadSet:
    """The paths of globals that a text may read.

    Everything below a path is read as well. `dynamic` are the paths below which the text looks up computed keys
    (`event.properties[key]`): everything there may be read.
    """

    paths: frozenset[Path]
    dynamic: frozenset[Path]

    def __iter__(self) -> Iterator[str]:
        """Yield the paths as authors write them, sorted; `[*]` stands for every key."""
        for path in sorted(self.paths):
            shown = path[0] + "".join(f".{name}" if _is_plain(name) else f"['{name}']" for name in path[1:])
            yield f"{shown}[*]" if path in self.dynamic else shown


def _is_plain(name: str) -> bool:
    return name.replace("$", "_").isidentifier() and name.isascii()


def read_set(program: Program) -> ReadSet:
    """Return the globals that a compiled program, expression or template reads; names of functions are not counted."""
    if program.tree is None or program.names is None:
        raise ValueError("inputs are read one template at a time")
    names = program.names
    functions = program.env.functions
    paths = {path for path in read_paths(program.tree, names) if len(path) > 1 or path[0] not in functions}
    return ReadSet(_topmost(paths), frozenset(_dynamic(program.tree, names)) & _topmost(paths))


def _topmost(paths: set[Path]) -> frozenset[Path]:
    """Return the paths without those that lie below another one."""
    return frozenset(
        path for path in paths if not any(path[:length] in paths for length in range(1, len(path)))
    )


def _dynamic(tree: n.Node, names: SymbolTable) -> Iterator[Path]:
    """Yield the global paths in which the tree looks up a computed key."""
    for node in n.walk(tree):
        if isinstance(node, n.ArrayAccess) and not isinstance(node.property, n.Constant):
            path = global_path(node.array, names)
            if path is not None:
                yield path
