"""Our parser beside the official one: the same trees, or a refusal by both."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from tests.hog.oracles.corpus import CASES, Case
from tests.hog.oracles.normalise import normalise
from tests.hog.oracles.official_parser import OfficialParser, Refused
from tests.hog.oracles.programs import expressions, oracle_settings, programs, templates

from hoglab.hog.errors import HogSyntaxError
from hoglab.hog.nodes import dump
from hoglab.hog.parser import parse_expression, parse_program, parse_template

PARSERS = {"program": parse_program, "expression": parse_expression, "template": parse_template}
DIFFERENCES = tomllib.loads((Path(__file__).parent / "differences.toml").read_text())


def official_tree(parser: OfficialParser, kind: str, source: str) -> Any:
    """The official tree in the form for comparing; None for a refusal."""
    try:
        return normalise(parser.parse(kind, source))
    except Refused:
        return None


def our_tree(kind: str, source: str) -> Any:
    """Our tree in the form for comparing; None for a refusal."""
    try:
        return normalise(dump(PARSERS[kind](source)))
    except HogSyntaxError:
        return None


@pytest.mark.parametrize("case", CASES, ids=str)
def test_corpus_gives_the_same_trees(case: Case, official_parser: OfficialParser) -> None:
    theirs, ours = official_tree(official_parser, case.kind, case.source), our_tree(case.kind, case.source)
    if case.name in DIFFERENCES:
        assert ours != theirs, "no longer differs: take it out of differences.toml"
    else:
        assert ours == theirs


# where a semicolon, a comment before the first statement or the last clause of a query belongs is a matter of taste
FREE_ENDS = frozenset(
    {
        "Program",
        "ExprStatement",
        "ForInStatement",
        "ForStatement",
        "IfStatement",
        "JoinExpr",
        "ReturnStatement",
    }
    | {"SelectQuery", "ThrowStatement", "VariableAssignment", "WhileStatement", "WindowExpr"}
)


def misplaced(theirs: Any, ours: Any, source: str) -> list[tuple[str, str, str]]:
    """The nodes of two equal trees that do not stand at the same place: kind, their text, our text."""
    if isinstance(theirs, list):
        return [found for pair in zip(theirs, ours, strict=False) for found in misplaced(*pair, source)]
    if not isinstance(theirs, dict) or not isinstance(ours, dict):
        return []
    found = [one for key in theirs.keys() & ours.keys() for one in misplaced(theirs[key], ours[key], source)]
    kind = theirs.get("node")
    if kind in FREE_ENDS or not isinstance(theirs.get("start"), dict) or "start" not in ours:
        return found
    place = theirs["start"]["offset"], theirs["end"]["offset"]
    if place != (ours["start"], ours["end"]):
        found.append((str(kind), source[slice(*place)], source[ours["start"] : ours["end"]]))
    return found


def test_nodes_stand_where_the_official_ones_do(official_parser: OfficialParser) -> None:
    compared = 0
    for case in CASES:
        # the offsets of templates count from two characters before the text; others count bytes
        if case.error or case.name in DIFFERENCES or case.kind == "template" or not case.source.isascii():
            continue
        theirs = official_parser.parse(case.kind, case.source, positions=True)
        ours = dump(PARSERS[case.kind](case.source), positions=True)
        assert misplaced(theirs, ours, case.source) == [], case.name
        compared += 1
    assert compared > 400


def test_differences_are_of_the_corpus_and_have_a_reason() -> None:
    assert set(DIFFERENCES) <= {case.name for case in CASES}
    assert all(entry.keys() == {"reason"} and entry["reason"].strip() for entry in DIFFERENCES.values())


def test_generated_programs_give_the_same_trees(official_parser: OfficialParser) -> None:
    @oracle_settings(40)
    @given(programs(max_statements=4))
    def check(source: str) -> None:
        assert our_tree("program", source) == official_tree(official_parser, "program", source)

    check()


def test_generated_expressions_give_the_same_trees(official_parser: OfficialParser) -> None:
    @oracle_settings(100)
    @given(expressions())
    def check(source: str) -> None:
        assert our_tree("expression", source) == official_tree(official_parser, "expression", source)

    check()


def test_generated_templates_give_the_same_trees(official_parser: OfficialParser) -> None:
    @oracle_settings(60)
    @given(templates())
    def check(source: str) -> None:
        assert our_tree("template", source) == official_tree(official_parser, "template", source)

    check()
