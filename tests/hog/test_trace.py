"""Tracing: what ran, in order, with values; and the same result as without."""

from __future__ import annotations

from pathlib import Path

import pytest

from hoglab import hog
from hoglab.hog.rt.printing import repr_value

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.hog"))


def steps(source: str) -> list[tuple[int, int, tuple[tuple[str, str], ...]]]:
    found: list[hog.TraceStep] = []
    hog.trace(source, found.append, {"event": {"n": 1}})
    return [(step.line, step.depth, step.values) for step in found]


def test_statements_calls_and_loops() -> None:
    source = """\
let total := 0
fun twice(n) {
  return n * 2
}
for (let k, v in [3]) {
  total := total + twice(v)
}
let d := {}
d.a.b := 1"""
    assert steps(source.replace("d.a.b", "d.a")) == [
        (1, 0, (("total", "0"),)),
        (5, 0, (("k", "0"), ("v", "3"))),
        (3, 1, (("return", "6"),)),
        (6, 0, (("total", "6"),)),
        (8, 0, (("d", "{}"),)),
        (9, 0, (("d", "{'a': 1}"),)),
    ]


def test_errors_are_those_of_a_run() -> None:
    found: list[hog.TraceStep] = []
    result = hog.trace(
        "try { throw Error('x') } catch (e) { print(e.message) }\nthrow Error('y')", found.append
    )
    assert result.printed == ("x",)
    assert result.error is not None
    assert (result.error.message, result.error.line) == ("Error('y')", 2)
    assert [step.text for step in found] == [
        "try { throw Error('x') } catch (e) { print(e.message) }",
        "throw Error('x')",
        "print(e.message)",
        "throw Error('y')",
    ]


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_watching_changes_nothing(path: Path) -> None:
    source = path.read_text()
    if "fetch(" in source or "now()" in source:
        return
    variables = {"event": {"properties": {"n": 1}}}
    result, expected = hog.trace(source, lambda _step: None, variables), hog.run(source, variables)
    assert result.printed == expected.printed
    assert repr_value(result.value) == repr_value(expected.value)
    assert (result.error is None) == (expected.error is None)
