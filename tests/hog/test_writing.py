"""Expressions written back: the text parses to the tree it was made of."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from tests.hog.oracles.programs import expressions, oracle_settings

from hoglab.hog.formatter.unparse import write
from hoglab.hog.nodes import dump
from hoglab.hog.parser import parse_expression


def shape(source: str) -> str:
    return repr(_comparable(dump(parse_expression(source))))


def _comparable(tree: Any) -> Any:
    """The tree with `not` in one form: operator and call mean the same."""
    if isinstance(tree, list):
        return [_comparable(part) for part in tree]
    if not isinstance(tree, dict):
        return tree
    if tree["node"] == "Not":
        tree = {"node": "Call", "name": "not", "args": [tree["expr"]]}
    return {key: _comparable(part) for key, part in tree.items()}


@oracle_settings(100)
@given(expressions())
def test_generated_expressions(source: str) -> None:
    try:
        text = write(parse_expression(source))
    except TypeError:
        assume(condition=False)
    assert shape(text) == shape(source)


@pytest.mark.parametrize(
    "text",
    [
        "not (a or b) and not a",
        "a = 1 and not b != 'x' or c is not null",
        "(a + 1) * 2",
        "a.`two words`['k']?.[1].2",
        "f(1)(2)",
        "(x) -> x + 1",
        "{'a': [1, 2.5], `let`: (1,)}",
        "x not between 1 and 2",
        "'it\\'s \\\\ \\n'",
    ],
)
def test_shapes(text: str) -> None:
    assert shape(write(parse_expression(text))) == shape(text)


def test_refuses_blocks() -> None:
    with pytest.raises(TypeError):
        write(parse_expression("x -> { return x }"))
