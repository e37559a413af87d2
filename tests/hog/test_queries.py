"""Queries and tags as data: what they become, how they print, where they are refused.

`query_texts.json` holds what the official machine (@posthog/hogvm 1.0.71) prints, or the message with which it fails.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hoglab import hog
from hoglab.hog.compiler.lower import lower
from hoglab.hog.nodes import Call, Dict, dump, walk
from hoglab.hog.parser import parse_expression, parse_program

TEXTS = json.loads((Path(__file__).parent / "query_texts.json").read_text())


def value(source: str, variables: dict[str, Any] | None = None) -> Any:
    result = hog.run(source, variables)
    assert result.error is None, result.error
    return result.json


@pytest.mark.parametrize(("source", "text", "failure"), TEXTS, ids=[source for source, _, _ in TEXTS])
def test_prints_as_the_official_machine_does(source: str, text: str | None, failure: str | None) -> None:
    result = hog.run(f"print({source})")
    if failure is None:
        assert (list(result.printed), result.error) == ([text], None)
    else:
        assert result.error is not None
        assert result.error.message == failure


def field(*chain: str) -> dict[str, Any]:
    return {"__hx_ast": "Field", "chain": list(chain), "from_asterisk": False}


def constant(held: Any) -> dict[str, Any]:
    return {"__hx_ast": "Constant", "value": held, "is_sensitive": False}


def test_a_query_is_an_object() -> None:
    assert value("return (select a, b.c as d from e where f > 1 order by g desc limit 10)") == {
        "__hx_ast": "SelectQuery",
        "select": [
            field("a"),
            {"__hx_ast": "Alias", "alias": "d", "expr": field("b", "c"), "hidden": False, "from_asterisk": False},
        ],
        "select_from": {"__hx_ast": "JoinExpr", "table": field("e")},
        "where": {"__hx_ast": "CompareOperation", "left": field("f"), "right": constant(1), "op": ">"},
        "order_by": [{"__hx_ast": "OrderExpr", "expr": field("g"), "order": "DESC"}],
        "limit": constant(10),
    }  # fmt: skip


def test_a_placeholder_is_evaluated_where_it_stands() -> None:
    source = "let n := 5 return sql(age > {n + 1} and {sql(x)} in {[n, 'a']})"
    assert value(source) == {
        "__hx_ast": "And",
        "exprs": [
            {"__hx_ast": "CompareOperation", "left": field("age"), "right": 6, "op": ">"},
            {"__hx_ast": "CompareOperation", "left": field("x"), "right": [5, "a"], "op": "in"},
        ],
    }


def test_with_and_windows_are_held_by_name() -> None:
    made = value("return (with x as (select 1), 2 as y select sum(a) over w from x window w as (order by b))")
    assert list(made["ctes"]) == ["x", "y"]
    assert made["ctes"]["y"]["cte_type"] == "column"
    assert made["window_exprs"]["w"]["order_by"][0]["order"] == "ASC"


def test_a_tag_is_an_object_and_a_component_is_called() -> None:
    source = """
        let Card := props -> <div class={props.kind}>{props.children}</div>
        return <Card kind='big'>one {2}</Card>
    """
    assert value(source) == {"__hx_tag": "div", "class": "big", "children": [["one ", 2]]}
    assert value("return <a b f={1} />") == {"__hx_tag": "a", "b": True, "f": 1}


@pytest.mark.parametrize(
    "source",
    [
        "let c := p -> p.x { return <c x={1} /> }",
        "fun c(p) { return p.x } return <c x={1} />",
        "let f := c -> <c x={1} /> return f(p -> p.x)",
        "for (let c in [p -> p.x]) { return <c x={1} /> }",
        "try { throw Error('x', p -> p.x) } catch (c) { let e := c.payload return <e x={1} /> }",
        "for (let c := p -> p.x; ; ) { return <c x={1} /> }",
        "let c := p -> p.x let f := () -> { return sql(<c x={1} />) } return f()",
    ],
)
def test_a_tag_named_after_any_variable_in_reach_calls_it(source: str) -> None:
    assert value(source) == 1


def test_a_tag_named_after_a_variable_out_of_reach_is_an_object() -> None:
    assert value("{ let c := 1 } return <c />") == {"__hx_tag": "c"}


def test_lowering_leaves_other_trees_alone() -> None:
    source = "let select := 1 if (select<2) { return f(select) }"
    tree = parse_program(source)
    assert lower(tree, source) is tree


def test_lowering_keeps_what_it_does_not_change() -> None:
    source = "[upper(a), sql(b), <c d={f(e)} />]"
    tree = parse_expression(source)
    lowered = lower(tree, source)
    calls = [node for node in walk(tree) if isinstance(node, Call) and node.name in ("upper", "f")]
    assert len(calls) == 2
    assert all(any(node is call for node in walk(lowered)) for call in calls)
    assert {type(node).__name__ for node in walk(lowered)} == {"Array", "Call", "Field", "Dict", "Constant"}


def test_lowered_nodes_stand_where_their_text_does() -> None:
    source = "return [1, sql(a = {b}), <c d='e' />]"
    for node in walk(lower(parse_program(source), source)):
        if isinstance(node, Dict):
            assert source[node.start : node.end] in ("a = {b}", "a", "<c d='e' />")


def test_bytecode_of_a_query_has_booleans_as_integers() -> None:
    code = hog.compile_program("return sql(a)", hog.ANY).bytecode
    assert code == ["_H", 1, 32, "__hx_ast", 32, "Field", 32, "chain", 32, "a", 43, 1,
                    32, "from_asterisk", 33, False, 42, 3, 38]  # fmt: skip
    assert code[15] is False


def test_a_query_that_holds_itself_is_refused() -> None:
    result = hog.run("let n := sql(not a) n.expr := n print(n)")
    assert result.error is not None
    assert "levels deep" in result.error.message


def test_a_query_that_doubles_itself_is_refused() -> None:
    source = "let n := sql(a) for (let i := 0; i < 60; i := i + 1) { n := sql({n} and {n}) } print(n)"
    result = hog.run(source)
    assert result.error is not None
    assert result.error.kind != "internal"


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("return 1 as x", "sql-only"),
        ("return a::int", "sql-only"),
        ("return f(x) over w", "sql-only"),
        ("return #1", "sql-only"),
        ("return columns('x')", "sql-only"),
        ("return count(a order by b)", "sql-only"),
        ("return sum(a) filter (where b)", "sql-only"),
        ("return a is distinct from b", "sql-only"),
        ("return {a}", "placeholder"),
        ("return sql({a as b})", "sql-only"),
    ],
)
def test_what_only_queries_have_is_refused_outside(source: str, code: str) -> None:
    with pytest.raises(hog.HogCompileError) as caught:
        hog.compile_program(source, hog.ANY)
    assert caught.value.code == code


def test_trees_of_queries_can_be_dumped() -> None:
    tree = dump(parse_expression("(select a from b window w as (order by c))"))
    assert tree["window_exprs"]["w"]["order_by"][0]["expr"] == {"node": "Field", "chain": ["c"]}
