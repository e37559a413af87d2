"""A request for flags causes little work, whatever the conditions of its project and the texts that it brings."""

from __future__ import annotations

import contextvars
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.attacks import processor_time

from hoglab.filters import allowance
from hoglab.filters.allowance import (
    MAX_COMPARED,
    SHORT,
    AllowanceSpentError,
    begin_request,
    charge_comparison,
)
from hoglab.filters.evaluate import Predicate, compile_predicate
from hoglab.filters.searching import MAX_WORK, compile_regex

LETTERS = "".join(random.Random(5).choices("ab", k=400_000))
CONDITIONS: dict[str, Any] = {
    "exact": "x",
    "is_not": ["x", "y"],
    "icontains": "x",
    "not_icontains": "x",
    "icontains_multi": ["x", "y", "z"],
    "not_icontains_multi": ["x", "y", "z"],
    "starts_with": "x",
    "ends_with": "x",
    "regex": "x$",
    "not_regex": "(?=x)x",
    "semver_gte": "1.2.3",
}
"""Operators that read a text, each with a value of a condition."""
VALUES = {
    "text": LETTERS,
    "text beyond ASCII": "é" * 400_000,
    "list": ["ab"] * 100_000,
    "object": {str(number): "ab" for number in range(50_000)},
}
AWKWARD = (
    "[ab]*a[ab]{900}c",
    "(?:.?){1000}c$",
    "((((a?b?){30}){30})*c)",
    r"(?:\w{0,900}a){1}[ab]{900}!",
    "(?i)(?:[a-z]*a[a-zß]{999}\\pL)c",
)
"""Patterns for which RE2 takes all of its steps at each character."""


@pytest.fixture(autouse=True)
def buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test accounts of its own: what one owes is nothing to the next."""
    monkeypatch.setattr(allowance, "_buckets", {})


def in_request(work: Callable[[], object], project_id: int = 1) -> None:
    """Do something as a request of a project."""

    def requested() -> None:
        begin_request(project_id)
        work()

    contextvars.copy_context().run(requested)


def answered(predicate: Predicate, value: Any, times: int) -> int:
    """Return how many of some comparisons have an answer."""
    answers = 0
    for _ in range(times):
        try:
            predicate(value)
        except AllowanceSpentError:
            continue
        answers += 1
    return answers


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("operator", CONDITIONS)
def test_long_values_are_compared_a_few_times(operator: str, kind: str) -> None:
    predicate = compile_predicate(operator, CONDITIONS[operator])

    def compare() -> None:
        assert 0 < answered(predicate, VALUES[kind], 500) <= 50

    assert processor_time(lambda: in_request(compare)) < 5


def test_lists_of_truth_values_count_by_their_members() -> None:
    predicate = compile_predicate("exact", "true")
    in_request(lambda: answered_at_most(predicate, [True] * 100_000, MAX_COMPARED // 100_000))


def answered_at_most(predicate: Predicate, value: Any, most: int) -> None:
    assert answered(predicate, value, most + 5) == most


def test_each_text_of_a_list_counts() -> None:
    predicate = compile_predicate("icontains_multi", [str(number) for number in range(1_000)])
    in_request(lambda: answered_at_most(predicate, "x" * 5_000, 2))


def test_the_limit_is_exact_and_of_one_request() -> None:
    def work() -> None:
        charge_comparison(MAX_COMPARED)
        charge_comparison(SHORT, 1_000_000)
        with pytest.raises(AllowanceSpentError):
            charge_comparison(SHORT + 1)
        begin_request(1)
        charge_comparison(SHORT + 1)

    in_request(work)
    charge_comparison(MAX_COMPARED + 1)  # outside of a request


def test_short_values_are_compared_however_often() -> None:
    predicate = compile_predicate("icontains", "x")
    in_request(lambda: [predicate("a" * SHORT) for _ in range(MAX_COMPARED // SHORT * 2)])


@pytest.mark.parametrize("pattern", AWKWARD)
def test_an_awkward_pattern_takes_a_little_time_in_all(pattern: str) -> None:
    search = compile_regex(pattern)
    assert search is not None

    def many() -> None:
        for number in range(1, 1_001):
            search(LETTERS[: number * 100])

    assert processor_time(lambda: in_request(many, project_id=AWKWARD.index(pattern))) < 3


@pytest.mark.parametrize("pattern", AWKWARD)
def test_a_text_that_is_too_long_for_a_pattern_is_not_searched(pattern: str) -> None:
    search = compile_regex(pattern)
    assert search is not None
    assert processor_time(lambda: search(LETTERS)) < 0.1


def test_texts_up_to_the_limit_are_found() -> None:
    search = compile_regex("c")
    assert search is not None
    length = 1
    while search("b" * length + "c") and length < MAX_WORK:
        length *= 2
    assert MAX_WORK // 100 < length <= MAX_WORK
