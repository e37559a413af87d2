"""No module of a room imports one that imports it, not even for type checking or inside a function.

Circles that are still there are listed, room by room; whoever ends one takes it off the list.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import hoglab

SOURCE = Path(hoglab.__file__).parents[1]
ROOMS = sorted(path.name for path in (SOURCE / "hoglab").iterdir() if (path / "__init__.py").exists())
KNOWN: Mapping[str, tuple[frozenset[str], ...]] = {
    "hog": (frozenset({"rt.context", "rt.dates", "rt.printing", "rt.sql_text", "rt.values"}),)
}
"""The modules that still go in circles, without the name of their room."""

Graph = dict[str, set[str]]


def graph_of(folder: Path, package: str) -> Graph:
    """The modules of a package, each with those of the same package that it imports anywhere."""
    files = {}
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        files[".".join((package, *parts)).removesuffix(".__init__")] = path
    return {
        name: {imported for imported in imports(path, files) if imported != name}
        for name, path in files.items()
    }


def imports(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            # from a package a module may be imported, or something in the package itself
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            named = [name if name in modules else node.module for name in inner]
        else:
            continue
        yield from (name for name in named if name in modules)


def circles(graph: Graph) -> set[frozenset[str]]:
    """The sets of modules that can all reach each other: the strongly connected parts of a graph."""
    reached = {start: reachable(graph, start) for start in graph}
    return {
        frozenset(other for other in reached[start] if start in reached[other])
        for start in graph
        if start in reached[start]
    }


def reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    pending = [*graph[start]]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += graph[name]
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_modules_of_a_room_import_each_other_in_no_circle(room: str) -> None:
    package = f"hoglab.{room}"
    found = circles(graph_of(SOURCE / "hoglab" / room, package))
    assert {frozenset(name.removeprefix(f"{package}.") for name in circle) for circle in found} == {
        *KNOWN.get(room, ())
    }


def test_circles_of_every_kind_are_found(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    texts = {
        "__init__.py": "",
        "a.py": "from x.b import thing\n",
        "b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from x import c\n",
        "c.py": "def f():\n    import x.a\n",
        "d.py": "import x.a\n",
        "inner/__init__.py": "from x.inner.one import thing\n",
        "inner/one.py": "from x.inner import other\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert circles(graph_of(tmp_path, "x")) == {
        frozenset({"x.a", "x.b", "x.c"}),
        frozenset({"x.inner", "x.inner.one"}),
    }
