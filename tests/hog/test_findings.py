"""Findings: what is doubtful about a text, at its place, and nothing that is not so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from tests.hog.oracles.corpus import CASES
from tests.hog.oracles.programs import oracle_settings, programs

from hoglab import hog
from hoglab.filters.hog import FILTER
from hoglab.hog.stdlib import LIBRARY

ENVIRONMENT = hog.ANY.with_functions(hog.host_function("fetch"))
CORPUS = Path(__file__).parent / "corpus"


def codes(source: str, **options: object) -> list[str]:
    return [found.code for found in hog.check(source, **options)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "code", "marked"),
    [
        ("let total := 1", "unused-variable", "total"),
        ("let total := 1 total := 2", "unused-variable", "total"),
        ("fun twice(n) { return n * 2 }", "unused-function", "twice"),
        ("fun again(n) { return again(n - 1) }", "unused-function", "again"),
        ("fun f(a, b) { return a } print(f(1, 2))", "unused-parameter", "b"),
        ("print(arrayMap(item -> 1, [1]))", "unused-parameter", "item"),
        ("for (let at, v in [1]) { print(v) }", "unused-variable", "at"),
        ("let length := 1 print(length)", "shadows-function", "length"),
        ("fun f(upper) { return upper } print(f(1))", "shadows-function", "upper"),
        ("let number := 1 print(numbr, number)", "unknown-name", "numbr"),
        ("print(later) let later := 1 print(later)", "unknown-name", "later"),
        ("return lenght('a')", "unknown-function", "lenght('a')"),
        ("return upper('a', 'b')", "arity", "upper('a', 'b')"),
        ("fun f(a) { return a } return f(1, 2)", "too-many-arguments", "f(1, 2)"),
        ("let f := a -> a return f(1, 2)", "too-many-arguments", "f(1, 2)"),
        ("let f := 'text' return f(1)", "not-callable", "f(1)"),
        ("for (let c in 'text') { print(c) }", "not-iterable", "'text'"),
        ("let n := 1 return n['a']", "no-property", "n['a']"),
        ("return upper([1])", "wrong-kind", "[1]"),
        ("return 1 + {}", "not-a-number", "{}"),
        ("return 1 print(2)", "unreachable", "print(2)"),
        ("if (x) { throw Error('a') } else { return 1 } print(2)", "unreachable", "print(2)"),
        ("let a := [] arrayPushBack(a, 1)", "unused-result", "arrayPushBack(a, 1)"),
        ("event.properties", "no-effect", "event.properties"),
        ("return arrayMap(x -> { x * 2 }, [1])", "dropped-value", "x * 2"),
        ("if (1 > 2) { print(1) }", "constant-condition", "1 > 2"),
        ("while (false) { print(1) }", "constant-condition", "false"),
        ("return event.a = {}", "constant-comparison", "event.a = {}"),
        ("return typeof(event) = null ? 1 : 2", "constant-comparison", "typeof(event) = null"),
        ("return not x is null and (x > 1) = null", "constant-comparison", "(x > 1) = null"),
        ("let a := 1 a = 2", "comparison-statement", "a = 2"),
        ("x := 1", "assign-global", "x"),
    ],
)  # fmt: skip
def test_finds(source: str, code: str, marked: str) -> None:
    found = {one.code: one for one in hog.check(source)}
    assert code in found, found
    one = found[code]
    assert source[one.start : one.end] == marked
    assert one.line == 1
    assert one.column == one.start + 1


@pytest.mark.parametrize(
    "source",
    [
        "let _unused := 1",
        "fun _f(_a) { return 1 }",
        "print(arrayReduce((_sum, x) -> x, [1], 0))",
        "fun f(a, b) { return b } print(f(1, 2))",
        "let count := 0 let add := () -> { count := count + 1 return count } return add()",
        "while (true) { if (event.a) { return 1 } }",
        "let f := fetch return f(event.url)",
        "for (let v in event.items) { print(v) }",
        "for (let i := 0; i < 3; i := i + 1) { print(i) }",
        "try { fetch('x') } catch (e) { print('failed') }",
        "let d := {} return d = d",
        "return [] = []",
        "return x -> { print(x) }",
        "return upper(event.name) || toString(1)",
        "return 'abc'.length",
        "let a := null if (event.x) { a := {'k': 1} } return a.k",
        "if (event.x) return 1 return 2",
    ],
)
def test_says_nothing_about_good_code(source: str) -> None:
    assert hog.check(source, ENVIRONMENT) == []


def test_corpus_has_no_errors_and_findings_are_in_order() -> None:
    sources = [(path.read_text(), "program") for path in sorted(CORPUS.glob("*.hog"))]
    sources += [(case.source, case.kind) for case in CASES if case.error is None and case.runs]
    for source, kind in sources:
        found = hog.check(source, ENVIRONMENT, kind=kind)  # type: ignore[arg-type]
        places = [(one.start, one.end) for one in found]
        assert places == sorted(places)
        assert all(0 <= start <= end <= len(source) for start, end in places)


@oracle_settings(40, shrink=False)
@given(programs(max_statements=4))
def test_code_found_unreachable_or_constant_behaves_so(source: str) -> None:
    """Conditions said to be constant can be replaced by that constant without changing what a program prints."""
    variables = {"event": {"event": "e", "properties": {"n": 1}}, "items": [1, 2]}
    before = hog.run(source, variables, seed="s")
    for one in sorted(hog.check(source), key=lambda one: -one.start):
        if one.code == "constant-condition" and "'" not in source[one.start : one.end]:
            constant = "true" if one.message.endswith("true") else "false"
            changed = f"{source[: one.start]} {constant} {source[one.end :]}"
            try:
                after = hog.run(changed, variables, seed="s")
            except hog.HogSourceError:
                continue  # the place does not hold the brackets around it
            assert (after.printed, repr(after.value)) == (before.printed, repr(before.value))


def test_examples_of_the_library_are_of_the_right_kinds() -> None:
    for function in LIBRARY.values():
        for expression, _ in function.examples:
            assert "wrong-kind" not in codes(expression, kind="expression"), expression


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("lenght('a')", "did you mean `length`?"),
        ("parseInt('1')", "did you mean `toInt`?"),
        ("TOSTRING(1)", "did you mean `toString`?"),
        ("fun helper() { return 1 } return helpr()", "did you mean `helper`?"),
        (
            "later() fun later() { return 1 }",
            "declare `later` before it is called, and not in an inner block",
        ),
        ("qqqqqq()", None),
    ],
)
def test_unknown_functions_get_a_hint(source: str, hint: str | None) -> None:
    (found,) = [one for one in hog.check(source) if one.code == "unknown-function"]
    assert found.hint == hint


def test_functions_of_other_uses_are_said_to_be_so() -> None:
    (found,) = hog.check("print(1)", FILTER, kind="filter")[:1]
    assert (found.code, found.hint) == ("unknown-function", "`print` cannot be used in a filter")


def test_known_globals() -> None:
    found = hog.check("return evnt.name", known=["event", "person"])
    assert [(one.code, one.hint) for one in found] == [("unknown-name", "did you mean `event`?")]
    assert hog.check("return event.name", known=["event"]) == []
    (refused,) = hog.check("propertis.a = 1", FILTER, kind="filter")
    assert (refused.code, refused.hint) == ("unknown-global", "did you mean `properties`?")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("properties.a = 1", []),
        ("properties.a = 1 and event = 'x'", []),
        ("1", ["filter-not-boolean"]),
        ("properties.a || 'x'", ["filter-not-boolean"]),
        ("properties.$browser", ["filter-not-boolean"]),
        ("if(properties.a, true, properties.b)", []),
    ],
)
def test_filters(source: str, found: list[str]) -> None:
    assert codes(source, env=FILTER, kind="filter") == found


def test_reads() -> None:
    found = hog.reads(
        "let e := event.properties\nreturn [e.a, person.properties['plan'], groups[event.type].id, "
        "inputs['two words'].x, arrayMap(upper, [project.name])]"
    )
    assert list(found) == [
        "event.properties",
        "event.type",
        "groups[*]",
        "inputs['two words'].x",
        "person.properties.plan",
        "project.name",
    ]
    assert list(hog.reads("Hi {person.name}", kind="template")) == ["person.name"]


def shapes_of(size: int) -> dict[str, str]:
    """Programs of a kind that has much to say, as long as ``size`` says."""
    return {
        "parameters": f"fun f({','.join(f'a{i}' for i in range(size))}) {{ return 1 }} f()",
        "parameters before a used one": f"fun f({','.join(f'a{i}' for i in range(size))}) {{ return a{size - 1} }} f()",
        "parameters of a lambda": f"let f := ({','.join(f'a{i}' for i in range(size))}) -> 1 print(f)",
        "misspelt variables": "\n".join(f"let value{i} := valeu{i}" for i in range(size)),
        "variables": "\n".join(f"let v{i} := 1" for i in range(size)),
        "unknown names": "\n".join(f"print(undefined{i})" for i in range(size)),
        "unknown functions": "\n".join(f"lenght{i}(1)" for i in range(size)),
        "functions": "\n".join(f"fun f{i}() {{ return 1 }}" for i in range(size)),
        "loops": "\n".join(f"for (let k{i}, v{i} in [1]) {{ }}" for i in range(size)),
        "hidden functions": "\n".join(f"{{ let length := {i} }}" for i in range(size)),
        "calls with too many arguments": "\n".join("length(1, 2, 3)" for _ in range(size)),
        "a long name": f"let {'n' * size * 10} := 1 print({'n' * size * 10}m)",
    }


def steps_of(source: str) -> int:
    """Number of calls that checking a program takes."""
    steps = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        hog.check(source)
    finally:
        sys.setprofile(None)
    return steps


@pytest.mark.parametrize("shape", shapes_of(1))
def test_a_check_takes_steps_in_proportion_to_the_text(shape: str) -> None:
    steps_of(shapes_of(10)[shape])  # what is made once
    once, thrice = steps_of(shapes_of(100)[shape]), steps_of(shapes_of(300)[shape])
    assert thrice < once * 4
