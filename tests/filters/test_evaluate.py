"""Operators of feature flags (spec: sdk-wire 3.6, 3.7, 3.8 and vectors 3.14 H)."""

from __future__ import annotations

import contextlib
import contextvars
import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.attacks import hostile_texts, processor_time

from hoglab.filters import allowance, parse_filter, parse_filters
from hoglab.filters.backtracking import MAX_TEXT_LENGTH
from hoglab.filters.dates import MAX_DATE_LENGTH
from hoglab.filters.evaluate import (
    MAX_NUMBER_LENGTH,
    MISSING,
    OPERATORS,
    EvaluationContext,
    compile_filter,
    compile_group,
    compile_predicate,
    text_of,
)
from hoglab.filters.pattern_grammar import PatternRefusedError
from hoglab.filters.semver import MAX_TEXT_LENGTH as MAX_VERSION_LENGTH

NOW = datetime(2026, 3, 31, 15, 30, tzinfo=UTC)
CONTEXT = EvaluationContext(now=lambda: NOW)
DEEP: object = 1
for _ in range(400):
    DEEP = [DEEP]

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(
        ["true", "FALSE", "1.2.3", "v1", "*", "1.*", "(", "-7d", "9999y", "10000d", "2024-02-30", "inf"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def matches(operator: str, value: object, actual: object) -> bool:
    return compile_predicate(operator, value, CONTEXT)(actual)


@pytest.mark.parametrize(
    ("operator", "value", "actual", "expected"),
    [
        ("exact", "True", True, True),
        ("exact", ["true"], "TRUE", True),
        ("exact", "false", "banana", True),
        ("exact", 5, "5", True),
        ("exact", ["US"], "us", True),
        ("is_not", "x", MISSING, True),
        ("icontains", "É", "é", False),
        ("gt", "10", 9, False),
        ("gt", 9, "10", True),
        ("between", [1, 3], 3, True),
        ("regex", "^a", "ba", False),
        ("regex", "(", "(", False),
        ("not_regex", "(", "x", False),
        ("semver_gt", "1.2.3", "1.10.0", True),
        ("semver_eq", "3.8.0", "3.08", True),
        ("semver_caret", "0.2.3", "0.3.0", False),
        ("is_date_before", "-7d", (NOW - timedelta(days=8)).isoformat(), True),
        ("is_set", None, None, True),
    ],
)
def test_published_vectors(operator, value, actual, expected):
    assert matches(operator, value, actual) is expected


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("is_set", None, False),
        ("is_not_set", None, True),
        ("exact", "x", False),
        ("exact", [], False),
        ("exact", False, False),
        ("is_not", "x", True),
        ("icontains", "", False),
        ("not_icontains", "", True),
        ("icontains_multi", [""], False),
        ("not_icontains_multi", [""], True),
        ("starts_with", "", False),
        ("ends_with", "", False),
        ("not_starts_with", "", True),
        ("not_ends_with", "", True),
        ("regex", ".*", False),
        ("not_regex", ".*", True),
        ("gt", 0, False),
        ("gte", 0, False),
        ("lt", 0, False),
        ("lte", 0, False),
        ("min", 0, False),
        ("max", 0, False),
        ("between", [0, 1], False),
        ("not_between", [0, 1], True),
        ("is_date_before", "2024-01-01", False),
        ("is_date_after", "2024-01-01", False),
        ("is_date_exact", "2024-01-01", False),
        ("semver_eq", "1.0.0", False),
        ("semver_neq", "1.0.0", False),
        ("semver_gt", "1.0.0", False),
        ("semver_gte", "1.0.0", False),
        ("semver_lt", "1.0.0", False),
        ("semver_lte", "1.0.0", False),
        ("semver_tilde", "1.0.0", False),
        ("semver_caret", "1.0.0", False),
        ("semver_wildcard", "*", False),
    ],
)
def test_missing_property(operator, value, expected):
    assert matches(operator, value, MISSING) is expected


def test_every_operator_is_covered_by_the_missing_table():
    rows = next(mark for mark in test_missing_property.pytestmark if mark.name == "parametrize").args[1]
    assert {row[0] for row in rows} == set(OPERATORS)


