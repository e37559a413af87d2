"""The shape of the source tree: no import circles, nothing too large to be looked through."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from tests.house.sources import ROOT, circles, imports, modules

MAX_MODULES = 15
"""Modules of one folder, its ``__init__`` apart."""
MAX_LINES = 600
"""Lines of one module."""
GROWING = {ROOT / "storage/database/migrations" / name for name in ("main", "queue")}
"""Folders with a module for each revision of a schema."""

ROOMS = sorted(path.name for path in ROOT.iterdir() if (path / "__init__.py").exists())


def test_no_modules_import_each_other() -> None:
    assert circles(imports()) == []


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


def test_circles_are_found() -> None:
    assert circles({1: [2], 2: [3], 3: [1, 4], 4: [5], 5: [4], 6: [6, 1]}) in (
        [{1, 2, 3}, {4, 5}],
        [{4, 5}, {1, 2, 3}],
    )


def test_imports_for_type_checking_and_inside_of_functions_count() -> None:
    assert "hoglab.storage.database" in imports()["hoglab.storage.change_watch"]
    assert Path(ROOT / "app.py") in modules().values()


@pytest.mark.parametrize("document", ["architecture.md", "delivery.md", "operate.md"])
def test_modules_that_documents_name_exist(document: str) -> None:
    root = ROOT.parents[1]
    paths = [*map(str, modules().values()), *map(str, (root / "benchmarks").glob("*.py"))]
    named = re.findall(r"`([a-z_/]+\.py)`", (root / "docs" / document).read_text())
    assert named or document == "operate.md"
    assert [each for each in named if not any(path.endswith(f"/{each}") for path in paths)] == []
