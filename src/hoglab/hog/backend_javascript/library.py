"""The JavaScript library: one module per function in the folder `library`, put together for a program.

Every file is an ES module that exports the one function it is named after and imports what it needs from its
neighbours, so that any JavaScript tool can read, check and run it. For a program, the modules it uses become plain
function declarations without imports and exports (spec: hog-language 11.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from hoglab.hog.backend_javascript.names import function_name
from hoglab.hog.patterns import MULTILINE, trusted

if TYPE_CHECKING:
    from collections.abc import Iterable

_IMPORT = trusted(r"^import \{ (\w+) \} from '\./\1\.js'\n", MULTILINE)
_FOLDER = files("hoglab.hog.backend_javascript") / "library"


@dataclass(frozen=True, slots=True)
class Unit:
    """One function of the JavaScript library: its declaration, and the names of the functions it calls."""

    name: str
    uses: tuple[str, ...]
    code: str


@cache
def unit_names() -> frozenset[str]:
    """Return the JavaScript names of all functions of the library."""
    return frozenset(
        entry.name.removesuffix(".js") for entry in _FOLDER.iterdir() if entry.name.endswith(".js")
    )


@cache
def unit(name: str) -> Unit:
    """Return the function of that name. Raises `KeyError` when there is none."""
    if name not in unit_names():
        raise KeyError(name)
    text = (_FOLDER / f"{name}.js").read_text(encoding="utf-8")
    code = text[text.index("export function") :].removeprefix("export ").strip()
    return Unit(name, tuple(_IMPORT.findall(text)), code)


def runs_in_browsers(function: str) -> bool:
    """Return whether the Hog function of that name exists in JavaScript."""
    return function_name(function) in unit_names()


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return the functions with all that they call, each after the functions it calls.

    Functions that do not call each other are in the order of their names.
    """
    ordered: dict[str, None] = {}
    entered = set()

    def visit(name: str) -> None:
        if name in entered:
            return
        entered.add(name)
        for used in sorted(unit(name).uses):
            visit(used)
        ordered[name] = None

    for name in sorted(names):
        visit(name)
    return tuple(ordered)


def library_code(names: Iterable[str]) -> str:
    """Return the declarations of the functions and of all that they call, one after the other."""
    return "\n".join(unit(name).code for name in in_order(names))
