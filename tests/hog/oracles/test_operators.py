"""Every operator on values of every kind: the official machine, our Python and our interpreter give the same."""

from __future__ import annotations

from itertools import product

import pytest
from tests.hog.oracles.runners import Runners

KINDS = (
    "null", "true", "false", "0", "-1.5", "(0 / 0)", "(1 / 0)", "''", "'a'", "'1'", "' 2 '", "'true'", "'2024-01-01'",
    "[]", "[1]", "['a']", "[null]", "(1, 2)", "{}", "{'a': 1}", "toDate('2024-01-01')",
    "toDateTime('2024-01-01T00:00:00Z')", "Error('x')", "(x -> x)", "9007199254740993",
)  # fmt: skip
BINARY = (
    "=", "!=", "<", "<=", ">", ">=", "in", "not in", "like", "not like", "ilike", "not ilike", "=~", "!~", "=~*", "!~*",
    "+", "-", "*", "/", "%", "and", "or", "??",
)  # fmt: skip
OTHERS = (
    "not a", "-a", "a.k", "a['k']", "a[1]", "a?.k", "a ? 1 : 2", "a is null", "a is not null", "a between 0 and 1",
    "0 between a and 1", "0 between 0 and a", "0 not between a and 1", "f'{a}'",
)  # fmt: skip


def assert_alike(runners: Runners, source: str) -> None:
    official = runners.run("corrected", source)
    assert runners.run("python", source) == official, source
    assert runners.run("interpreter", source) == official, source


@pytest.mark.parametrize("operator", BINARY)
def test_binary_operators_on_all_pairs_of_kinds(operator: str, runners: Runners) -> None:
    for left, right in product(KINDS, KINDS):
        assert_alike(runners, f"let a := {left} let b := {right} return a {operator} b")


@pytest.mark.parametrize("expression", OTHERS)
def test_other_operators_on_all_kinds(expression: str, runners: Runners) -> None:
    for kind in KINDS:
        assert_alike(runners, f"let a := {kind} return {expression}")


@pytest.mark.parametrize("haystack", ["null", "true", "5", "{}"])
def test_in_fails_on_what_has_no_elements_as_in_the_official_machine(haystack: str, runners: Runners) -> None:
    for operator in ("in", "not in"):
        outcome = runners.run("official", f"let b := {haystack} return 'a' {operator} b")
        assert outcome.error is not None
        assert outcome.error.kind == "failure"