@pytest.mark.parametrize(
    ("operator", "value", "actual", "expected"),
    [
        # the boolean-like rule of exact
        ("exact", True, "true", True),
        ("exact", True, "yes", False),
        ("exact", "false", "0", True),
        ("exact", False, None, True),
        ("exact", [True, "true"], True, True),
        ("exact", [True, "false"], False, True),
        ("exact", [], True, True),
        ("exact", [], "x", False),
        ("exact", ["true", "x"], True, True),
        ("exact", ["true", "x"], "X", True),
        ("exact", "x", ["x"], False),
        ("is_not", "false", "banana", False),
        ("is_not", ["a", "b"], "B", False),
        ("is_not", ["a", "b"], "c", True),
        # text form of other values
        ("exact", 1.5, "1.5", True),
        ("exact", "null", None, True),
        ("exact", '{"a":1,"b":2}', {"b": 2, "a": 1}, True),
        ("exact", "Straße", "STRASSE", False),
        ("exact", "ÉA", "éa", True),
        ("icontains", "PRO", "a pro plan", True),
        ("icontains", 3, 1234, True),
        ("icontains", "ul", None, True),
        ("not_icontains", "x", "y", True),
        ("icontains_multi", ["a", "z"], "xyZ", True),
        ("icontains_multi", "z", "xyZ", True),
        ("icontains_multi", ["a", "b"], "xyz", False),
        ("not_icontains_multi", ["a", "b"], "xyz", True),
        ("starts_with", "Ab", "aBc", True),
        ("not_starts_with", "b", "abc", True),
        ("ends_with", "BC", "abc", True),
        ("not_ends_with", "bc", "abc", False),
        ("regex", "b.d", "xbcdx", True),
        ("regex", "B", "b", False),
        ("regex", "(?i)B", "b", True),
        ("regex", "^[0-9]+$", 123, True),
        ("regex", "(?=a)", "a", True),
        ("not_regex", "(?=a)", "a", False),
        # numbers
        ("gt", "abc", 1, False),
        ("gt", 1, "abc", False),
        ("gt", 0, True, False),
        ("lt", 10, "1_0", False),
        ("lt", 10, " 5", False),
        ("gte", "1e3", 1000, True),
        ("lt", "inf", 10**400, False),
        ("lt", "inf", 10, False),
        ("lt", 10, "-inf", False),
        ("gt", 10, "1e400", False),
        ("gt", "nan", 1, False),
        ("min", 5, 5, True),
        ("max", 5, 5.1, False),
        ("between", [3, 1], 2, False),
        ("not_between", [3, 1], 2, False),
        ("not_between", [1, 3], "nan", False),
        ("not_between", [1, 3], 4, True),
        ("between", ["1", "3"], "2", True),
        ("between", [1], 1, False),
        # unknown
        ("in", ["a"], "a", False),
        ("sounds_like", "a", "a", False),
    ],
)
def test_operators(operator, value, actual, expected):
    assert matches(operator, value, actual) is expected


@pytest.mark.parametrize(
    ("operator", "value", "actual", "expected"),
    [
        ("is_date_after", "2024-01-01", "2024-01-01T00:00:01Z", True),
        ("is_date_after", "2024-01-01", "2024-01-01", False),
        ("is_date_exact", "2024-01-01", 1704067200, True),
        ("is_date_exact", "2024-01-01", "1704067200.0", True),
        ("is_date_exact", "2024-01-01T01:00:00+01:00", "2024-01-01 00:00", True),
        ("is_date_exact", "2024-01-01 00:00:00.25", "2024-01-01T00:00:00.250000Z", True),
        ("is_date_before", "soon", "2024-01-01", False),
        ("is_date_before", "2024-01-01", "banana", False),
        ("is_date_before", "2024-01-01", True, False),
        ("is_date_before", "2024-01-01", None, False),
        ("is_date_before", "2024-13-01", "2020-01-01", False),
        ("is_date_before", 1704067200, "2020-01-01", False),
        ("is_date_after", "1h", "2026-03-31T14:29:59Z", False),
        ("is_date_after", "1h", "2026-03-31T14:30:01Z", True),
        ("is_date_exact", "-1w", "2026-03-24T15:30:00Z", True),
        ("is_date_exact", "2m", "2026-01-28T15:30:00Z", True),  # through 28 February
        ("is_date_exact", "1m", "2026-02-28T15:30:00Z", True),
        ("is_date_exact", "1y", "2025-03-31T15:30:00Z", True),
        ("is_date_before", "9999d", "1900-01-01", True),
        ("is_date_before", "10000d", "1900-01-01", False),
        ("is_date_before", "9999y", "1900-01-01", False),
        ("is_date_before", "3000y", "1900-01-01", False),
        ("is_date_before", "2024-01-01", 1e300, False),
        ("is_date_before", "2024-01-01", "9999-12-31T23:59:59-23:00", False),
        ("is_date_before", "2024-01-01", "-3d", False),  # relative on the property side too
        ("is_date_after", "2024-01-01", "-3d", True),
    ],
)
def test_dates(operator, value, actual, expected):
    assert matches(operator, value, actual) is expected


