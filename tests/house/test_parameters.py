"""The parameters of functions and constructors: few enough to be read at the call."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.sources import ROOT, modules

MAX_PARAMETERS = 7
"""Parameters of one function, ``self`` and ``cls`` apart."""
ALLOWED = {
    "accounts/activity.py record": 9,
    "accounts/service.py AccountService.insert_key": 8,
    "analysis/results/exposures.py _Asked.of": 9,
    "flags/matching/outcome.py FlagOutcome.__init__": 8,
    "hog/run.py Execution.__init__": 8,
    "hog/stdlib/registry.py function": 14,
    "ingestion/steps.py BatchSteps.__init__": 9,
    "reports/report.py metric_report": 8,
    "storage/event_store/duckdb.py DuckDbEventStore.__init__": 8,
}
"""Functions with more, and how many. The list may only shrink."""
COMMANDS = ("cli/",)
"""Folders whose functions with a decorator are commands: each parameter is an option that people write by its name."""


def test_no_function_has_more_than_seven_parameters() -> None:
    counted = dict(
        function
        for path in modules().values()
        for function in parameters(path.read_text(), str(path.relative_to(ROOT)))
    )
    above = {name: count for name, count in counted.items() if count > MAX_PARAMETERS}
    assert above == ALLOWED, "one configuration, or one object for services that go together, is clearer"


def test_parameters_are_counted() -> None:
    source = """
def plain(a, /, b, *rest, c=1, **more):
    async def inner(d): ...
class Box:
    def __init__(self, a, b): ...
    @classmethod
    def of(cls, a): ...
    @staticmethod
    def made(a, b): ...
"""
    assert dict(parameters(source, "room/x.py")) == {
        "room/x.py plain": 5,
        "room/x.py plain.inner": 1,
        "room/x.py Box.__init__": 2,
        "room/x.py Box.of": 1,
        "room/x.py Box.made": 2,
    }
    command = "@app.command()\ndef plan(a, b): ...\ndef other(a): ...\n"
    assert dict(parameters(command, "cli/x.py")) == {"cli/x.py other": 1}


def parameters(source: str, path: str) -> Iterator[tuple[str, int]]:
    """Yield the name of each function of a module, after its path, and the number of its parameters."""
    yield from _below(ast.parse(source), path, ())


def _below(node: ast.AST, path: str, names: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = (*names, child.name)
            if not (child.decorator_list and path.startswith(COMMANDS)):
                yield f"{path} {'.'.join(inside)}", _count(child, is_method=isinstance(node, ast.ClassDef))
            yield from _below(child, path, inside)
        else:
            yield from _below(child, path, (*names, child.name) if isinstance(child, ast.ClassDef) else names)


def _count(function: ast.FunctionDef | ast.AsyncFunctionDef, *, is_method: bool) -> int:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    count = len(named) + (arguments.vararg is not None) + (arguments.kwarg is not None)
    return count - (is_method and bool(named) and named[0].arg in ("self", "cls"))
