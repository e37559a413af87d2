"""The number of the compiler is another one when the same sources become something else.

`python -m tests.functions.test_compiler_version` records what they become, once the number is raised (or sources are
new).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hog.oracles.corpus import CASES

from hoglab import hog
from hoglab.filters.hog import FilterContext, build_filter, filter_bytecode
from hoglab.filters.hog.operators import OPERATORS
from hoglab.filters.model import FilterError
from hoglab.functions.configuration import compiler_version
from hoglab.functions.site.functions import filter_program, transpile_input, transpiled
from hoglab.hog.backend_javascript import library_code

RECORD = Path(__file__).parent / "compiled.json"
VALUES = ("pro", 5, "5", [1, 9], "1.2.3", "1.2.*", "2024-02-29")
CONTEXT = FilterContext(
    actions={1: [{"event": "a", "url": "/x"}, {"event": "$autocapture", "selector": "a.b"}]}
)
COMPILERS: dict[str, Callable[[str], hog.Program]] = {
    "program": lambda source: hog.compile_program(source, hog.ANY),
    "expression": lambda source: hog.compile_expression(source, hog.ANY),
    "template": lambda source: hog.compile_template(source, hog.ANY),
}


def artefacts() -> Iterator[tuple[str, Any]]:
    """What each source becomes, by its name; a text where it is refused."""
    for case in CASES:
        yield (
            case.name,
            [attempt(make, case.kind, case.source) for make in (bytecode, javascript, browser_input)],
        )
    for operator in OPERATORS:
        leaves = [{"key": "k", "type": "event", "operator": operator, "value": value} for value in VALUES]
        made = [
            attempt(make, stored_filter(leaf))
            for leaf in leaves
            for make in (compiled_filter, browser_filter)
        ]
        yield f"filter {operator}", made


def bytecode(kind: str, source: str) -> Any:
    return COMPILERS[kind](source).bytecode


def javascript(kind: str, source: str) -> Any:
    return with_library(COMPILERS[kind](source))


def browser_input(kind: str, source: str) -> Any:
    return transpile_input({"a": [source, 1]}) if kind == "template" else None


def stored_filter(leaf: dict[str, Any]) -> dict[str, Any]:
    return {"events": [{"id": "e", "properties": [leaf]}], "actions": [{"id": 1}], "properties": [leaf]}


def compiled_filter(stored: dict[str, Any]) -> Any:
    return filter_bytecode(build_filter(stored, CONTEXT))


def browser_filter(stored: dict[str, Any]) -> Any:
    return with_library(filter_program(stored, CONTEXT))


def attempt(make: Callable[..., Any], *given: Any) -> Any:
    try:
        return make(*given)
    except (hog.HogSourceError, FilterError) as error:
        return f"refused: {error}"


def with_library(program: hog.Program) -> Any:
    return transpiled(program.javascript), library_code(program.javascript.stl)


def digests() -> dict[str, str]:
    return {
        name: hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:10]
        for name, made in artefacts()
    }


def problem(recorded: dict[str, Any], present: dict[str, str], version: int) -> str | None:
    """What is to be done before this may be released."""
    changed = [name for name, digest in recorded["digests"].items() if present.get(name, digest) != digest]
    if changed and recorded["version"] == version:
        return f"{len(changed)} sources become something else ({changed[0]} ...): raise COMPILER_VERSION"
    if recorded != {"version": version, "digests": present}:
        return "run `python -m tests.functions.test_compiler_version` and commit what it records"
    return None


def test_the_number_tells_compilers_apart() -> None:
    assert problem(json.loads(RECORD.read_text()), digests(), compiler_version.COMPILER_VERSION) is None


@pytest.mark.parametrize(
    ("present", "version", "words"),
    [
        ({"a": "1", "b": "2"}, 7, None),
        ({"a": "1", "b": "3"}, 7, "raise COMPILER_VERSION"),
        ({"a": "1", "b": "3"}, 8, "commit what it records"),
        ({"a": "1", "b": "2", "c": "4"}, 7, "commit what it records"),
        ({"a": "1"}, 7, "commit what it records"),
    ],
)
def test_what_is_said_when_something_changed(
    present: dict[str, str], version: int, words: str | None
) -> None:
    found = problem({"version": 7, "digests": {"a": "1", "b": "2"}}, present, version)
    assert found is None if words is None else found is not None and words in found


def test_other_artefacts_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The digests are of what is compiled: another opcode, or another line of the library, and they differ."""
    before = digests()
    monkeypatch.setattr("hoglab.hog.backend_bytecode.NOT", 99)
    after = digests()
    assert {name for name in before if before[name] != after[name]} > {"filter not_regex"}


def record() -> None:
    """Writes what the sources become, unless the number must be raised before."""
    present, version = digests(), compiler_version.COMPILER_VERSION
    if RECORD.exists():
        found = problem(json.loads(RECORD.read_text()), present, version)
        if found is not None and "raise" in found:
            raise SystemExit(found)
    RECORD.write_text(json.dumps({"version": version, "digests": present}, indent=0) + "\n")


if __name__ == "__main__":
    record()