def test_leap_day_minus_one_year():
    context = EvaluationContext(now=lambda: datetime(2024, 2, 29, 12, tzinfo=UTC))
    assert compile_predicate("is_date_exact", "1y", context)("2023-02-28T12:00:00Z")
    assert compile_predicate("is_date_exact", "4y", context)("2020-02-28T12:00:00Z")


def test_values_without_a_zone_are_in_the_zone_of_the_project():
    berlin = EvaluationContext(now=lambda: NOW, zone=ZoneInfo("Europe/Berlin"))
    assert compile_predicate("is_date_exact", "2024-07-01", berlin)("2024-06-30T22:00:00Z")
    assert compile_predicate("is_date_exact", "2024-07-01T00:00:00Z", berlin)("2024-07-01 02:00:00")


def test_relative_dates_move_with_the_clock():
    moment = NOW
    predicate = compile_predicate("is_date_after", "1d", EvaluationContext(now=lambda: moment))
    assert predicate("2026-03-31T00:00:00Z")
    moment = NOW + timedelta(days=2)
    assert not predicate("2026-03-31T00:00:00Z")


@pytest.mark.parametrize(
    ("operator", "value", "actual", "expected"),
    [
        ("semver_eq", "1.2", "v1.2.0", True),
        ("semver_eq", "1.2.3", " 1.2.3 ", True),
        ("semver_eq", "1.2.3", "1.2.3.4", False),
        ("semver_neq", "1.2.3", "1.2.3.4", False),
        ("semver_neq", "1.2.3", "banana", False),
        ("semver_neq", "1.2.3", "1.2.4", True),
        ("semver_eq", "1.2.3", "1..3", False),
        ("semver_lt", "1.0.0", "1.0.0-alpha", True),
        ("semver_lt", "1.0.0-beta", "1.0.0-alpha.9", True),
        ("semver_lt", "1.0.0-alpha.10", "1.0.0-alpha.9", True),
        ("semver_lt", "1.0.0-alpha.beta", "1.0.0-alpha.9", True),
        ("semver_eq", "1.0.0", "1.0.0+build.5", True),
        ("semver_gte", "1.0.0", "1", True),
        ("semver_lte", "1.2", 1.2, True),
        ("semver_tilde", "1.2.3", "1.2.99", True),
        ("semver_tilde", "1.2.3", "1.3.0", False),
        ("semver_tilde", "1.2.3", "1.2.2", False),
        ("semver_caret", "1.2.3", "1.99.0", True),
        ("semver_caret", "1.2.3", "2.0.0", False),
        ("semver_caret", "0.2.3", "0.2.9", True),
        ("semver_caret", "0.0.3", "0.0.3", True),
        ("semver_caret", "0.0.3", "0.0.4", False),
        ("semver_wildcard", "1.*", "1.99.99", True),
        ("semver_wildcard", "1.*", "2.0.0", False),
        ("semver_wildcard", "1.2.*", "1.2.9", True),
        ("semver_wildcard", "1.2.*", "1.3.0", False),
        ("semver_wildcard", "*", "0.0.0-alpha", True),
        ("semver_wildcard", "*", "banana", False),
        ("semver_wildcard", "x.*", "1.0.0", False),
        ("semver_caret", "banana", "1.0.0", False),
        ("semver_eq", "1." + "9" * 300, "1." + "9" * 300, False),
    ],
)
def test_versions(operator, value, actual, expected):
    assert matches(operator, value, actual) is expected


def test_negation_inverts_after_matching():
    test = compile_filter(parse_filter({"key": "age", "operator": "gt", "value": 10, "negation": True}))
    assert not test({"age": 11})
    assert test({"age": "unknown"})
    assert test({})


def test_trees():
    tree = parse_filters(
        [
            {"key": "plan", "value": "pro"},
            {
                "type": "OR",
                "values": [{"key": "country", "value": "de"}, {"key": "country", "operator": "is_not_set"}],
            },
        ]
    )
    test = compile_group(tree)
    assert test({"plan": "pro"})
    assert test({"plan": "pro", "country": "DE"})
    assert not test({"plan": "pro", "country": "fr"})
    assert not test({})
    assert compile_group(parse_filters(None))({})


@given(st.sampled_from(sorted(OPERATORS)), JSON, JSON | st.just(MISSING))
def test_predicates_are_total(operator, value, actual):
    with contextlib.suppress(PatternRefusedError):
        assert compile_predicate(operator, value, CONTEXT)(actual) in (True, False)


@given(st.sampled_from(["exact", "icontains", "icontains_multi", "starts_with", "ends_with"]), JSON, JSON)
def test_negative_operators_are_complements(operator, value, actual):
    negative = "is_not" if operator == "exact" else f"not_{operator}"
    assert matches(operator, value, actual) is not matches(negative, value, actual)


