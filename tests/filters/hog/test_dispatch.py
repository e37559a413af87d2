"""Fused filters answer what each filter answers alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.filters.hog.events import filter_globals
from tests.generated import examples

from hoglab.filters.hog import (
    NOT_COMPILED,
    CompiledFilter,
    FilterContext,
    FilterFailure,
    FusedDispatcher,
    build_filter,
)
from hoglab.filters.hog import fuse as fuse_module
from hoglab.filters.hog.fuse import MAX_CASES, MAX_NESTING, TEXTS_FROM
from hoglab.filters.hog.patterns import MAX_PATTERN_LENGTH, PatternSet
from hoglab.filters.model import FilterError
from hoglab.hog.backend_python import UnsafeCodeError
from hoglab.hog.rt.regex import compile_regex

KEYS = st.sampled_from(["plan", "url", "n", "a b'\"\\\n", "__class__"])
TEXTS = st.sampled_from(["", "pro", "Pro", "free", "5", "10", "true", "null", "0x10", "k3", "Ünï", " 5 "])
SCALARS = TEXTS | st.sampled_from([0, 5, 10, 5.5, -1, True, False, None])
PATTERNS = st.sampled_from(["^p", "o$", "(?i)PRO", "[0-9]+", "n.ll", "", "x{1,3}", "Ü", "^$", "5|e"])

OPERATORS = st.one_of(
    st.tuples(st.sampled_from(["exact", "is_not"]), SCALARS | st.lists(SCALARS, max_size=3)),
    st.tuples(st.sampled_from(["in", "not_in"]), st.lists(TEXTS, max_size=3)),
    st.tuples(st.sampled_from(["is_set", "is_not_set"]), st.none()),
    st.tuples(
        st.sampled_from(["icontains", "not_icontains", "icontains_multi"]),
        TEXTS | st.lists(TEXTS, max_size=3),
    ),
    st.tuples(st.sampled_from(["regex", "not_regex"]), PATTERNS | st.lists(PATTERNS, max_size=3)),
    st.tuples(st.sampled_from(["gt", "gte", "lt", "lte"]), st.sampled_from([0, 5, 5.5, -1, "5", "10", "x"])),
    st.tuples(st.sampled_from(["between", "not_between"]), st.sampled_from([[0, 5], [5, 10.5], ["1", "9"]])),
    st.tuples(st.sampled_from(["semver_gte", "semver_caret"]), st.sampled_from(["5", "1.2.3"])),
)


def leaf(kind: str, key: str, test: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": kind, "key": key, "operator": test[0], "value": test[1], **more}


LEAVES = st.one_of(
    st.builds(leaf, st.sampled_from(["event", "person"]), KEYS, OPERATORS),
    st.builds(leaf, st.just("group"), KEYS, OPERATORS, group_type_index=st.sampled_from([0, 4])),
    st.builds(leaf, st.just("element"), st.sampled_from(["href", "text"]), OPERATORS),
    st.builds(leaf, st.just("event_metadata"), st.just("distinct_id"), OPERATORS),
)
RISKY = st.sampled_from(
    ["[1][properties.n]", "properties.plan", "properties.n in properties.plan", "1 = 1"]
).map(lambda text: {"type": "hogql", "key": text})
PROPERTIES = st.lists(LEAVES | RISKY, max_size=3) | st.lists(LEAVES, max_size=3).map(
    lambda leaves: {"type": "OR", "values": leaves}
)
NAMES = st.sampled_from(["a", "b", "$pageview", None])
EVENTS = st.builds(lambda name, properties: {"id": name, "properties": properties}, NAMES, PROPERTIES)
ACTIONS = st.builds(
    lambda number, properties: {"id": number, "properties": properties},
    st.sampled_from([1, 2, 3]),
    PROPERTIES,
)
FILTERS = st.builds(
    lambda events, actions, properties, accounts: {
        "events": events,
        "actions": actions,
        "properties": properties,
        "filter_test_accounts": accounts,
    },
    st.lists(EVENTS, max_size=3),
    st.lists(ACTIONS, max_size=1),
    PROPERTIES,
    st.booleans(),
)
CONTEXT = FilterContext(
    test_account_filters=[leaf("person", "plan", ("not_icontains", "pro"))],
    actions={
        1: [{"event": "a"}, {"event": "b", "properties": [leaf("event", "plan", ("exact", "pro"))]}],
        2: [{"properties": [leaf("event", "n", ("gt", 5))]}],
        3: [],
    },
)

ODD = st.sampled_from([[1, 2], ["pro"], {"k": 1}, [], {}, float("nan"), 2**60])
MEMBERS = st.dictionaries(KEYS, SCALARS | ODD, max_size=4)
GLOBALS = st.builds(
    filter_globals,
    st.sampled_from(["a", "b", "$pageview", "other"]),
    MEMBERS,
    st.none() | MEMBERS,
    st.sampled_from(["", 'a:href="pro"text="5"', 'a:text="Pro";b:text="free"']),
    group_0=st.builds(lambda members: {"properties": members}, MEMBERS),
    distinct_id=TEXTS,
)


def compiled(filters: dict[str, Any]) -> CompiledFilter:
    try:
        return CompiledFilter(build_filter(filters, CONTEXT))
    except FilterError:
        return CompiledFilter(None)


def alone(
    filters: Sequence[CompiledFilter], event: dict[str, Any]
) -> tuple[list[int], list[tuple[int, str]]]:
    matched, failed = [], []
    for place, one in enumerate(filters):
        try:
            if one.matches(event):
                matched.append(place)
        except FilterFailure as failure:
            failed.append((place, str(failure)))
    return matched, failed


def same(filters: Sequence[CompiledFilter], events: Sequence[dict[str, Any]]) -> None:
    dispatcher = FusedDispatcher(filters)
    for event in events:
        found = dispatcher.match(event)
        expected = alone(filters, event)
        assert (list(found.matched), list(found.failed)) == expected
        assert dispatcher.concerns(event["event"]) or expected == ([], [])


def test_only_events_that_some_filter_names_need_be_asked_about() -> None:
    named = compiled({"events": [{"id": "a"}, {"id": "b", "properties": [leaf("event", "n", ("gt", 5))]}]})
    every = compiled({"properties": [leaf("event", "n", ("gt", 5))]})
    broken = CompiledFilter(None)
    concerned = [
        [dispatcher.concerns(name) for name in ("a", "b", "other")]
        for dispatcher in map(FusedDispatcher, ([], [named], [named, every], [broken]))
    ]
    assert concerned == [[False] * 3, [True, True, False], [True] * 3, [True] * 3]


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(FILTERS, max_size=8), st.lists(GLOBALS, min_size=1, max_size=6))
def test_fused_filters_answer_what_each_answers_alone(
    filters: list[dict[str, Any]], events: list[dict[str, Any]]
) -> None:
    same([compiled(one) for one in filters], events)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.lists(st.builds(leaf, st.just("event"), KEYS, OPERATORS), max_size=4), min_size=5, max_size=30
    ),
    st.lists(GLOBALS, min_size=1, max_size=10),
)
def test_many_filters_on_few_properties(
    properties: list[list[dict[str, Any]]], events: list[dict[str, Any]]
) -> None:
    """Enough of them that tables, sets of patterns and shared conditions come about."""
    same([compiled({"properties": leaves}) for leaves in properties], events)


def test_thousands_of_generated_filters() -> None:
    """The kinds of filters that projects have, seeded, against events of several kinds."""
    chance = random.Random(7)
    keys = [f"p{number}" for number in range(6)]

    def condition() -> dict[str, Any]:
        key = chance.choice(keys)
        return chance.choice(
            [
                {"key": key, "value": [chance.choice("abcdef")]},
                {"key": key, "operator": "gt", "value": chance.randrange(100)},
                {"key": key, "operator": "icontains", "value": chance.choice(["ab", "bc", "x"])},
                {"key": key, "operator": "regex", "value": chance.choice(["^a", "b+c", "[x-z]$", "a.c"])},
                {"key": key, "operator": "is_not", "value": chance.choice("abc")},
            ]
        )

    filters = []
    for _ in range(MAX_CASES + 300):
        conditions = [condition() for _ in range(chance.randrange(4))]
        where = chance.random()
        name = chance.choice(["$pageview", "$autocapture", "e1", "e2"])
        if where < 0.4:
            filters.append(compiled({"events": [{"id": name, "properties": conditions}]}))
        elif where < 0.5:
            filters.append(compiled({"events": [{"id": name}, {"id": "e3"}], "properties": conditions}))
        else:
            filters.append(compiled({"properties": conditions}))
    values: list[Any] = ["a", "b", "abc", "xyz", 5, 50.5, True, None, "", "BC"]
    events = [
        filter_globals(
            chance.choice(["$pageview", "$autocapture", "e1", "e3", "none"]),
            {key: chance.choice(values) for key in keys if chance.random() < 0.8},
        )
        for _ in range(12)
    ]
    same(filters, events)


def test_an_empty_dispatcher() -> None:
    dispatcher = FusedDispatcher([])
    assert len(dispatcher) == 0
    assert dispatcher.match(filter_globals()).matched == []


def test_what_people_write_never_becomes_code() -> None:
    hostile = "') or __import__('os').system('x') or ('"
    filters = [
        compiled({"events": [{"id": hostile}], "properties": [{"key": hostile, "value": hostile}]}),
        compiled({"properties": [{"key": hostile, "value": f"{hostile}2"}]}),
        compiled({"properties": [{"key": "k1", "operator": "icontains", "value": hostile}]}),
    ]
    event = filter_globals(hostile, {hostile: hostile, "k1": f"x{hostile.upper()}x"})
    assert FusedDispatcher(filters).match(event).matched == [0, 2]
    same(filters, [event, filter_globals()])


def test_many_conditions_of_one_filter() -> None:
    conditions = [
        {"key": f"k{number}", "operator": "gt", "value": number} for number in range(5 * MAX_NESTING)
    ]
    filters = [compiled({"properties": conditions}), compiled({"properties": conditions[:-1]})]
    every = {f"k{number}": number + 1 for number in range(5 * MAX_NESTING)}
    last = f"k{5 * MAX_NESTING - 1}"
    assert FusedDispatcher(filters).match(filter_globals("e", every)).matched == [0, 1]
    same(filters, [filter_globals("e", {**every, last: 0}), filter_globals("e", {**every, "k3": 0})])


def test_one_failing_filter_leaves_the_others_alone() -> None:
    filters = [
        compiled({"events": [{"id": "a"}]}),
        compiled({"properties": [{"key": "[1][properties.n]", "type": "hogql"}]}),
        CompiledFilter(None),
        compiled({}),
    ]
    found = FusedDispatcher(filters).match(filter_globals("a", {"n": 0}))
    assert list(found.matched) == [0, 3]
    assert list(found.failed) == [(1, "Hog arrays start from index 1"), (2, NOT_COMPILED)]


@pytest.mark.parametrize("text", ["", "a", "abc", "Ünï\n", "\ud800", "aaaa" * 1000])
def test_pattern_sets_agree_with_single_patterns(text: str) -> None:
    patterns = ["a", "^a", "c$", "b.?c", "Ü", "(?i)N", "[^a]", "x*", "^$"]
    found = PatternSet(patterns).search(text)
    single = [
        number for number, pattern in enumerate(patterns) if text and compile_regex(pattern).search(text)
    ]
    assert sorted(found) == single


def test_patterns_that_run_alone() -> None:
    assert PatternSet.fits("a" * MAX_PATTERN_LENGTH)
    assert not PatternSet.fits("a" * (MAX_PATTERN_LENGTH + 1))
    assert not PatternSet.fits("a{1,500}")


@pytest.mark.parametrize("value", [0, 5, 5.0, 5.5, 7, 10**18, -1, True, "6", "x", "", None, [6], {"a": 1}])
def test_many_thresholds_and_patterns_on_one_property(value: Any) -> None:
    """Decided by one search each; what is no number, or no text, takes the way of the filters alone."""
    tests: list[tuple[str, Any]] = [("gt", number) for number in (0, 5, 5.5, 5, 7, -1, "6")]
    tests += [("lt", number) for number in (0, 5, 6)]
    tests += [("regex", pattern) for pattern in ("^6", "6$", "x", "^$", "x")] + [("not_regex", "6")]
    filters = [compiled({"properties": [leaf("event", "n", test)]}) for test in tests]
    same(filters, [filter_globals(properties={"n": value}), filter_globals()])


SPELLINGS: list[Any] = [
    *("pro", "free", "", "null", "true", "false", "True", True, False),
    *("0", 0, "-0", "1", "1.0", 1, "10", 10, "1e1", "+10", " 10", "0x10", "nan", "inf", "1e400", 1e300),
    *(2**53 - 1, 2**53, str(2**53 + 1), 2**53 + 1, 2**60, f"{2**53}.0", "[]", "{}", '["pro"]'),
]


@pytest.mark.parametrize(
    "value", [*SPELLINGS, None, 10.0, 1.5, -0.0, float("nan"), [], ["pro"], {}, 2**53 + 2]
)
def test_many_texts_that_one_property_may_equal(value: Any) -> None:
    """Looked up in one table; a number or boolean equals the texts that spell it."""
    tests = [("exact", operand) for operand in SPELLINGS] + [("in", ["pro", 10]), ("is_not", 10)]
    filters = [compiled({"properties": [leaf("event", "n", test)]}) for test in tests]
    filters += [
        compiled({"properties": [leaf("event", "n", test), leaf("event", "m", ("gt", 1))]}) for test in tests
    ]
    same(filters, [filter_globals(properties={"n": value, "m": number}) for number in (0, 2)])


TEXTS = [
    "a",
    "ab",
    "b.c",
    "Ünï",
    "x{2}",
    "x",
    "^",
    "$",
    "\\",
    "-",
    " ",
    "\n",
    "\0",
    "\ud83d",
    "6",
    "NULL",
    "ß",
    "[a",
]


VALUES: list[Any] = [
    "",
    "AB.C",
    "xx{2}\\",
    "ÜNÏ \n-",
    "\ud83d",
    "\U0001f600",
    "\0^$",
    "STRASSE ß",
    "[A",
    "a" * 100_000,
]


@pytest.mark.parametrize("value", [*VALUES, 6, 6.5, None, True, ["ab"], {"a": "x"}])
def test_many_texts_inside_of_one_property(value: Any) -> None:
    """Looked for by one search; what is no short text takes the way of the filters alone."""
    tests = [("icontains", text) for text in (*TEXTS, "ab")] + [("not_icontains", "a")]
    assert len(TEXTS) > TEXTS_FROM
    filters = [compiled({"properties": [leaf("event", "n", test)]}) for test in tests]
    filters.append(
        compiled({"properties": [leaf("event", "n", ("icontains", "x")), leaf("event", "m", ("gt", 1))]})
    )
    same(filters, [filter_globals(properties={"n": value, "m": 2}), filter_globals()])


def test_generated_code_is_looked_at_before_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    filters = [compiled({"properties": [leaf("event", "n", ("gt", 5))]})]
    FusedDispatcher(filters)
    monkeypatch.delitem(fuse_module._NAMES, "append")
    with pytest.raises(UnsafeCodeError, match="append"):
        FusedDispatcher(filters)
