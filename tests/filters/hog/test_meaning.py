"""What filters match (spec: hog-runtime 2.1-2.9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.filters.hog.events import DEAR_OR_RETURNED, filter_globals

from hoglab.filters.hog import (
    FILTER_ROOTS,
    NOT_COMPILED,
    CompiledFilter,
    FilterContext,
    FilterFailure,
    ReferencedCohort,
    build_filter,
    filter_bytecode,
)
from hoglab.filters.hog.conditions import NUMBER_TEXT
from hoglab.filters.hog.operators import OPERATORS
from hoglab.filters.model import FilterError

MISSING = object()


def matches(filters: dict[str, Any], context: FilterContext | None = None, **event: Any) -> bool:
    return CompiledFilter(build_filter(filters, context or FilterContext())).matches(filter_globals(**event))


def leaf_matches(value: Any, timezone: str = "UTC", /, **leaf: Any) -> bool:
    """Whether one event property with a value (or without one) meets a filter on it."""
    properties = {} if value is MISSING else {"p": value}
    return matches(
        {"properties": [{"key": "p", "type": "event", **leaf}]},
        FilterContext(timezone=timezone),
        properties=properties,
    )


def test_the_roots_are_the_specified_ones() -> None:
    assert filter_globals().keys() == FILTER_ROOTS
    assert len(FILTER_ROOTS) == 23


# --- 2.9


A_CONTEXT = FilterContext(
    test_account_filters=[
        {"key": "email", "type": "person", "operator": "not_icontains", "value": "@acme.com"}
    ]
)


@pytest.mark.parametrize(
    ("event", "amount", "person", "expected"),
    [
        ("purchase", 150, {"plan": "pro", "email": "a@x.io"}, True),
        ("purchase", "99", {"plan": "pro", "email": "a@x.io"}, False),
        ("purchase", "101", {"plan": "pro", "email": "a@x.io"}, True),
        ("purchase", 100, {"plan": "pro", "email": "a@x.io"}, False),
        ("purchase", MISSING, {"plan": "pro", "email": "a@x.io"}, False),
        ("refund", MISSING, {}, True),
        ("refund", MISSING, {"plan": "free"}, False),
        ("refund", MISSING, {"plan": "pro", "email": "Bob@ACME.com"}, False),
        ("pageview", MISSING, {"plan": "pro", "email": "a@x.io"}, False),
        ("refund", MISSING, None, True),
    ],
)
def test_truth_table_a(event: str, amount: Any, person: dict[str, Any] | None, expected: bool) -> None:
    properties = {} if amount is MISSING else {"amount": amount}
    assert matches(DEAR_OR_RETURNED, A_CONTEXT, event=event, properties=properties, person=person) is expected


@pytest.mark.parametrize(
    ("vip", "expected"), [(True, True), ("true", True), (False, False), (MISSING, False), (1, False)]
)
def test_truth_table_b(vip: Any, expected: bool) -> None:
    assert leaf_matches(vip, operator="exact", value=["true"]) is expected


def test_json_booleans_compare_as_booleans() -> None:
    assert not leaf_matches(1, operator="exact", value=[True])
    assert leaf_matches("true", operator="exact", value=True)
    assert not leaf_matches("false", operator="exact", value=True)


# --- 2.4: every operator against the kinds of values


VALUES = [MISSING, None, "", 5, "5", 10, True, [1, "a"], {"k": 1}]
NAMES = ["missing", "null", "empty", "5", "'5'", "10", "true", "list", "object"]

TABLE: list[tuple[str, Any, str]] = [  # one letter for each of VALUES: T matches, - does not
    ("exact", "5", "---TT----"),
    ("exact", None, "TT-------"),
    ("exact", ["5", "10"], "---TTT---"),
    ("exact", ["10"], "-----T---"),
    ("exact", "", "--T------"),
    ("exact", 0, "---------"),
    ("exact", 1, "---------"),
    ("exact", [None, "5"], "TT-TT----"),
    ("is_not", "5", "TTT--TTTT"),
    ("is_not", ["5", "10"], "TTT---TTT"),
    ("is_not", [None, "5"], "--T--TTTT"),
    ("is_set", None, "--TTTTTTT"),
    ("is_not_set", None, "TT-------"),
    ("icontains", "5", "---TT----"),
    ("icontains", "UL", "---------"),
    ("icontains", "TRU", "------T--"),
    ("icontains", "[1, 'A']", "-------T-"),
    ("icontains", ["5", "x"], "---TT----"),
    ("icontains", ["l", "x"], "---------"),
    ("icontains", "", "--TTTTTTT"),
    ("not_icontains", "5", "TTT--TTTT"),
    ("not_icontains", "nul", "TTTTTTTTT"),
    ("not_icontains", ["5", "10"], "TTT---TTT"),
    ("icontains", "_", "---------"),
    ("not_icontains", "%", "TTTTTTTTT"),
    ("icontains_multi", ["5", "rue"], "---TT-T--"),
    ("icontains_multi", "5", "---TT----"),
    ("icontains_multi", ["%"], "---------"),
    ("not_icontains_multi", ["5", "null"], "TTT--TTTT"),
    ("regex", "^5$", "---TT----"),
    ("regex", "ul+", "---------"),
    ("regex", "", "--TTTTTTT"),
    ("regex", "^$", "--T------"),
    ("regex", ["^5$", "^10$"], "---TTT---"),
    ("not_regex", "^5$", "TTT--TTTT"),
    ("not_regex", "ul+", "TTTTTTTTT"),
    ("not_regex", ["^5$", "^10$"], "TTT---TTT"),
    ("gt", 5, "-----T---"),
    ("gt", "5", "-----T---"),
    ("gt", "4.5", "---TTT---"),
    ("lt", "10", "---TT----"),
    ("gte", 5, "---TTT---"),
    ("gte", 0, "---TTT---"),
    ("lt", 6, "---TT----"),
    ("lte", 5, "---TT----"),
    ("min", 5, "---TTT---"),
    ("max", 5, "---TT----"),
    ("between", [5, 9], "---TT----"),
    ("between", [-1, 5], "---TT----"),
    ("not_between", [5, 9], "-----T---"),
    ("not_between", [6, 20], "---TT----"),
    ("in", ["5", 10], "---TTT---"),
    ("in", ["5"], "---TT----"),
    ("not_in", ["5", 10], "TTT---TTT"),
    ("exact", [], "TTTTTTTTT"),
    ("is_not", [], "TTTTTTTTT"),
    ("gt", [], "TTTTTTTTT"),
]


@pytest.mark.parametrize(("operator", "value", "expected"), TABLE)
def test_operators(operator: str, value: Any, expected: str) -> None:
    found = "".join("T" if leaf_matches(one, operator=operator, value=value) else "-" for one in VALUES)
    assert dict(zip(NAMES, found, strict=True)) == dict(zip(NAMES, expected, strict=True))


@pytest.mark.parametrize(
    ("operator", "value", "matching", "others"),
    [
        ("is_date_exact", "2026-01-02", ["2026-01-02", "2026-01-02T00:00:00Z"], ["2026-01-03", 5, "x", ""]),
        (
            "is_date_before",
            "2026-01-02",
            ["2026-01-01T23:59:59Z", 5, "5"],
            ["2026-01-02", MISSING, None, "x"],
        ),
        (
            "is_date_after",
            "2026-01-02T00:00:00+02:00",
            ["2026-01-02", "2026-01-01T22:00:01Z"],
            ["2026-01-01T22:00:00Z", MISSING, "x"],
        ),
        ("is_date_before", "-1d", ["2020-01-01"], ["2999-01-01", MISSING]),
        ("is_date_after", "-1000y", ["2020-01-01"], [MISSING, "x"]),
        ("is_date_after", "1h", ["2999-01-01"], ["2020-01-01"]),
        ("is_date_before", ["2026-01-02", "2027-01-02"], ["2026-06-01"], ["2027-01-02"]),
        ("is_cleaned_path_exact", "/a", ["/a"], ["/a/", MISSING]),
        ("semver_eq", "1.2.3", ["1.2.3", "1.2.3-beta", "v1.2.3"], ["1.2.4", "1.2", "x", MISSING, ""]),
        ("semver_eq", "1.2", ["1.2.0", "1.2"], ["1.2.1"]),
        ("semver_neq", "1.2.3", ["1.2.4", "x", MISSING, None], ["1.2.3"]),
        ("semver_gt", "1.9.0", ["1.10.0", "2"], ["1.9.0", "1.9", "x", MISSING, "1.2.3.4"]),
        ("semver_gte", "1.9.0", ["1.9", "1.10.0"], ["1.8.9", MISSING]),
        ("semver_lt", "1.9.0", ["1.8.9", "0.1"], ["1.9", "x", MISSING, ""]),
        ("semver_lte", "1.9.0", ["1.9", "1.8"], ["1.9.1", MISSING]),
        ("semver_tilde", "1.2.3", ["1.2.3", "1.2.9"], ["1.3.0", "1.2.2", MISSING]),
        ("semver_tilde", "1", ["1.0.0", "1.9"], ["2.0.0", "0.9"]),
        ("semver_caret", "1.2.3", ["1.2.3", "1.9"], ["2.0.0", "1.2.2"]),
        ("semver_caret", "0.2.3", ["0.2.9"], ["0.3.0"]),
        ("semver_caret", "0.0.3", ["0.0.3"], ["0.0.4", "0.0.2"]),
        ("semver_wildcard", "1.*", ["1.0", "1.99.1"], ["2.0", "0.9"]),
        ("semver_wildcard", "1.2.*", ["1.2.0", "1.2.9"], ["1.3.0"]),
    ],
)
def test_dates_and_versions(
    operator: str, value: Any, matching: Sequence[Any], others: Sequence[Any]
) -> None:
    for one in matching:
        assert leaf_matches(one, operator=operator, value=value), one
    for one in others:
        assert not leaf_matches(one, operator=operator, value=value), one


def test_dates_without_a_zone_are_in_the_project_s() -> None:
    leaf = {"operator": "is_date_exact", "value": "2026-01-02T00:00:00"}
    assert leaf_matches("2026-01-02T00:00:00", "America/New_York", **leaf)
    assert leaf_matches("2026-01-02T05:00:00Z", "America/New_York", **leaf)
    assert not leaf_matches("2026-01-02T00:00:00Z", "America/New_York", **leaf)


def test_every_operator_is_tested() -> None:
    named = {row[0] for row in TABLE} | {"is_date_exact", "is_date_before", "is_date_after"}
    named |= {"is_cleaned_path_exact"} | {name for name in OPERATORS if name.startswith("semver_")}
    assert named == OPERATORS.keys()


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        ({"operator": "between", "value": [9, 5]}, "must be two numbers, the smaller one first"),
        ({"operator": "between", "value": 5}, "must be two numbers, the smaller one first"),
        ({"operator": "between", "value": ["a", "b"]}, "must be two numbers, the smaller one first"),
        ({"operator": "gte", "value": "abc"}, "must be a number"),
        ({"operator": "gt", "value": "2026-01-01"}, "must be a number"),
        ({"operator": "lt", "value": True}, "must be a number"),
        ({"operator": "max", "value": None}, "must be a number"),
        ({"operator": "min", "value": [1, "x"]}, "must be a number"),
        ({"operator": "icontains_multi", "value": []}, "must be at least one text"),
        ({"operator": "not_icontains_multi", "value": []}, "must be at least one text"),
        ({"operator": "exact", "value": {}}, "must be a string, a number or a boolean"),
        ({"operator": "is_date_before", "value": "nonsense"}, "must be a date"),
        ({"operator": "is_date_after", "value": 17}, "must be a date"),
        ({"operator": "semver_eq", "value": "x"}, "must be a version such as 1.2.3"),
        ({"operator": "semver_wildcard", "value": "x"}, "must be a version pattern such as 1.2.*"),
        ({"operator": "regex", "value": "x" * 1001}, "longer than 1000 bytes"),
    ],
)
def test_values_that_cannot_be_used(leaf: dict[str, Any], message: str) -> None:
    with pytest.raises(FilterError, match=message):
        leaf_matches(1, **leaf)


def test_incomplete_filters_are_true() -> None:
    for leaf in ({"key": "p"}, {"type": "event", "value": 1}, {"key": "k", "type": "group", "value": 1}):
        assert matches({"properties": [leaf]})


# --- fields


def test_fields_by_type() -> None:
    event: dict[str, Any] = {
        "properties": {"a.b": 1, "a": {"b": 2}},
        "person": {"email": "x"},
        "chain": "a.btn",
        "group_2": {"properties": {"size": 5}},
        "$group_2": "acme",
        "variables": {"v": 1},
    }
    for leaf in (
        {"key": "a.b", "type": "event", "value": 1},
        {"key": "a.b", "type": "feature", "value": 1},
        {"key": "$elements_chain", "type": "event", "value": "a.btn"},
        {"key": "email", "type": "person", "value": "x"},
        {"key": "distinct_id", "type": "person", "value": "u1"},
        {"key": "size", "type": "group", "group_type_index": 2, "value": 5},
        {"key": "event", "type": "event_metadata", "value": "e"},
        {"key": "$group_2", "type": "event_metadata", "value": "acme"},
        {"key": "v", "type": "workflow_variable", "value": 1},
        {"key": "anything", "type": "flag", "value": "x"},
    ):
        assert matches({"properties": [leaf]}, **event), leaf
        if leaf["type"] != "flag":
            assert not matches({"properties": [{**leaf, "value": "other"}]}, **event), leaf


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        ({"key": "a", "type": "session", "value": 1}, "Filters of type session"),
        ({"key": "person_id", "type": "event_metadata", "value": 1}, "Global variable not found: person_id"),
        ({"key": "a", "type": "group", "group_type_index": 5, "value": 1}, "must be 0 to 4"),
    ],
)
def test_fields_that_do_not_exist(leaf: dict[str, Any], message: str) -> None:
    with pytest.raises(FilterError, match=message):
        matches({"properties": [leaf]})


def test_keys_are_nested_for_activity_log_entries_only() -> None:
    leaf = {"key": "detail.name", "type": "event", "value": "x"}
    name = "$activity_log_entry_created"
    event = {"event": name, "properties": {"detail": {"name": "x"}}}
    assert matches({"events": [{"id": name, "properties": [leaf]}]}, **event)
    assert matches({"events": [{"id": name}], "properties": [leaf]}, **event)
    assert not matches({"events": [{"id": name}, {"id": "other"}], "properties": [leaf]}, **event)


def test_exception_lists() -> None:
    leaf = {"key": "$exception_types", "type": "event", "operator": "icontains", "value": "type"}
    assert matches({"properties": [leaf]}, properties={"$exception_types": ["ValueError", "TypeError"]})
    assert matches({"properties": [leaf]}, properties={"$exception_types": '["TypeError"]'})
    assert not matches({"properties": [leaf]}, properties={"$exception_types": ["ValueError"]})
    assert not matches({"properties": [leaf]})


def test_elements() -> None:
    chain = 'a.btn:attr_id="buy"href="/pay"text="Buy now";div.box:text="More"'

    def found(key: str, operator: str, value: Any) -> bool:
        leaf = {"key": key, "type": "element", "operator": operator, "value": value}
        return matches({"properties": [leaf]}, chain=chain)

    assert found("href", "exact", "/pay")
    assert not found("href", "icontains", "/other")
    assert found("text", "icontains", "buy")
    assert found("text", "not_icontains", "buy")  # the other element does not hold it
    assert not found("text", "exact", "Buy")
    assert found("selector", "exact", "div.box a.btn")
    assert found("selector", "exact", ["p", "#buy"])
    assert not found("selector", "is_not", ["p", "#buy"])
    assert found("selector", "is_not", "p")
    assert found("tag_name", "exact", ["p", "div"])
    assert not found("tag_name", "exact", "p")
    for key, operator in (("selector", "regex"), ("tag_name", "icontains"), ("nonsense", "exact")):
        with pytest.raises(FilterError):
            found(key, operator, "x")


# --- combination


def test_no_conditions_match_everything() -> None:
    for filters in ({}, {"events": []}, {"events": [{}]}, {"events": [{"id": None}]}, {"properties": []}):
        assert matches(filters)


def test_events_by_name() -> None:
    filters = {"events": [{"id": "a"}, {"id": "b", "properties": [{"key": "p", "value": "x"}]}]}
    assert matches(filters, event="a")
    assert not matches(filters, event="A")
    assert not matches(filters, event="b")
    assert matches(filters, event="b", properties={"p": "x"})
    assert not matches(filters, event="c")


def test_groups_nest() -> None:
    def leaf(value: str) -> dict[str, Any]:
        return {"key": "p", "value": value}

    either = {"type": "OR", "values": [leaf("a"), {"type": "AND", "values": [leaf("b"), leaf("c")]}]}
    for filters in ({"properties": either}, {"properties": [either]}):
        assert matches(filters, properties={"p": "a"})
        assert not matches(filters, properties={"p": "b"})
    assert matches({"properties": [{"type": "OR", "values": []}]})


def test_only_the_boolean_true_matches() -> None:
    def hogql(text: str, **more: Any) -> bool:
        return matches(
            {"properties": [{"key": text, "type": "hogql"}, *more.get("others", [])]}, properties={"b": "x"}
        )

    assert hogql("properties.b = 'x'")
    assert not hogql("properties.b")
    assert not hogql("1")
    assert hogql("properties.b", others=[{"key": "b", "value": "x"}])
    assert hogql("length(properties.b) = 1")


def test_expressions_see_a_table_of_names_only() -> None:
    for text in (
        "person.properties.email",
        "pdi.person.id",
        "elements_chain_texts",
        "arrayMap(lower, [event])",
    ):
        build_filter({"properties": [{"key": text, "type": "hogql"}]}, FilterContext())
    for text in ("session.id", "inputs.x", "project.id", "groups.a", "fetch", "sleep"):
        with pytest.raises(FilterError, match="Global variable not found"):
            build_filter({"properties": [{"key": text, "type": "hogql"}]}, FilterContext())


def test_failures_are_told() -> None:
    broken = CompiledFilter(
        build_filter({"properties": [{"key": "[1][properties.at]", "type": "hogql"}]}, FilterContext())
    )
    with pytest.raises(FilterFailure, match="Hog arrays start from index 1"):
        broken.matches(filter_globals(properties={"at": 0}))
    with pytest.raises(FilterFailure, match=NOT_COMPILED):
        CompiledFilter(None).matches(filter_globals())


def test_an_error_behind_a_false_condition_still_fails_the_filter() -> None:
    """Conditions are all evaluated; only the name of the event turns an event away before that."""
    leaves = [{"key": "p", "value": "x"}, {"key": "[1][properties.at]", "type": "hogql"}]
    whole = CompiledFilter(build_filter({"properties": leaves}, FilterContext()))
    with pytest.raises(FilterFailure):
        whole.matches(filter_globals(properties={"at": 0}))
    named = CompiledFilter(build_filter({"events": [{"id": "a", "properties": leaves}]}, FilterContext()))
    assert named.matches(filter_globals("b", {"at": 0})) is False
    with pytest.raises(FilterFailure):
        named.matches(filter_globals("a", {"at": 0}))


# --- actions


def acting(*steps: dict[str, Any]) -> FilterContext:
    return FilterContext(actions={7: list(steps)})


def action_matches(step: dict[str, Any], **event: Any) -> bool:
    return matches({"actions": [{"id": "7"}]}, acting(step), **event)


def test_action_steps() -> None:
    assert action_matches({"event": "a"}, event="a")
    assert not action_matches({"event": "a"}, event="b")
    assert action_matches({"event": None}, event="b")
    two = acting({"event": "a"}, {"event": "b", "properties": [{"key": "p", "value": "x"}]})
    filters = {"actions": [{"id": 7, "properties": [{"key": "q", "value": "y"}]}]}
    assert matches(filters, two, event="a", properties={"q": "y"})
    assert matches(filters, two, event="b", properties={"p": "x", "q": "y"})
    assert not matches(filters, two, event="b", properties={"q": "y"})
    assert not matches(filters, two, event="a")
    assert matches({"actions": [{"id": 7}]}, acting())
    assert not matches({"actions": [{"name": "no id"}]}, acting())
    assert matches({"actions": [{"name": "no id"}], "events": [{"id": "e"}]}, acting())
    with pytest.raises(FilterError, match="Action 8 does not exist"):
        matches({"actions": [{"id": "8"}]}, acting())


@pytest.mark.parametrize(
    ("way", "value", "matching", "others"),
    [
        ("exact", "https://x.io/A", ["https://x.io/A"], ["https://x.io/a", "https://x.io/A/", MISSING]),
        ("contains", "/A", ["https://x.io/A/b"], ["https://x.io/a", MISSING]),
        (None, "/A", ["https://x.io/A/b"], ["https://x.io/a"]),
        (None, "ul", ["null"], [MISSING, None]),
        ("regex", "/[Aa]$", ["https://x.io/a"], ["https://x.io/b", MISSING]),
    ],
)
def test_action_addresses(way: str | None, value: str, matching: list[Any], others: list[Any]) -> None:
    step = {"event": "e", "url": value, "url_matching": way}
    for one in matching:
        assert action_matches(step, properties={"$current_url": one})
    for one in others:
        properties = {} if one is MISSING else {"$current_url": one}
        assert not action_matches(step, properties=properties)


def test_action_elements() -> None:
    chain = 'a.btn:href="/Pay/now"text="Buy it";div.box'
    event = {"event": "$autocapture", "chain": chain}
    for wanted, expected in (
        ({"selector": "div > a.btn"}, True),
        ({"selector": "p"}, False),
        ({"tag_name": "div"}, True),
        ({"tag_name": "p"}, False),
        ({"href": "/Pay/now"}, True),
        ({"href": "/pay", "href_matching": "contains"}, True),
        ({"href": "/pay"}, False),
        ({"href": "^/P", "href_matching": "regex"}, True),
        ({"text": "Buy it"}, True),
        ({"text": "buy", "text_matching": "contains"}, True),
        ({"text": "buy", "text_matching": "exact"}, False),
        ({"text": "it$", "text_matching": "regex"}, True),
    ):
        assert action_matches({"event": "$autocapture", **wanted}, **event) is expected, wanted
    assert action_matches({"event": "e", "selector": "p"}, event="e")  # elements count for autocapture alone


# --- cohorts


def cohort(identifier: int, properties: Any, **more: Any) -> ReferencedCohort:
    return ReferencedCohort(
        identifier, f"C{identifier}", {"properties": properties}, bool(more.get("is_static"))
    )


COHORTS = {
    1: cohort(
        1,
        {
            "type": "OR",
            "values": [
                {"type": "AND", "values": [{"key": "plan", "type": "person", "value": "pro"}]},
                {
                    "type": "AND",
                    "values": [{"key": "vip", "type": "person", "value": "yes", "negation": True}],
                },
            ],
        },
    ),
    2: cohort(2, {"type": "OR", "values": []}),
    3: cohort(3, None, is_static=True),
    4: cohort(4, {"type": "OR", "values": [{"key": "x", "type": "behavioral", "value": "y"}]}),
}


def test_cohorts_of_person_properties_are_spelled_out() -> None:
    context = FilterContext(
        cohorts=COHORTS, test_account_filters=[{"key": "id", "type": "cohort", "value": 1}]
    )
    member, outsider = {"plan": "pro", "vip": "yes"}, {"plan": "free", "vip": "yes"}
    for leaf, expected in (
        ({"value": 1}, True),
        ({"value": "1", "operator": "in"}, True),
        ({"value": 1, "operator": "not_in"}, False),
        ({"value": 1, "negation": True}, False),
        ({"value": [1], "operator": "not_in", "negation": True}, True),
    ):
        filters = {"properties": [{"key": "id", "type": "cohort", **leaf}]}
        assert matches(filters, context, person=member) is expected
        assert matches(filters, context, person=outsider) is not expected
    assert matches({"filter_test_accounts": True}, context, person=member)
    assert not matches({"filter_test_accounts": True}, context, person=outsider)
    assert matches({"filter_test_accounts": False}, context, person=outsider)


@pytest.mark.parametrize(
    ("identifier", "reason"),
    [
        (2, 'cohort "C2" (id 2) has no conditions'),
        (3, 'cohort "C3" (id 3) is a static list of persons'),
        (4, 'cohort "C4" (id 4) looks at more than person properties'),
        (5, "cohort 5 does not exist"),
    ],
)
def test_other_cohorts_are_refused(identifier: int, reason: str) -> None:
    leaf = {"key": "id", "type": "cohort", "value": identifier}
    context = FilterContext(cohorts=COHORTS, test_account_filters=[leaf])
    with pytest.raises(FilterError) as here:
        matches({"properties": [leaf]}, context)
    assert str(here.value) == f"Cohort membership can't be evaluated in real-time filters. {reason}."
    with pytest.raises(FilterError) as there:
        matches({"filter_test_accounts": True}, context)
    assert str(there.value) == (
        f"Your internal/test user filters include cohorts that can't be used in real-time filters: {reason}."
    )


# --- bytecode


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, [29]),
        ({"events": [{"id": None}]}, [29]),
        ({"events": [{"id": "$pageview"}]}, [32, "$pageview", 32, "event", 1, 1, 11]),
        (
            {"events": [{"id": "a"}, {"id": "b"}]},
            [32, "a", 32, "event", 1, 1, 11, 32, "b", 32, "event", 1, 1, 11, 4, 2],
        ),
        (
            {"events": [{"id": "a", "properties": [{"key": "p", "value": "x"}]}]},
            [32, "a", 32, "event", 1, 1, 11, 32, "x", 44, 1, 32, "p", 32, "properties", 1, 2, 21, 3, 2],
        ),
        (
            {"properties": [{"key": "p", "operator": "is_set", "value": "is_set"}]},
            [31, 32, "p", 32, "properties", 1, 2, 12],
        ),
        (
            {"properties": [{"key": "p", "operator": "icontains", "value": "x"}]},
            [32, "%x%", 32, "p", 32, "properties", 1, 2, 2, "toString", 1, 18],
        ),
        (
            {"properties": [{"key": "p", "operator": "regex", "value": "x"}]},
            [32, "p", 32, "properties", 1, 2, 2, "toString", 1, 32, "x", 2, "match", 2],
        ),
        (
            {"properties": [{"key": "p", "operator": "lt", "value": 5}]},
            [
                *(32, "p", 32, "properties", 1, 2, 2, "toString", 1, 32, NUMBER_TEXT, 2, "match", 2),
                *(33, 5, 32, "p", 32, "properties", 1, 2, 15, 3, 2),
            ],
        ),
    ],
)
def test_bytecode(filters: dict[str, Any], expected: list[Any]) -> None:
    """The plain form where it is right for null, a test for null in front where it is not."""
    assert filter_bytecode(build_filter(filters, FilterContext())) == ["_H", 1, *expected]
