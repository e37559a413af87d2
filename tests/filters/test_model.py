from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.filters import (
    FilterError,
    PropertyFilter,
    PropertyGroup,
    parse_filter,
    parse_filters,
    parse_group,
)
from hoglab.filters.model import MAX_FILTERS, MAX_GROUP_DEPTH

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FILTERISH = st.recursive(
    JSON,
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["AND", "OR", "person", "cohort", None, 3]),
            "values": st.lists(inner, max_size=3) | JSON,
            "key": JSON,
            "operator": JSON,
            "value": JSON,
            "negation": JSON,
            "group_type_index": JSON,
        },
    ),
    max_leaves=10,
)


def test_leaf_keeps_what_was_sent_and_fills_the_operator_in():
    leaf = parse_filter({"key": "plan", "type": "person", "value": ["pro"], "label": "Plan"})

    assert leaf == PropertyFilter(
        "plan",
        "person",
        "exact",
        ["pro"],
        extra={"label": "Plan"},
        given=frozenset({"key", "type", "value", "label"}),
    )


def test_cohort_defaults_to_membership():
    leaf = parse_filter({"key": "id", "type": "cohort", "value": 7})
    assert (leaf.operator, leaf.is_cohort) == ("in", True)


def test_type_defaults_to_what_the_caller_says():
    assert parse_filter({"key": "a"}).type == "event"
    assert parse_filter({"key": "a"}, default_type="person").type == "person"


def test_missing_value_differs_from_null():
    assert "value" not in parse_filter({"key": "a"}).given
    assert "value" in parse_filter({"key": "a", "value": None}).given


@pytest.mark.parametrize("raw", [None, [], {}])
def test_nothing_is_the_empty_conjunction(raw):
    assert parse_filters(raw) == PropertyGroup("AND", ())


def test_groups_nest():
    tree = parse_group(
        {
            "type": "OR",
            "values": [{"type": "AND", "values": [{"key": "a"}]}, {}, {"key": "b", "negation": True}],
        }
    )

    assert tree.type == "OR"
    assert [type(value) for value in tree.values] == [PropertyGroup, PropertyGroup, PropertyFilter]
    assert [leaf.key for leaf in tree.leaves()] == ["a", "b"]


@pytest.mark.parametrize(
    ("raw", "path", "message"),
    [
        (5, "properties", "must be a list or an object, got int"),
        ([5], "properties[0]", "must be an object, got int"),
        ([{"key": []}], "properties[0].key", "must be a string, got list"),
        ([{"operator": 1}], "properties[0].operator", "must be a string, got int"),
        ([{"negation": "yes"}], "properties[0].negation", "must be a boolean, got str"),
        (
            [{"group_type_index": "0"}],
            "properties[0].group_type_index",
            "must be an integer or null, got str",
        ),
        (
            [{"group_type_index": True}],
            "properties[0].group_type_index",
            "must be an integer or null, got bool",
        ),
        ({"type": "XOR", "values": []}, "properties.type", "must be AND or OR"),
        (
            {"type": "AND", "values": [{"type": "OR"}]},
            "properties.values[0].values",
            "must be a list, got NoneType",
        ),
    ],
)
def test_errors_say_where(raw, path, message):
    with pytest.raises(FilterError) as caught:
        parse_filters(raw)
    assert (caught.value.path, caught.value.message) == (path, message)


def test_depth_is_limited():
    tree: object = {"key": "a"}
    for _ in range(MAX_GROUP_DEPTH):
        tree = {"type": "AND", "values": [tree]}
    parse_group(tree)
    with pytest.raises(FilterError, match="deeper than"):
        parse_group({"type": "AND", "values": [{"type": "AND", "values": [tree]}]})


def test_number_of_filters_is_limited():
    parse_filters([{"key": "a"}] * MAX_FILTERS)
    with pytest.raises(FilterError, match="more than"):
        parse_filters([{"type": "OR", "values": [{"key": "a"}] * MAX_FILTERS}, {"key": "b"}])


@given(FILTERISH)
def test_any_json_is_read_or_refused(raw):
    try:
        tree = parse_filters(raw)
    except FilterError as error:
        assert error.path.startswith("properties")  # noqa: PT017
    else:
        assert all(isinstance(leaf.key, str) for leaf in tree.leaves())
