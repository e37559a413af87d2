"""The shape of the source tree: no import circles, nothing too large to be looked through."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest
from tests.house.sources import (
    ROOT,
    circles,
    imports,
    modules,
    names_taken,
    reached_into,
    script_imports,
    taken,
)

from hoglab.storage.database import tables

MAX_MODULES = 15
"""Modules of one folder, its ``__init__`` apart."""
MAX_LINES = 600
"""Lines of one module."""
GROWING = {ROOT / "storage/database/migrations" / name for name in ("main", "queue")}
"""Folders with a module for each revision of a schema."""

ROOMS = sorted(path.name for path in ROOT.iterdir() if (path / "__init__.py").exists())


def test_no_modules_import_each_other() -> None:
    assert circles(imports()) == []


@pytest.mark.parametrize("folder", ["ui/src", "src/hoglab/hog/backend_javascript/library"])
def test_no_scripts_import_each_other(folder: str) -> None:
    """Imports of types count: who reads one file must not have to read the other first."""
    arrows = script_imports(ROOT.parents[1] / folder)
    assert sum(map(len, arrows.values())) > 20
    assert circles(arrows) == []


def test_imports_of_scripts_are_found(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a.ts").write_text(
        'import {\n  x,\n} from "./b/c"\nexport type { Y } from "./d.js"\nimport "preact"'
    )
    (tmp_path / "b" / "c.tsx").write_text("const page = () => import('../a')")
    (tmp_path / "d.js").write_text("")
    assert script_imports(tmp_path) == {"a.ts": {"b/c.tsx", "d.js"}, "b/c.tsx": {"a.ts"}, "d.js": set()}
    assert circles(script_imports(tmp_path)) == [{"a.ts", "b/c.tsx"}]


@pytest.mark.parametrize("room", ROOMS)
def test_no_packages_of_a_room_import_each_other(room: str) -> None:
    """Neither do a package and a module that stands beside it."""
    arrows: dict[str, set[str]] = {}
    for name, targets in imports().items():
        start = _place(room, name)
        ends = {_place(room, target) for target in targets} - {start, None}
        if start is not None:
            arrows.setdefault(start, set()).update(end for end in ends if end is not None)
    assert circles(arrows) == []


def _place(room: str, module: str) -> str | None:
    """The package or module that a module is, or is in, right below its room; None: another room."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == [room] and len(parts) > 2 else None


def test_no_folder_has_too_many_modules() -> None:
    counts = Counter(path.parent for path in modules().values() if path.name != "__init__.py")
    assert {
        str(folder): count
        for folder, count in counts.items()
        if count > MAX_MODULES and folder not in GROWING
    } == {}


def test_no_module_is_too_long() -> None:
    lengths = {str(path): len(path.read_text().splitlines()) for path in modules().values()}
    assert {path: length for path, length in lengths.items() if length > MAX_LINES} == {}


WINGS = sorted(
    name
    for name, path in modules().items()
    if path.name == "__init__.py" and re.fullmatch(r"hoglab\.(analysis|delivery|functions)\.\w+", name)
)
"""The packages of the largest rooms."""


@pytest.mark.parametrize("package", ["hoglab.hog", *WINGS])
def test_packages_are_reached_by_their_public_face(package: str) -> None:
    """`app` puts parts together, and may know what these are made of."""
    outside = [name for name in modules() if not f"{name}.".startswith((f"{package}.", "hoglab.app."))]
    assert {name: found for name in outside if (found := reached_into(package, taken()[name]))} == {}


def test_what_reaches_into_a_package_is_found() -> None:
    source = (
        "from hoglab.hog import run, _run\nfrom hoglab.hog.nodes import Expr\nimport hoglab.hog.rt.context"
    )
    assert reached_into("hoglab.hog", names_taken(source)) == {"hoglab.hog._run", "hoglab.hog.rt.context"}


TREES = "hoglab.hog.nodes"
"""Its classes have the names that HogQL's own trees give their nodes, which programs can see (``__hx_ast``)."""


