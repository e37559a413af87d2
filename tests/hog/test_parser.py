"""Trees: spec hog-language 2-4. `parser_vectors.json` holds answers of the official parser (hogql-parser 1.3.88)."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from hoglab.hog.errors import Diagnostic, HogSyntaxError
from hoglab.hog.nodes import Constant, Field, Node, children, dump, walk
from hoglab.hog.parser import (
    MAX_DEPTH,
    MAX_NODES,
    MAX_OPERATORS,
    parse_expression,
    parse_program,
    parse_template,
)

VECTORS = json.loads((Path(__file__).parent / "parser_vectors.json").read_text())
PARSERS = {"e": parse_expression, "p": parse_program, "t": parse_template}


def comparable(tree: Any) -> Any:
    """A dumped tree with numbers in the form of the vectors: ["num", text]."""
    if isinstance(tree, list):
        return [comparable(part) for part in tree]
    if not isinstance(tree, dict):
        return tree
    out = {key: comparable(part) for key, part in tree.items()}
    if tree.get("node") == "Constant":
        value = tree["value"]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            exact = isinstance(value, float) or abs(value) < 2**53
            text = (
                "nan"
                if isinstance(value, float) and math.isnan(value)
                else str(value if exact else float(value))
            )
            out["value"] = ["num", text]
    return out


@pytest.mark.parametrize(("kind", "source", "tree"), VECTORS)
def test_agrees_with_the_official_parser(kind: str, source: str, tree: Any) -> None:
    if tree is None:
        with pytest.raises(HogSyntaxError) as caught:
            PARSERS[kind](source)
        assert 0 <= caught.value.offset <= len(source)
    else:
        assert comparable(dump(PARSERS[kind](source))) == tree


def error(source: str) -> HogSyntaxError:
    with pytest.raises(HogSyntaxError) as caught:
        parse_program(source)
    return caught.value


def test_errors_say_what_where_and_how() -> None:
    found = error("let a := 1\nlet b = 2")
    assert found.message == "Expected `:=` after the name of the variable, found `=`"
    assert (found.line, found.column, found.offset) == (2, 7, 17)
    assert found.hint == "use `:=` to assign"
    assert found.code == "unexpected-token"
    assert found.render() == (
        "Expected `:=` after the name of the variable, found `=`\n"
        "  at line 2, column 7\n"
        "let b = 2\n"
        "      ^\n"
        "hint: use `:=` to assign"
    )


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("x += 1", "there is no `+=`; write `x := x + ...`"),
        ("x++", "there is no `++`; write `x := x + 1`"),
        ("a && b", "use `and`"),
        ("let f := fun(x) { return x }", "functions need a name"),
        ("let 'x' := 1", "single quotes make strings"),
        ("fun f(a := 1) {}", "a missing argument is null"),
        ("while (true) let x := 1", "put the body into braces"),
        ("let let := 1", "quote it"),
        ("return '\\d+'", "for a backslash"),
    ],
)
def test_hints_for_common_mistakes(source: str, hint: str) -> None:
    found = error(source)
    assert hint in (found.hint or ""), found.hint


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("break", "foreign-word"),
        ("const x := 1", "foreign-word"),
        ("if (a) let b := 1", "if-let"),
        ("if (a) return else b", "return-else"),
        ("let array := [1] return array[1]", "array-literal"),
    ],
)
def test_warnings_for_what_is_probably_not_meant(source: str, code: str) -> None:
    warnings: list[Diagnostic] = []
    parse_program(source, warnings)
    assert [warning.code for warning in warnings] == [code]
    assert warnings[0].hint


@pytest.mark.parametrize(
    "source", ["a[1:2]", "date '2020-01-01'", "(select a from b settings x = 1)", "(select top 5 a)"]
)
def test_what_is_not_supported_says_so(source: str) -> None:
    found = error(source)
    assert found.code == "unsupported"
    assert "upported" in found.message


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("return <a></b>", "Opening and closing HogQLX tags must match. Got a and b"),
        (
            "return <a children='x'>y</a>",
            "Can't have a HogQLX tag with both children and a 'children' attribute",
        ),
    ],
)
def test_faulty_tags(source: str, message: str) -> None:
    assert error(source).message == message


def test_depth_limit() -> None:
    for opening, closing in (
        ("(", ")"),
        ("[", "]"),
        ("f(", ")"),
        ("{'a': ", "}"),
        ("- ", ""),
        ("not ", ""),
        ("x -> ", ""),
    ):
        deep = opening * (MAX_DEPTH + 10) + "1" + closing * (MAX_DEPTH + 10)
        with pytest.raises(HogSyntaxError) as caught:
            parse_expression(deep)
        assert caught.value.code == "too-deep", opening
        shallow = opening * (MAX_DEPTH // 2 - 5) + "1" + closing * (MAX_DEPTH // 2 - 5)
        assert parse_expression(shallow)
    assert error("<a>" * 300 + "</a>" * 300).code == "too-deep"
    assert error("{" * 300 + "}" * 300).code == "too-deep"
    assert error("if (a) " * 300 + "b").code == "too-deep"
    assert error("1 ? " * 300 + "2").code == "too-deep"


def test_operators_in_a_row_are_limited() -> None:
    assert parse_expression("1" + " + 1" * MAX_OPERATORS)
    with pytest.raises(HogSyntaxError) as caught:
        parse_expression("1" + " + 1" * (MAX_OPERATORS + 1))
    assert caught.value.code == "too-deep"
    assert parse_expression("a" + " and a" * 5_000)
    assert parse_expression("a" + ".b" * 400)


def test_size_limit() -> None:
    with pytest.raises(HogSyntaxError) as caught:
        parse_expression("[" + "1," * (MAX_NODES + 1) + "]")
    assert caught.value.code == "too-large"


def test_nodes_know_their_place() -> None:
    source = "let total := event.properties.n * 2\nreturn total"
    program = parse_program(source)
    texts = {source[node.start : node.end] for node in walk(program)}
    assert {"event.properties.n", "event.properties.n * 2", "2", "return total", "total"} <= texts
    for node in walk(program):
        for child in children(node):
            assert node.start <= child.start <= child.end <= node.end


def test_nodes_are_immutable_and_compared_by_identity() -> None:
    one, other = Constant(0, 1, 1), Constant(0, 1, 1)
    assert one != other
    with pytest.raises(AttributeError):
        one.value = 2  # type: ignore[misc]
    assert isinstance(Field(0, 1, ("a",)), Node)


def test_dump_can_show_positions() -> None:
    assert dump(parse_expression("a + 1"), positions=True)["right"] == {
        "node": "Constant",
        "value": 1,
        "start": 4,
        "end": 5,
    }
