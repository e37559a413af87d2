"""Protocols: few, each in the package that implements it, or below a room that does."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.house.sources import ROOT, modules

from hoglab.storage.invocations import InvocationQueue

MOST = 56
"""Protocols of the whole program. The number may only shrink."""
QUEUE_VERBS = 14
"""Public methods of the invocation queue. The number may only shrink."""
ELSEWHERE = {
    "hog.patterns.Anchored": "a pattern of `re`",
    "statistics.samples.quantiles.Ordered": "an array of NumPy, or a list",
    "storage.database.migrations.Migratable": "connections, which run migrations, so that these cannot import them",
}
"""Protocols that neither their package nor a room above implements, each with what does."""


@dataclass(frozen=True, slots=True)
class Class:
    """A class of the program, or a module, which may implement a protocol, too.

    ``members``: names that it, or a class that it is made of, gives its instances.
    """

    name: str
    module: str
    members: frozenset[str]
    is_protocol: bool

    @property
    def package(self) -> str:
        """The package whose folder the module is in."""
        is_package = modules()[self.module].name == "__init__.py"
        return self.module if is_package else self.module.rpartition(".")[0]

    @property
    def room(self) -> str:
        """The folder below that of the program."""
        return self.module.split(".")[1]


def test_protocols_are_few() -> None:
    assert sum(known.is_protocol for known in classes()) <= MOST


def test_the_queue_has_few_verbs() -> None:
    verbs = {name for name in vars(InvocationQueue) if not name.startswith("_")}
    assert len(verbs) <= QUEUE_VERBS, "numbers are `QueueCounts`, waits are `Arrivals`"


def test_protocols_are_where_they_are_implemented_or_below() -> None:
    """What a class far away has is asked for by the name that its own package gives it."""
    known = classes()
    misplaced = {
        f"{protocol.module.removeprefix('hoglab.')}.{protocol.name}"
        for protocol in known
        if protocol.is_protocol
        and protocol.members != {"__call__"}  # the type of a function
        and not is_in_place(protocol, implementations(protocol, known))
    }
    assert misplaced == set(ELSEWHERE), "import the capability of the package that implements it"


def test_implementations_are_found() -> None:
    source = """
class Wide(Protocol):
    size: int
    def one(self) -> int: ...
    @property
    def two(self) -> int: ...
class Half:
    def __init__(self):
        self.size = 1
    def one(self): ...
class Whole(Half):
    two: int
class More(Wide, Protocol):
    def three(self): ...
class Other:
    def two(self): ...
"""
    known = list(_classes({"hoglab.storage": ast.parse(source)}))
    by_name = {each.name: each for each in known}
    assert [each.name for each in known if each.is_protocol] == ["Wide", "More"]
    assert by_name["More"].members == {"size", "one", "two", "three"}
    assert [each.name for each in implementations(by_name["Wide"], known)] == ["Whole"]
    assert implementations(by_name["More"], known) == []


def test_rooms_above_are_known() -> None:
    def of(module: str, *, is_protocol: bool = False) -> Class:
        return Class("X", module, frozenset("x"), is_protocol)

    protocol = of("hoglab.people.batch", is_protocol=True)
    assert is_in_place(protocol, [of("hoglab.ingestion.normalise")])
    assert is_in_place(protocol, [of("hoglab.people.merging")])
    assert not is_in_place(protocol, [of("hoglab.storage.identity")])
    assert is_in_place(protocol, [of("hoglab.storage.identity"), of("hoglab.app.server")])
    assert not is_in_place(protocol, [])
    deep = of("hoglab.analysis.query.scope", is_protocol=True)
    assert not is_in_place(deep, [of("hoglab.analysis.execution.computer")])


def is_in_place(protocol: Class, implemented: list[Class]) -> bool:
    """Return whether some of what implements a protocol is in its package, or in a room above."""
    heights, below = layers(), f"{protocol.package}."
    return any(
        f"{other.module}.".startswith(below) or heights[other.room] < heights[protocol.room]
        for other in implemented
    )


def implementations(protocol: Class, known: list[Class]) -> list[Class]:
    """Return the classes, and modules, that have all that a protocol names, but for other protocols."""
    return [other for other in known if not other.is_protocol and other.members >= protocol.members]


@cache
def layers() -> dict[str, int]:
    """Return the layer of each room, 0 for the highest."""
    project = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text())
    rows: list[str] = project["tool"]["importlinter"]["contracts"][0]["layers"]
    return {
        room.strip("() "): height
        for height, row in enumerate(rows)
        for room in row.replace("|", ":").split(":")
    }


@cache
def classes() -> list[Class]:
    """Return all classes of the program."""
    return list(_classes({name: ast.parse(path.read_text()) for name, path in modules().items()}))


def _classes(trees: dict[str, ast.Module]) -> Iterator[Class]:
    nodes = [
        (module, node)
        for module, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    ]
    by_name = {node.name: node for _, node in nodes}
    for module, tree in trees.items():
        functions = (node.name for node in tree.body if isinstance(node, ast.FunctionDef))
        yield Class(module, module, frozenset(functions), is_protocol=False)
    for module, node in nodes:
        members = frozenset(_members(node, by_name))
        yield Class(node.name, module, members, is_protocol="Protocol" in _bases(node))


def _members(node: ast.ClassDef, by_name: dict[str, ast.ClassDef]) -> Iterator[str]:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement.name
            yield from (
                target.attr
                for target in ast.walk(statement)
                if isinstance(target, ast.Attribute)
                and isinstance(target.ctx, ast.Store)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
            )
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id
        elif isinstance(statement, ast.Assign):
            yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
    for base in _bases(node):
        if base in by_name and by_name[base] is not node:
            yield from _members(by_name[base], by_name)


def _bases(node: ast.ClassDef) -> list[str]:
    """Return the names of the classes that a class is made of, without what these are generic in."""
    plain = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
    return [base.id for base in plain if isinstance(base, ast.Name)]