def test_a_class_name_has_one_meaning() -> None:
    """Names that begin with an underscore mean something in their module only."""
    places: dict[str, list[str]] = {}
    for module, path in modules().items():
        if module != TREES:
            for name in public_classes(path.read_text()):
                places.setdefault(name, []).append(module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def public_classes(source: str) -> list[str]:
    """The classes that a module defines, wherever in it."""
    nodes = ast.walk(ast.parse(source))
    return [node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def test_classes_are_found() -> None:
    assert public_classes("class A:\n class B: pass\nclass _C: pass\ndef f():\n class D: pass") == [
        "A",
        "B",
        "D",
    ]


@pytest.mark.parametrize("room", [room for room in (*ROOMS, "app", "settings") if room != "storage"])
def test_engines_are_named_in_storage_only(room: str) -> None:
    """Others know them by protocols; names of files, and what texts say, are no code."""
    paths = [path for path in modules().values() if path.relative_to(ROOT).parts[0] in (room, f"{room}.py")]
    assert {str(path): found for path in paths if (found := engines_named(path.read_text()))} == {}


def engines_named(source: str) -> set[str]:
    """The names in a module that tell of an engine."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                names.add(name)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.add(name)
            case ast.Import(names=aliases):
                names.update(alias.name for alias in aliases)
            case ast.ImportFrom(module=str(module), names=aliases):
                names.update(f"{module}.{alias.name}" for alias in aliases)
    return {name for name in names if re.search("duckdb|sqlite|postgres|psycopg", name, re.IGNORECASE)}


SHARED = {"installation"}
"""Tables that `hoglab.db` has, too."""


def test_tables_of_the_queue_are_reached_through_its_stores() -> None:
    """Whoever else wants something of them asks a protocol of `storage`, whose tests hold for each engine."""
    theirs = set(tables.queue_metadata.tables) - SHARED
    paths = {name: path for name, path in modules().items() if not name.startswith("hoglab.storage")}
    named = {name: named_tables(path.read_text(), theirs) for name, path in paths.items()}
    assert {name: found for name, found in named.items() if found} == {}


def named_tables(source: str, known: Collection[str]) -> set[str]:
    """The known tables that a module imports, or names in statements of its own."""
    statements = " ".join(
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    written = re.findall(r'\b(?:FROM|JOIN|INTO|UPDATE)\s+"?(\w+)', statements)
    return (imported_tables(source) | set(written)) & set(known)


def imported_tables(source: str) -> set[str]:
    """The names that a module takes from the tables of databases."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=str(module), names=aliases) if module.endswith("database.tables"):
                found.update(alias.name for alias in aliases)
            case ast.Attribute(value=ast.Name(id="tables"), attr=name):
                found.add(name)
    return found


def test_tables_are_found_however_they_are_named() -> None:
    known = {"invocation", "dead_event"}
    for source in (
        "def f():\n    from hoglab.storage.database.tables import invocation, person",
        "from hoglab.storage.database import tables\ntables.invocation.c.id",
        "connection.execute(f'DELETE FROM invocation WHERE id = {id_}')",
    ):
        assert named_tables(source, known) == {"invocation"}
    assert named_tables("text = 'the FROM of a mail, an invocation'", known) == set()


def test_names_of_engines_are_found() -> None:
    source = (
        "import sqlite3 as x\ndef f(a):\n    from sqlalchemy.dialects.sqlite import insert\n    a.DuckDb()"
    )
    assert engines_named(source) == {"sqlite3", "sqlalchemy.dialects.sqlite.insert", "DuckDb"}
    assert engines_named("path = 'events.duckdb'") == set()


def test_circles_are_found() -> None:
    assert circles({1: [2], 2: [3], 3: [1, 4], 4: [5], 5: [4], 6: [6, 1]}) in (
        [{1, 2, 3}, {4, 5}],
        [{4, 5}, {1, 2, 3}],
    )


def test_imports_for_type_checking_and_inside_of_functions_count() -> None:
    assert "hoglab.storage.database" in imports()["hoglab.storage.change_watch"]
    assert Path(ROOT / "old_names.py") in modules().values()


DOCUMENTS = (
    "architecture.md",
    "delivery.md",
    "operate.md",
    *(f"design/{path.name}" for path in (ROOT.parents[1] / "docs/design").glob("*.md")),
)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_modules_that_documents_name_exist(document: str) -> None:
    root = ROOT.parents[1]
    others = [*(root / "benchmarks").glob("*.py"), *(root / "tests").rglob("*.py")]
    paths = [*map(str, modules().values()), *map(str, others)]
    named = re.findall(r"`([a-z_/]+\.py)`", (root / "docs" / document).read_text())
    assert named or document != "architecture.md"
    assert [each for each in named if not any(path.endswith(f"/{each}") for path in paths)] == []
