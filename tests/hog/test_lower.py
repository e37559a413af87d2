"""The core tree: which calls are operators, and which names hide them."""

from __future__ import annotations

import pytest

from hoglab import hog
from hoglab.hog import nodes as n
from hoglab.hog.compiler.lower import MAX_ARGUMENTS, OPERATORS, lower
from hoglab.hog.parser import parse_expression, parse_program

KINDS: dict[str, type[n.Expr]] = {
    "not": n.Not, "and": n.And, "or": n.Or, "if": n.If, "multiIf": n.If, "ifNull": n.IfNull, "concat": n.Concat,
}  # fmt: skip
RIGHT = {
    "not": {1}, "and": {2, 3, 4}, "or": {2, 3, 4}, "if": {2, 3}, "multiIf": {2, 3, 4}, "ifNull": {2},
    "concat": {1, 2, 3, 4},
}  # fmt: skip


def lowered(source: str) -> n.Expr:
    return lower(parse_expression(source), source)


def called(source: str) -> list[str]:
    """The names of what a program still calls by name."""
    tree = lower(parse_program(source), source)
    return [node.name for node in n.walk(tree) if isinstance(node, n.Call)]


def test_every_operator_is_tested() -> None:
    assert KINDS.keys() == RIGHT.keys() == OPERATORS.keys()


@pytest.mark.parametrize("count", range(5))
@pytest.mark.parametrize("name", KINDS)
def test_an_operator_has_its_number_of_arguments(name: str, count: int) -> None:
    found = lowered(f"`{name}`({', '.join('abcd'[:count])})")
    assert type(found) is (KINDS[name] if count in RIGHT[name] else n.Call)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("a ? 1 : 2", n.If),
        ("a ?? b", n.IfNull),
        ("a || b", n.Concat),
        ("f'{a}!'", n.Concat),
        ("case when a then 1 end", n.If),
        ("case when a then 1 when b then 2 else 3 end", n.If),
    ],
)
def test_what_is_written_otherwise_is_the_same_operator(source: str, kind: type[n.Expr]) -> None:
    assert type(lowered(source)) is kind


def test_branches_and_what_stands_for_no_branch() -> None:
    found = lowered("multiIf(a, 1, b, 2)")
    assert isinstance(found, n.If)
    assert len(found.branches) == 2
    assert found.otherwise is None
    other = lowered("if(a, 1, 2)")
    assert isinstance(other, n.If)
    assert isinstance(other.otherwise, n.Constant)


def test_a_call_of_what_a_call_gives() -> None:
    found = lowered("f(1)(2)")
    assert isinstance(found, n.ExprCall)
    assert isinstance(found.expr, n.Call)
    chosen = lowered("if(a, f, g)(2)")
    assert isinstance(chosen, n.ExprCall)
    assert isinstance(chosen.expr, n.If)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("let concat := 1 return concat('a')", ["concat"]),
        ("let concat := concat('a')", ["concat"]),
        ("fun concat(a) { return concat(a) }", ["concat"]),
        ("fun f(concat) { return concat('a') } return concat('b')", ["concat"]),
        ("return (concat -> concat('a'))(x -> concat('b'))", ["concat"]),
        ("for (let concat in a) { concat('a') } concat('b')", ["concat"]),
        ("for (let concat, v in concat('c')) { concat('a') }", ["concat"]),
        ("try { concat('b') } catch (concat) { concat('a') }", ["concat"]),
        ("{ let concat := 1 } return concat('b')", []),
        ("if (a) fun concat(b) { return 1 } return concat('b')", []),
        ("while (a) fun concat(b) { return 1 } return concat('b')", []),
        ("for (let i in a) fun concat(b) { return 1 } return concat('b')", []),
        ("fun not(a) { return 1 } let ifNull := 2 return [not(1), ifNull(1, 2), not(1, 2)]", ["not"]),
    ],
)
def test_only_concat_is_hidden_and_only_where_the_name_reaches(source: str, names: list[str]) -> None:
    assert called(source) == names


def test_names_of_earlier_pieces_of_a_session_hide_as_well() -> None:
    session = hog.Session()
    session.run("fun concat(a) { return 'mine' }")
    assert session.run("concat('x')").result.value == "mine"


@pytest.mark.parametrize("call", ["concat({})", "and({})", "f({})", "f(1)({})", "f({})(1)", "(x -> x)({})"])
def test_calls_have_a_limit(call: str) -> None:
    lowered(call.format(", ".join("1" * MAX_ARGUMENTS)))
    with pytest.raises(hog.HogCompileError) as caught:
        lowered(call.format(", ".join("1" * (MAX_ARGUMENTS + 1))))
    assert caught.value.code == "too-many-arguments"