def test_text_of_values_that_the_fast_encoder_refuses():
    assert text_of(DEEP) == "[" * 400 + "1" + "]" * 400
    assert text_of({"b": 2**70, "a": "é"}) == '{"a":"é","b":1180591620717411303424}'


def test_a_regex_takes_linear_time():
    predicate = compile_predicate("regex", "(a+)+$")
    assert not predicate("a" * 100_000 + "b")


SLOWEST_S = 1.0
"""Bound of one comparison with 40,000 characters: it takes less than a millisecond, and 10 s where it is quadratic."""

OPERANDS = {
    "between": [1, 5],
    "not_between": [1, 5],
    "is_date_before": "2026-01-01",
    "is_date_after": "-7d",
    "is_date_exact": "2026-01-01",
    "regex": "^[0-9]+$",
    "not_regex": "^[0-9]+$",
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_no_comparison_takes_more_than_linear_time(operator):
    predicate = compile_predicate(operator, OPERANDS.get(operator, "1.2"), CONTEXT)
    for text in hostile_texts(40_000):
        assert processor_time(lambda text=text: predicate(text)) < SLOWEST_S, (text[:20], text[-3:])


@pytest.mark.parametrize(
    ("operator", "bound"), [("gt", 5), ("is_date_after", "2026-01-01"), ("semver_gt", "1.0.0")]
)
def test_only_texts_of_some_length_are_numbers_dates_and_versions(operator, bound):
    text = {"gt": "9", "is_date_after": "2027-01-01", "semver_gt": "2.0.0"}[operator]
    limit = {"gt": MAX_NUMBER_LENGTH, "is_date_after": MAX_DATE_LENGTH, "semver_gt": MAX_VERSION_LENGTH}[
        operator
    ]
    longest = text.rjust(limit, "0" if operator == "gt" else " ")
    assert matches(operator, bound, longest)
    assert not matches(operator, bound, ("0" if operator == "gt" else " ") + longest)


class TestLookAround:
    """What RE2 lacks is searched by an engine that backtracks, for a limited time."""

    @pytest.mark.parametrize(
        ("pattern", "text", "found"),
        [
            ("^(?!free)", "pro", True),
            ("^(?!free)", "freedom", False),
            ("(?<=@)acme", "ann@acme.com", True),
            ("(?<!@)acme", "ann@acme.com", False),
            (r"(\w)\1", "hello", True),
            (r"(\w)\1", "world", False),
            (r"(?P<q>['\"]).*(?P=q)", "say 'x'", True),
            ("(?=É)", "É", True),
            ("(?>a+)b", "aab", True),
        ],
    )
    def test_matches(self, pattern, text, found):
        assert compile_predicate("regex", pattern)(text) is found
        assert compile_predicate("not_regex", pattern)(text) is not found

    @pytest.mark.parametrize("pattern", ["(?=", "(?!a", r"(a)\2", "(?<=a*)("])
    def test_invalid_patterns_are_false_for_both(self, pattern):
        assert compile_predicate("regex", pattern)("a") is False
        assert compile_predicate("not_regex", pattern)("a") is False

    def test_an_endless_search_is_given_up(self):
        pattern = r"^(?=(a|a)*b)(.*)\1$"
        started = time.thread_time()
        assert compile_predicate("regex", pattern)("a" * 5_000) is False
        assert compile_predicate("not_regex", pattern)("a" * 5_000) is True
        assert time.thread_time() - started < 5

    def test_searches_of_one_account_take_a_little_time_in_all(self, monkeypatch):
        endless = compile_predicate("regex", r"^(?=(a|a)*b)(.*)\1$")
        sound = compile_predicate("regex", "^(?!free)")
        moment = [1_000.0]
        monkeypatch.setattr(allowance, "_now", lambda: moment[0])

        def many():
            allowance.begin_request(1)
            for _ in range(1_000):
                assert endless("a" * 5_000) is False
            assert sound("pro") is False, "nothing is searched any more"
            allowance.begin_request(2)
            assert sound("pro") is True, "for nobody else"

        started = time.thread_time()
        contextvars.copy_context().run(many)
        assert time.thread_time() - started < 5, "it would be 20"
        assert sound("pro") is True, "here they are on nobody's account"
        moment[0] += 60

        def later():
            allowance.begin_request(1)
            assert sound("pro") is True

        contextvars.copy_context().run(later)

    def test_a_text_that_is_too_long_does_not_match(self):
        assert compile_predicate("regex", "(?=a)")("a" * MAX_TEXT_LENGTH) is True
        assert compile_predicate("regex", "(?=a)")("a" * (MAX_TEXT_LENGTH + 1)) is False
