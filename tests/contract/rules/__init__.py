"""The numbered rules of the contract, and which tests prove them.

The rules are data: ``*.toml`` beside this file, one short sentence each. A test names what it proves::

    @rule("1.5.6")
    def test_delete_is_refused(api: Api) -> None: ...
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

import pytest

FOLDER = Path(__file__).parent
PROOFS = tuple(FOLDER.parents[1] / room for room in ("contract", "functions", "delivery"))
"""Where tests may prove rules: the contract's own, and the suites that go into the depth of hog functions."""


def rule(*numbers: str) -> pytest.MarkDecorator:
    """Marks a test as proof of rules. Raises `KeyError` for a number that no rule has."""
    known = rules()
    for number in numbers:
        known[number]
    return pytest.mark.rule(*numbers)


@cache
def rules() -> Mapping[str, str]:
    """Every rule by its number."""
    found: dict[str, str] = {}
    for path in sorted(FOLDER.glob("*.toml")):
        for section in tomllib.loads(path.read_text(encoding="utf-8")).values():
            for number, sentence in section.items():
                if number in found:
                    raise ValueError(f"{path.name}: rule {number} is there twice")
                found[number] = sentence
    return MappingProxyType(found)


def proven() -> set[str]:
    """The rules that some test names, from the sources: whichever tests are selected, the answer is the same."""
    found: set[str] = set()
    for path in (path for folder in PROOFS for path in folder.rglob("test_*.py")):
        found.update(_named_in(ast.parse(path.read_text(encoding="utf-8"))))
    return found


def _named_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "rule":
            yield from (one.value for one in node.args if isinstance(one, ast.Constant))
