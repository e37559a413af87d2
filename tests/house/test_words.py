"""The words of the sources: descriptions that are understood alone, and names that say what they hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.house.sources import modules

VERBS = frozenset((Path(__file__).parent / "verbs.txt").read_text().split())
"""Imperatives with which docstrings of functions begin; who needs another one adds it."""
FRAGMENT = re.compile(
    r"(Those|These|That|Of|And|As|So|By|At|Than|Then|The same|The others?|Or|But|Which|Whose|Also|Its|Their)\b"
)
"""Beginning of a text that goes on with something said elsewhere."""
PROPERTIES = {"property", "cached_property", "setter"}
"""Decorators that make an attribute of a function, which is described as one."""


class Description(NamedTuple):
    """The first line of a docstring, or of a text about the name above it."""

    line: int
    text: str
    is_of_function: bool


def descriptions(source: str) -> Iterator[Description]:
    """Yield all descriptions of a source; functions that are read as attributes count as these."""
    tree = ast.parse(source)
    functions = {
        node.body[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_property(node)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield Description(node.lineno, text.strip().partition("\n")[0], node in functions)


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(decorator).rpartition(".")[2] in PROPERTIES for decorator in node.decorator_list)


def all_descriptions() -> Iterator[tuple[str, Description]]:
    """Yield each description of the product with the place where it stands."""
    for name, path in modules().items():
        for description in descriptions(path.read_text()):
            yield f"{name}:{description.line}", description


def test_descriptions_are_understood_alone() -> None:
    """Help texts, editors and the API's document show them without what stands around them."""
    assert {place: it.text for place, it in all_descriptions() if FRAGMENT.match(it.text)} == {}


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    of_functions = {place: it.text for place, it in all_descriptions() if it.is_of_function}
    assert len(of_functions) > 4_000
    assert {
        place: text for place, text in of_functions.items() if text.split(maxsplit=1)[0] not in VERBS
    } == {}


def test_verbs_are_in_order() -> None:
    assert (Path(__file__).parent / "verbs.txt").read_text().split() == sorted(VERBS)


def test_all_descriptions_are_found() -> None:
    source = '''"""A module."""
class A:
    """Of what."""
    x = 1
    """Those."""
    @functools.cached_property
    def p(self): "Number."
async def f(): "Return."
"what" + "x"'''
    assert [(it.text, it.is_of_function) for it in descriptions(source)] == [
        ("A module.", False),
        ("Of what.", False),
        ("Those.", False),
        ("Return.", True),
        ("Number.", False),
    ]
    assert [it.text for it in descriptions(source) if FRAGMENT.match(it.text)] == ["Of what.", "Those."]


EMPTY_NAMES = {"each", "found", "made", "one", "those", "told"}
"""Names that say nothing of what they hold."""


def test_names_say_what_they_hold() -> None:
    named = {name: bound_names(path.read_text()) & EMPTY_NAMES for name, path in modules().items()}
    assert {name: names for name, names in named.items() if names} == {}


def bound_names(source: str) -> set[str]:
    """Return the names that a source gives to parameters and variables, wherever it binds them."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.add(name)
            case (
                ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.ExceptHandler(name=str(name))
            ):
                names.add(name)
    return names


def test_bound_names_are_found() -> None:
    source = """
for a, (b, *c) in x:
    d = [e for e in a if (f := e)]
async def g(h, *, i):
    async with j as k: pass
    match l:
        case [m, *n]: pass
lambda o: o
"""
    assert bound_names(source) == set("abcdefhikmno")
