"""The modules of the product and what they import, read without running them."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Hashable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

import hoglab

ROOT = Path(hoglab.__file__).parent
NodeT = TypeVar("NodeT", bound=Hashable)


@cache
def modules() -> dict[str, Path]:
    """Every module by its name; packages by that of theirs."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


@cache
def imports() -> dict[str, frozenset[str]]:
    """The modules that each module imports anywhere: in functions and for type checking, too."""
    known = modules()
    return {name: frozenset(_imported(name, path, known)) for name, path in known.items()}


def _imported(name: str, path: Path, known: Mapping[str, Path]) -> Iterable[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{name} imports by a relative name"
            targets = [
                submodule if (submodule := f"{node.module}.{alias.name}") in known else node.module
                for alias in node.names
            ]
        else:
            continue
        yield from (target for target in targets if target in known and target != name)


def script_imports(folder: Path) -> dict[str, set[str]]:
    """Return the files of a folder that each script below it imports, by their paths in it; lazy imports count."""
    paths = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix in (".js", ".ts", ".tsx") and not path.name.endswith(".d.ts")
    }
    arrows: dict[str, set[str]] = {}
    for path in paths:
        targets = re.findall(r"""(?:\bfrom|\bimport\(?)\s*["'](\.[^"']+)["']""", (folder / path).read_text())
        names = {posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) for target in targets}
        arrows[path] = {
            name + ending for name in names for ending in ("", ".ts", ".tsx") if name + ending in paths
        }
    return arrows


@cache
def public_face(package: str) -> frozenset[str]:
    """What a package says in its ``__all__`` that others may import: names, and modules that are public as they are."""
    for node in ast.parse(modules()[package].read_text()).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=names):
                return frozenset(ast.literal_eval(names))
    return frozenset()


@cache
def taken() -> dict[str, frozenset[str]]:
    """The names, with their modules, that each module imports."""
    return {name: names_taken(path.read_text()) for name, path in modules().items()}


def names_taken(source: str) -> frozenset[str]:
    """The names, with their modules, that a source imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def reached_into(package: str, names: Iterable[str]) -> set[str]:
    """Those of the imported names that are inside of a package without being public."""
    inside, public = f"{package}.", public_face(package)
    return {
        name
        for name in names
        if name.startswith(inside) and name.removeprefix(inside).split(".")[0] not in public
    }


def circles(arrows: Mapping[NodeT, Iterable[NodeT]]) -> list[set[NodeT]]:
    """The groups of nodes of which each leads to each other (strongly connected components, by Kosaraju)."""
    order: list[NodeT] = []
    seen: set[NodeT] = set()
    for start in arrows:
        _visit(start, arrows, seen, order)
    backwards: dict[NodeT, list[NodeT]] = {}
    for start, ends in arrows.items():
        for end in ends:
            backwards.setdefault(end, []).append(start)
    found = []
    seen = set()
    for start in reversed(order):
        group: list[NodeT] = []
        _visit(start, backwards, seen, group)
        if len(group) > 1:
            found.append(set(group))
    return found


def _visit(
    start: NodeT, arrows: Mapping[NodeT, Iterable[NodeT]], seen: set[NodeT], order: list[NodeT]
) -> None:
    """Add what can be reached from a node and was not seen yet to ``order``, each after what it leads to."""
    if start in seen:
        return
    seen.add(start)
    way = [(start, iter(arrows.get(start, ())))]
    while way:
        node, ends = way[-1]
        for end in ends:
            if end not in seen:
                seen.add(end)
                way.append((end, iter(arrows.get(end, ()))))
                break
        else:
            way.pop()
            order.append(node)
