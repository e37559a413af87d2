"""Bytecode, byte for byte: spec hog-language 5-7, hog-functions-api 5.5, 6.3, 9."""

import json
from pathlib import Path
from typing import Any

import pytest

from hoglab import hog
from hoglab.filters.hog import FILTER
from hoglab.hog.backend_bytecode import compile_bytecode
from hoglab.hog.compiler.lower import lower
from hoglab.hog.compiler.symbols import resolve
from hoglab.hog.errors import HogCompileError
from hoglab.hog.parser import parse_expression, parse_program, parse_template

EXAMPLES = json.loads((Path(__file__).parent / "bytecode_examples.json").read_text())
PARSERS = {"expression": parse_expression, "program": parse_program, "template": parse_template}


def bytecode(source: str, kind: str = "program", *, null_safe_between: bool = True) -> list[Any]:
    tree = lower(PARSERS[kind](source), source)
    resolve(tree, source)
    code = compile_bytecode(tree, null_safe_between=null_safe_between)
    assert json.loads(json.dumps(code)) == code
    return code


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["name"])
def test_worked_examples(example: dict[str, Any]) -> None:
    # the examples were made by a compiler whose `between` treats null as 0
    assert bytecode(example["source"], example["kind"], null_safe_between=False) == example["bytecode"]


def test_between_is_null_safe() -> None:
    assert bytecode("x not between 1 and 3", "expression") == [
        "_H", 1, 31, 32, "x", 1, 1, 12, 31, 33, 1, 12, 31, 33, 3, 12, 3, 3, 40, 18,
        33, 1, 32, "x", 1, 1, 15, 33, 3, 32, "x", 1, 1, 13, 4, 2, 39, 1, 30,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("if(c, 1)", [32, "c", 1, 1, 40, 4, 33, 1, 39, 1, 31]),
        (
            "multiIf(a, 1, b, 2)",
            [32, "a", 1, 1, 40, 4, 33, 1, 39, 11, 32, "b", 1, 1, 40, 4, 33, 2, 39, 1, 31],
        ),
        ("if(c)", [32, "c", 1, 1, 2, "if", 1]),
        ("and(a)", [32, "a", 1, 1, 2, "and", 1]),
        ("inf", [33, 0, 33, 1, 9]),
        ("-inf", [33, 0, 33, -1, 9]),
        ("nan", [33, 0, 33, 0, 9]),
        ("a[1]?.b", [32, "a", 1, 1, 33, 1, 45, 32, "b", 48]),
        ("()  -> 1", [52, "lambda", 0, 0, 3, 33, 1, 38, 53, 0]),
        ("x -> { f(x) }", [52, "lambda", 1, 0, 8, 36, 0, 2, "f", 1, 35, 31, 38, 53, 0]),
        ("a is not null", [31, 32, "a", 1, 1, 12]),
    ],
)
def test_expressions(source: str, code: list[Any]) -> None:
    assert bytecode(source, "expression") == ["_H", 1, *code]


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("", []),
        ("let x", [31, 35]),
        ("let x := x", [36, 0, 35]),
        ("for (;;) {}", [29, 40, 2, 39, -5]),
        ("for (f();;g()) {}", [2, "f", 0, 35, 29, 40, 6, 2, "g", 0, 35, 39, -9]),
        ("if (a) {}", [32, "a", 1, 1, 40, 0]),
        ("fetch(inputs.url);", [32, "url", 32, "inputs", 1, 2, 2, "fetch", 1, 35]),
    ],
)
def test_statements(source: str, code: list[Any]) -> None:
    assert bytecode(source) == ["_H", 1, *code]


def test_a_typed_catch_skips_its_whole_clause() -> None:
    # official compilers skip too little when the variable is not named `e` (spec: hog-language 6.10)
    code = bytecode("try { f() } catch (err: A) { g() }")
    clause = [36, 0, 2, "g", 0, 35, 35]
    at = code.index("A")
    assert code[at + 1 : at + 6] == [36, 1, 11, 40, len(clause) + 2]
    assert code[at + 6 : at + 6 + len(clause)] == clause


def test_inputs_keep_their_shape() -> None:
    value = {
        "url": "https://x.io",
        "who": ["{event}", 1, None],
        "lib": "v={event.properties.$lib}",
        "on": True,
    }
    assert hog.map_texts(value, lambda text, _path: bytecode(text, "template")) == {
        "url": ["_H", 1, 32, "https://x.io"],
        "who": [["_H", 1, 32, "event", 1, 1], 1, None],
        "lib": ["_H", 1, 32, "v=", 32, "$lib", 32, "properties", 32, "event", 1, 3, 2, "concat", 2],
        "on": True,
    }


def test_the_wire_forms_of_filters() -> None:
    assert hog.compile_expression("event = '$pageview'", FILTER).bytecode == [
        "_H", 1, 32, "$pageview", 32, "event", 1, 1, 11,
    ]  # fmt: skip
    assert hog.compile_expression("true", FILTER).bytecode == ["_H", 1, 29]


def test_between_cannot_be_made_to_explode() -> None:
    source = "x between 1 and 2"
    for _ in range(40):
        source = f"({source}) between 1 and 2"
    with pytest.raises(HogCompileError) as caught:
        bytecode(source, "expression")
    assert caught.value.code == "too-large"
