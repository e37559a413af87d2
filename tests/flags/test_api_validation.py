"""What the management API accepts as a feature flag, and the form it keeps it in (spec: experiments-api 7.3.3)."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.flags.requests import URL, error, group, post, with_property

from hoglab.flags import service
from hoglab.flags.service import MAX_FLAGS_PER_PROJECT
from hoglab.flags.validation import MAX_FILTERS_BYTES
from hoglab.storage.database.tables import feature_flag

AB = {
    "variants": [{"key": "a", "name": "A", "rollout_percentage": 50}, {"key": "b", "rollout_percentage": 50}]
}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


# --- validation -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code", "attr", "detail"),
    [
        ({"filters": group()}, "required", "key", "This field is required."),
        ({"key": None, "filters": group()}, "null", "key", "This field may not be null."),
        ({"key": " ", "filters": group()}, "blank", "key", "This field may not be blank."),
        (
            {"key": "k" * 401, "filters": group()},
            "max_length",
            "key",
            "Ensure this field has no more than 400 characters.",
        ),
        (
            {"key": "a b", "filters": group()},
            "invalid_key",
            "key",
            "Only letters, numbers, hyphens (-) & underscores (_) are allowed.",
        ),
        (
            {"key": "é", "filters": group()},
            "invalid_key",
            "key",
            "Only letters, numbers, hyphens (-) & underscores (_) are allowed.",
        ),
        (
            {"key": "k", "filters": []},
            "not_a_dict",
            "filters",
            'Expected a dictionary of items but got type "list".',
        ),
        ({"key": "k", "filters": None}, "null", "filters", "This field may not be null."),
        (
            {"key": "k", "active": "perhaps", "filters": group()},
            "invalid_input",
            "active",
            "Must be a valid boolean.",
        ),
        (
            {"key": "k", "tags": "x", "filters": group()},
            "not_a_list",
            "tags",
            'Expected a list of items but got type "str".',
        ),
        (
            {"key": "k", "evaluation_runtime": "moon", "filters": group()},
            "invalid_choice",
            "evaluation_runtime",
            '"moon" is not a valid choice.',
        ),
        (
            {"key": "k", "bucketing_identifier": "x", "filters": group()},
            "invalid_choice",
            "bucketing_identifier",
            '"x" is not a valid choice.',
        ),
        (
            {"key": "k", "creation_context": "x", "filters": group()},
            "invalid_choice",
            "creation_context",
            '"x" is not a valid choice.',
        ),
    ],
)
def test_field_errors(server, body, code, attr, detail):
    assert error(post(server, **body)) == (code, attr, detail)


NO_GROUPS = "Feature flags must have at least one condition set (group)."


@pytest.mark.parametrize(
    ("filters", "detail"),
    [
        (None, NO_GROUPS),
        ({}, NO_GROUPS),
        ({"groups": []}, NO_GROUPS),
        ({"groups": None}, NO_GROUPS),
        ({"groups": "x"}, "groups must be a list, got str"),
        ({"groups": [5]}, "groups[0] must be an object, got int"),
        (group(rollout_percentage=150), "groups[0].rollout_percentage must be between 0 and 100, got 150"),
        (group(rollout_percentage=-0.5), "groups[0].rollout_percentage must be between 0 and 100, got -0.5"),
        (group(rollout_percentage="5"), "groups[0].rollout_percentage must be a number or null, got str"),
        (group(rollout_percentage=True), "groups[0].rollout_percentage must be a number or null, got bool"),
        (group(variant=5), "groups[0].variant must be a string or null, got int"),
        (group(properties={}), "groups[0].properties must be a list or null, got dict"),
        (group(properties=[1]), "groups[0].properties[0] must be an object, got int"),
        (
            group(aggregation_group_type_index="0"),
            "groups[0].aggregation_group_type_index must be an integer or null, got str",
        ),
        (
            group(aggregation_group_type_index=7),
            "groups[0].aggregation_group_type_index must be between 0 and 4, got 7",
        ),
        (
            with_property(type="event"),
            "groups[0].properties[0].type must be one of person, cohort, group, flag, got event",
        ),
        (
            with_property(operator="sounds_like"),
            "groups[0].properties[0].operator is not a known operator: sounds_like",
        ),
        (with_property(operator=[]), "groups[0].properties[0].operator is not a known operator: []"),
        (with_property(key=None), "groups[0].properties[0].key must be a string, got NoneType"),
        ({**group(), "multivariate": []}, "multivariate must be an object or null, got list"),
        ({**group(), "multivariate": {"variants": {}}}, "multivariate.variants must be a list, got dict"),
        (
            {**group(), "multivariate": {"variants": [{"key": 1}]}},
            "multivariate.variants[0].key must be a string",
        ),
        (
            {**group(), "multivariate": {"variants": [{"key": "a"}]}},
            "multivariate.variants[0].rollout_percentage must be a number",
        ),
        ({**group(), "payloads": []}, "Payloads must be passed as a dictionary"),
        ({**group(), "payloads": {"true": "{x"}}, "Payload for key 'true' is not valid JSON."),
        ({**group(), "holdout": 5}, "holdout must be an object or null, got int"),
        ({**group(), "holdout": {"id": "5"}}, "holdout.id must be an integer"),
        ({**group(), "holdout": {"id": 5}}, "holdout.exclusion_percentage must be a number"),
        ({**group(), "early_exit": "x"}, "early_exit must be a boolean or null, got str"),
        ({**group(), "version": 2, "rules": []}, "Only flags of configuration version 1 are supported."),
        (
            {**group(), "note": "x" * MAX_FILTERS_BYTES},
            f"The filters exceed the limit of {MAX_FILTERS_BYTES} bytes.",
        ),
    ],
)
def test_filter_types(server, filters, detail):
    body = {"key": "k"} if filters is None else {"key": "k", "filters": filters}
    assert error(post(server, **body)) == ("invalid_input", "filters", detail)


@pytest.mark.parametrize(
    ("filters", "rule", "detail"),
    [
        (
            {
                **group(),
                "multivariate": {
                    "variants": [
                        {"key": "a", "rollout_percentage": 50},
                        {"key": "b", "rollout_percentage": 40},
                    ]
                },
            },
            "variant_rollout_sum_not_100",
            "multivariate.variants: Variant rollout percentages must sum to 100, got 90.",
        ),
        (
            {**group(), "multivariate": {"variants": [{"key": "a", "rollout_percentage": 33.33}] * 3}},
            "variant_rollout_sum_not_100",
            "multivariate.variants: Variant rollout percentages must sum to 100, got 99.99.",
        ),
        (
            {**group(), "multivariate": {"variants": [{"key": "a", "rollout_percentage": 50}] * 2}},
            "variant_keys_not_unique",
            "multivariate.variants: Variant keys must be unique, duplicated: a.",
        ),
        (
            {**group(), "multivariate": AB, "payloads": {"c": "1"}},
            "payload_key_not_a_variant",
            "payloads.c: Payload key 'c' does not match any variant key.",
        ),
        (
            {**group(), "payloads": {"x": "1"}},
            "payload_key_not_true",
            "payloads.x: Payload key 'x' is invalid: boolean flags only support the 'true' key.",
        ),
        (
            {**group(variant="c"), "multivariate": AB},
            "group_variant_not_a_variant",
            "groups[0].variant: Variant override 'c' does not match any variant key.",
        ),
        (
            with_property(type="group", group_type_index=0),
            "person_aggregation_property_type",
            "groups[0].properties[0]: Person-aggregated conditions can only use person, cohort, and flag properties.",
        ),
        (
            with_property(operator="icontains", value=5),
            "operator_requires_string_value",
            "groups[0].properties[0].value: Operator icontains requires a string value.",
        ),
    ],
)
def test_cross_field_rules(server, filters, rule, detail):
    assert error(post(server, key="k", filters=filters)) == (f"cross_field.{rule}", "filters", detail)


NEVER = [
    ("in", ["a"], "operator"),
    ("not_in", ["a"], "operator"),
    ("flag_evaluates_to", True, "operator"),
    *((operator, "abc", "value") for operator in ("gt", "gte", "lt", "lte", "min", "max")),
    *((operator, value, "value") for operator in ("gt", "lte") for value in (None, True, [], {}, "nan", "")),
    *(
        (operator, value, "value")
        for operator in ("between", "not_between")
        for value in (5, [3, 1], ["a", 2], [1])
    ),
    *((operator, "[", "value") for operator in ("regex", "not_regex")),
    ("not_regex", 5, "value"),
    *(
        (f"is_date_{way}", value, "value")
        for way in ("after", "before", "exact")
        for value in ("gestern", 17, None, "2026-02-30", "99999d", True)
    ),
    *(
        (f"semver_{way}", "abc", "value")
        for way in ("eq", "neq", "gt", "gte", "lt", "lte", "tilde", "caret", "wildcard")
    ),
    ("icontains_multi", [], "value"),
    *(
        (f"{way}{place}", value, "value")
        for way in ("", "not_")
        for place in ("icontains", "starts_with", "ends_with")
        for value in (["a"], {}, None)
    ),
]
"""Operators with operands that match nobody, and the key that is wrong."""


@pytest.mark.parametrize(("operator", "value", "place"), NEVER)
def test_conditions_that_can_never_match_are_refused(server, operator, value, place):
    code, attr, detail = error(post(server, key="k", filters=with_property(operator=operator, value=value)))
    assert code.startswith("cross_field.")
    assert attr == "filters"
    assert detail.startswith(f"groups[0].properties[0].{place}: ")


def test_the_flags_of_a_project_are_bounded_together(server, monkeypatch):
    """Each process has all of them in memory."""
    monkeypatch.setattr(service, "MAX_FILTERS_PER_PROJECT", 3_000)

    def filters(size):
        return {"groups": [{"description": "x" * size}]}

    first = post(server, key="first", filters=filters(1_500)).json()
    code, attr, detail = error(post(server, key="second", filters=filters(1_500)))
    assert (code, attr) == ("invalid_input", "filters")
    assert "3,000 characters together" in detail
    second = post(server, key="second", filters=filters(500)).json()
    assert (
        error(server.client.patch(f"{URL}{second['id']}/", json={"filters": filters(1_500)}))[1] == "filters"
    )
    assert server.client.patch(f"{URL}{first['id']}/", json={"filters": filters(1_600)}).status_code == 200
    assert server.client.patch(f"{URL}{first['id']}/", json={"deleted": True}).status_code == 200
    assert server.client.patch(f"{URL}{second['id']}/", json={"filters": filters(2_000)}).status_code == 200
    assert error(server.client.patch(f"{URL}{first['id']}/", json={"deleted": False}))[1] == "filters"


@pytest.mark.parametrize(("kind", "key"), [("person", ""), ("group", ""), ("person_metadata", "plan")])
def test_keys_that_nothing_has_are_refused(server, kind, key):
    leaf = {"type": kind, "key": key, "operator": "exact", "value": "a"}
    groups = [{"aggregation_group_type_index": 0 if kind == "group" else None, "properties": [leaf]}]
    code, attr, detail = error(post(server, key="k", filters={"groups": groups}))
    assert (code, attr) == ("cross_field.key_never_matches", "filters")
    assert detail.startswith("groups[0].properties[0].key: ")


@pytest.mark.parametrize(
    "leaf",
    [
        {"type": "flag", "key": "1", "operator": "exact", "value": True},
        {"type": "flag", "key": "1", "value": True},
        {"type": "flag", "key": "1", "operator": "flag_evaluates_to", "value": 5},
    ],
)
def test_dependencies_that_can_never_match_are_refused(server, leaf):
    code, _, _ = error(post(server, key="k", filters={"groups": [{"properties": [leaf]}]}))
    assert code in {"cross_field.operator_never_matches", "cross_field.operand_never_matches"}


@pytest.mark.parametrize(
    ("operator", "value"),
    [
        *(
            (operator, value)
            for operator in ("gt", "gte", "lt", "lte")
            for value in (5, 5.5, -1, "5", "1e3", "-.5")
        ),
        ("between", [1, 5]),
        ("between", ["1", 5.5]),
        ("is_date_after", "-7d"),
        ("is_date_before", " 2026-01-31T12:00:00+02:00 "),
        ("semver_gte", "1.2"),
        ("semver_wildcard", "1.*"),
        ("icontains_multi", "a"),
        ("regex", "^(?!a)"),
    ],
)
def test_conditions_that_can_match_are_saved(server, operator, value):
    answer = post(server, key="k", filters=with_property(operator=operator, value=value))
    assert answer.status_code == 201, answer.text
    assert answer.json()["filters"]["groups"][0]["properties"][0]["value"] == value


def test_unknown_cohorts(server):
    known = server.cohort({})
    leaf = {"key": "id", "type": "cohort", "operator": "in"}
    server.create("good", group(properties=[{**leaf, "value": known}]))
    for value in (known + 90, "x", None):
        code, attr, detail = error(
            post(server, key="k", filters=group(properties=[{**leaf, "value": value}]))
        )
        assert (code, attr) == ("cohort_does_not_exist", "filters")
        assert detail == f"Cohort with id {value} does not exist"


def test_keys_are_unique_before_they_are_well_formed(server):
    server.create("f")
    expected = ("unique", "key", "There is already a feature flag with this key.")
    assert error(post(server, key=" f ", filters=group())) == expected
    other = server.create("g")
    assert error(server.patch(other["id"], key="f")) == expected
    assert server.patch(other["id"], key="g").status_code == 200
    assert error(server.patch(other["id"], key="g h"))[0] == "invalid_key"


def test_number_of_flags_is_limited(server):
    now = datetime.now(UTC)
    row = {
        "project_id": 1,
        "filters": {"groups": []},
        "tags": [],
        "evaluation_contexts": [],
        "created_at": now,
        "updated_at": now,
    }
    with server.database.write() as tx:
        tx.execute(
            sa.insert(feature_flag), [{**row, "key": f"f{number}"} for number in range(MAX_FLAGS_PER_PROJECT)]
        )
    _, attr, detail = error(post(server, key="one-more", filters=group()))
    assert attr is None
    assert detail.startswith("Maximum of 2,000 feature flags allowed per team.")


def test_archived_flags_are_off(server):
    flag = server.create("f")
    archive = (
        "Cannot archive an enabled feature flag. Disable it first, or send active: false in the same request."
    )
    assert error(server.patch(flag["id"], archived=True)) == ("invalid_input", None, archive)
    assert server.patch(flag["id"], archived=True, active=False).json()["archived"] is True
    enable = "Cannot enable an archived feature flag. Unarchive it first."
    assert error(server.patch(flag["id"], active=True)) == ("invalid_input", None, enable)
    assert server.patch(flag["id"], active=True, archived=False).json()["active"] is True


def test_device_bucketing_excludes_continuity(server):
    text = (
        "Cannot enable 'persist across authentication steps' when using device ID bucketing. "
        "These features are incompatible."
    )
    both = {"bucketing_identifier": "device_id", "ensure_experience_continuity": True}
    assert error(post(server, key="k", filters=group(), **both)) == ("invalid_input", None, text)
    flag = server.create("k", bucketing_identifier="device_id")
    assert error(server.patch(flag["id"], ensure_experience_continuity=True)) == ("invalid_input", None, text)


# --- normal form ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("whole", "groups", "kept_whole", "kept_groups"),
    [
        (None, [{}, {}], None, [None, None]),
        (0, [{}, {}], 0, [0, 0]),
        (0, [{}, {"aggregation_group_type_index": 1}], None, [0, 1]),
        (0, [{}, {"aggregation_group_type_index": None}], None, [0, None]),
        (None, [{"aggregation_group_type_index": 1}], 1, [1]),
    ],
)
def test_aggregation_is_kept_in_the_conditions(server, whole, groups, kept_whole, kept_groups):
    filters = server.create("f", {"groups": groups, "aggregation_group_type_index": whole})["filters"]
    assert filters["aggregation_group_type_index"] == kept_whole
    assert [each["aggregation_group_type_index"] for each in filters["groups"]] == kept_groups


def test_operators_and_legacy_holdouts_are_rewritten(server):
    filters = {
        "groups": [
            {
                "properties": [{"key": "x", "type": "person", "value": "5", "operator": "min"}],
                "description": "d",
                "sort_key": "s",
            },
            {"properties": [{"key": "x", "type": "person", "value": "5", "operator": "max"}]},
        ],
        "holdout_groups": [{"properties": [], "rollout_percentage": 10, "variant": "holdout-1"}],
        "holdout": {"id": 1, "exclusion_percentage": 10},
    }
    kept = server.create("f", filters)["filters"]
    assert [each["properties"][0]["operator"] for each in kept["groups"]] == ["gte", "lte"]
    assert (kept["groups"][0]["description"], kept["groups"][0]["sort_key"]) == ("d", "s")
    assert "holdout_groups" not in kept
    assert kept["holdout"] == {"id": 1, "exclusion_percentage": 10}


# --- whatever comes -------------------------------------------------------------------------------

LEAF = st.fixed_dictionaries(
    {},
    optional={
        "key": JSON,
        "type": st.sampled_from(["person", "group", "cohort", "flag"]) | JSON,
        "operator": st.sampled_from(["exact", "gt", "in", "flag_evaluates_to"]) | JSON,
        "value": JSON,
        "group_type_index": JSON,
        "negation": JSON,
    },
)
GROUP = st.fixed_dictionaries(
    {},
    optional={
        "properties": st.lists(LEAF, max_size=2) | JSON,
        "rollout_percentage": st.integers(-5, 105) | JSON,
        "variant": JSON,
        "aggregation_group_type_index": st.integers(0, 4) | JSON,
    },
)
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "groups": st.lists(GROUP, max_size=2) | JSON,
        "super_groups": st.lists(GROUP, max_size=1) | JSON,
        "multivariate": st.fixed_dictionaries({"variants": st.lists(JSON, max_size=2) | JSON}) | JSON,
        "payloads": JSON,
        "holdout": JSON,
        "early_exit": JSON,
        "aggregation_group_type_index": JSON,
        "anything": JSON,
    },
)
BODY = st.fixed_dictionaries(
    {"key": st.just("fuzz") | st.text(max_size=5) | JSON, "filters": FILTERS | JSON},
    optional=dict.fromkeys(("name", "active", "archived", "tags", "evaluation_contexts", "version"), JSON),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=120, deadline=None)
@given(BODY, FILTERS)
def test_any_body_is_taken_or_refused(server, body, changes):
    created = server.client.post(
        URL, content=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    assert created.status_code in (201, 400), created.text
    if created.status_code == 400:
        assert set(created.json()) == {"type", "code", "detail", "attr"}
        return
    flag = created.json()
    content = json.dumps({"filters": changes}).encode()
    patched = server.client.patch(
        f"{URL}{flag['id']}", content=content, headers={"Content-Type": "application/json"}
    )
    assert patched.status_code in (200, 400), patched.text
    # Whatever was kept can be evaluated and listed.
    assert server.flags()["flags"].keys() <= {flag["key"]}
    assert server.client.get(f"/flags/definitions?token={server.token}").status_code == 200
    assert server.client.get(URL).status_code == 200
    assert server.patch(flag["id"], deleted=True).status_code in (200, 400)
