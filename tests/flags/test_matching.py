"""How one flag gets its value (spec: sdk-wire 2.4, 3.3 to 3.12)."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product

import pytest

from hoglab.flags.matching.outcome import GROUPS_SKIPPED
from hoglab.flags.matching.snapshot import FlagSelection
from hoglab.flags.matching.subject import INITIAL_SOURCES, StoredPerson
from hoglab.storage.database import to_micros

HALVES = {
    "variants": [{"key": "control", "rollout_percentage": 50}, {"key": "test", "rollout_percentage": 50}]
}
PRO = {"key": "plan", "type": "person", "value": ["pro"], "operator": "exact"}
BIG = {"key": "size", "type": "group", "group_type_index": 0, "value": "10", "operator": "gt"}


def person(**properties) -> StoredPerson:
    return StoredPerson(11, properties, to_micros(datetime(2025, 5, 5, tzinfo=UTC)))


def reason(outcome) -> tuple:
    return outcome.value, outcome.reason.code, outcome.condition_index


# --- conditions ---------------------------------------------------------------------------------


def test_first_matching_condition_decides(world):
    world.flag(
        "checkout-experiment",
        {
            "groups": [
                {"properties": [PRO], "rollout_percentage": 100},
                {"properties": [], "rollout_percentage": 100, "variant": "test"},
            ],
            "multivariate": HALVES,
        },
    )
    # The second condition has an override, but order counts (user-1 hashes into control).
    assert reason(world.all("user-1", person_properties={"plan": "pro"})["checkout-experiment"]) == (
        "control",
        "condition_match",
        0,
    )
    assert reason(world.all("user-1")["checkout-experiment"]) == ("test", "condition_match", 1)


def test_override_with_an_unknown_variant_is_ignored(world):
    world.flag("checkout-experiment", {"groups": [{"variant": "gone"}], "multivariate": HALVES})
    assert world.value("checkout-experiment", "user-1") == "control"


def test_all_filters_of_a_condition_must_match(world):
    world.flag(
        "f",
        {"groups": [{"properties": [PRO, {"key": "age", "type": "person", "value": 18, "operator": "gte"}]}]},
    )
    assert world.value("f", person_properties={"plan": "pro", "age": 18}) is True
    assert world.value("f", person_properties={"plan": "pro", "age": 17}) is False
    assert world.value("f", person_properties={"age": 18}) is False


def test_weights_below_a_hundred_leave_some_without_a_variant(world):
    world.flag(
        "checkout-experiment",
        {
            "groups": [{}],
            "multivariate": {"variants": [{"key": "only", "rollout_percentage": 40}]},
            "payloads": {"only": '"a"', "true": '"b"'},
        },
    )
    inside, outside = world.all("user-1"), world.all("user-3")
    assert (inside["checkout-experiment"].value, inside["checkout-experiment"].payload) == ("only", '"a"')
    assert (outside["checkout-experiment"].value, outside["checkout-experiment"].payload) == (True, '"b"')


def test_payload_only_when_enabled(world):
    world.flag("off", {"groups": [{"rollout_percentage": 0}], "payloads": {"true": "1"}})
    world.flag("on", {"groups": [{}], "payloads": {"true": "1"}})
    outcomes = world.all()
    assert (outcomes["off"].payload, outcomes["on"].payload) == (None, "1")


def test_encrypted_payloads_are_redacted(world):
    world.flag("f", {"groups": [{}], "payloads": {"true": '"secret"'}}, has_encrypted_payloads=True)
    assert world.all()["f"].payload == '"********* (encrypted)"'


def test_empty_identifier_is_inside_every_rollout(world):
    world.flag("f", {"groups": [{"rollout_percentage": 0}], "multivariate": HALVES})
    assert world.value("f", "") == "control"
    assert world.value("f", "user-1") is False


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([], ("no_group_type", None)),
        ([{"rollout_percentage": 0}], ("out_of_rollout_bound", 0)),
        ([{"properties": [PRO]}], ("no_condition_match", 0)),
        ([{"properties": [PRO]}, {"properties": [PRO]}], ("no_condition_match", 1)),
        ([{"rollout_percentage": 0}, {"properties": [PRO]}], ("out_of_rollout_bound", 0)),
        (
            [{"properties": [PRO]}, {"rollout_percentage": 0}, {"rollout_percentage": 0}],
            ("out_of_rollout_bound", 2),
        ),
        ([{"aggregation_group_type_index": 0}], ("no_group_type", 0)),
        ([{"properties": [PRO]}, {"aggregation_group_type_index": 0}], ("no_condition_match", 0)),
        ([{"aggregation_group_type_index": 9}], ("no_group_type", 0)),
    ],
)
def test_reason_of_a_miss(world, groups, expected):
    world.flag("f", {"groups": groups})
    outcome = world.all()["f"]
    assert outcome.value is False
    assert (outcome.reason.code, outcome.condition_index) == expected


def test_descriptions(world):
    world.flag("match", {"groups": [{"properties": [PRO]}, {}]})
    world.flag("skipped", {"groups": [{"properties": [PRO]}, {"aggregation_group_type_index": 0}]})
    world.flag("missed", {"groups": [{"rollout_percentage": 0}]})
    outcomes = world.all()
    assert outcomes["match"].description == "Matched condition set 2"
    assert outcomes["skipped"].description == GROUPS_SKIPPED
    assert outcomes["missed"].description == "Out of rollout bound"


def test_early_exit_stops_at_the_first_missed_rollout(world):
    groups = [{"properties": [PRO], "rollout_percentage": 0}, {"rollout_percentage": 100}]
    world.flag("eager", {"groups": groups, "early_exit": True})
    world.flag("patient", {"groups": groups})
    outcomes = world.all(person_properties={"plan": "pro"})
    assert reason(outcomes["eager"]) == (False, "out_of_rollout_bound", 0)
    assert reason(outcomes["patient"]) == (True, "condition_match", 1)
    # A condition whose filters do not match is passed over in both.
    assert reason(world.all()["eager"]) == (True, "condition_match", 1)


# --- enrollment, holdouts -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({"$feature_enrollment/beta": True}, (True, "super_condition_value", 0)),
        ({"$feature_enrollment/beta": "true"}, (True, "super_condition_value", 0)),
        ({"$feature_enrollment/beta": False}, (False, "super_condition_value", 0)),
        ({"$feature_enrollment/beta": "yes"}, (False, "super_condition_value", 0)),
        ({"$feature_enrollment/beta": None}, (False, "super_condition_value", 0)),
        ({}, ("control", "condition_match", 0)),
    ],
)
def test_enrollment(world, stored, expected):
    filters = {"groups": [{"variant": "control"}], "multivariate": HALVES, "feature_enrollment": True}
    world.flag("beta", {**filters, "holdout": {"id": 1, "exclusion_percentage": 0}})
    world.memory.persons["user-1"] = person(**stored)
    assert reason(world.all()["beta"]) == expected


def test_super_groups(world):
    enrolled = {"key": "$feature_enrollment/f", "type": "person", "value": ["true"], "operator": "exact"}
    world.flag("f", {"groups": [{}], "super_groups": [{"properties": [enrolled], "rollout_percentage": 100}]})
    key = "$feature_enrollment/f"
    assert reason(world.all(person_properties={key: "true"})["f"]) == (True, "super_condition_value", 0)
    assert reason(world.all(person_properties={key: "no"})["f"]) == (False, "super_condition_value", 0)
    assert reason(world.all()["f"]) == (True, "condition_match", 0)


def test_holdout_wins_over_conditions(world):
    world.flag(
        "f",
        {
            "groups": [],
            "holdout": {"id": 42, "exclusion_percentage": 50},
            "payloads": {"holdout-42": "7"},
        },
    )
    outcome = world.all("user-1")["f"]
    assert reason(outcome) == ("holdout-42", "holdout_condition_value", None)
    assert (outcome.enabled, outcome.payload) == (True, "7")
    assert world.value("f", "user-2") is False


@pytest.mark.parametrize(
    ("share", "held"), [(-5, False), (0, False), (100, True), (400, True), ("100", True)]
)
def test_holdout_share_is_clamped(world, share, held):
    world.flag("f", {"groups": [{}], "holdout": {"id": 1, "exclusion_percentage": share}})
    assert world.value("f", "user-2") == ("holdout-1" if held else True)


@pytest.mark.parametrize(
    "holdout", [None, {}, {"id": 3}, {"exclusion_percentage": 100}, {"id": 3, "exclusion_percentage": "x"}]
)
def test_incomplete_holdouts_hold_nobody_out(world, holdout):
    world.flag("f", {"groups": [{}], "holdout": holdout})
    assert world.value("f") is True


def test_legacy_holdout_groups_count_by_the_first(world):
    world.flag(
        "f",
        {
            "groups": [{}],
            "holdout_groups": [
                {"properties": [], "rollout_percentage": 50, "variant": "holdout-9"},
                {"properties": [], "rollout_percentage": 100, "variant": "holdout-8"},
            ],
        },
    )
    assert (world.value("f", "user-1"), world.value("f", "user-2")) == ("holdout-9", True)


def test_holdout_of_a_group_flag_goes_by_the_group(world):
    world.flag(
        "f",
        {"groups": [{}], "aggregation_group_type_index": 0, "holdout": {"id": 1, "exclusion_percentage": 50}},
    )
    assert world.value("f", "user-2", groups={"company": "user-1"}) == "holdout-1"
    assert world.value("f", "user-1", groups={"company": "user-2"}) is True
    assert world.value("f", "user-1") is False


# --- groups -------------------------------------------------------------------------------------


def test_group_conditions_hash_the_group_key(world):
    world.flag("group-flag", {"groups": [{"rollout_percentage": 10}], "aggregation_group_type_index": 0})
    assert world.value("group-flag", "anybody", groups={"company": "acme"}) is True
    assert world.value("group-flag", "anybody", groups={"company": "1234"}) is False
    assert reason(world.all(groups={"team": "acme"})["group-flag"]) == (False, "no_group_type", 0)


def test_conditions_choose_their_own_aggregation(world):
    world.flag(
        "f",
        {
            "aggregation_group_type_index": 0,
            "groups": [
                {"rollout_percentage": 0},
                {"aggregation_group_type_index": None, "properties": [PRO]},
                {"aggregation_group_type_index": 1},
            ],
        },
    )
    assert reason(world.all(person_properties={"plan": "pro"})["f"]) == (True, "condition_match", 1)
    assert reason(world.all(groups={"team": "red"})["f"]) == (True, "condition_match", 2)


def test_group_properties(world):
    world.flag("f", {"groups": [{"properties": [BIG]}], "aggregation_group_type_index": 0})
    world.memory.groups[0, "acme"] = {"size": 20}
    assert world.value("f", groups={"company": "acme"}) is True
    assert world.value("f", groups={"company": "other"}) is False
    assert world.value("f", groups={"company": "acme"}, group_properties={"company": {"size": 3}}) is False
    assert world.value("f", groups={"company": "new"}, group_properties={"company": {"size": 30}}) is True
    assert world.value("f", groups={"company": "acme"}, only_use_overrides=True) is False


def test_group_key_is_a_property(world):
    by_key = {"key": "$group_key", "type": "group", "value": ["acme"], "operator": "exact"}
    world.flag("f", {"groups": [{"properties": [by_key]}], "aggregation_group_type_index": 0})
    assert world.value("f", groups={"company": "acme"}) is True
    assert world.memory.reads == []


# --- where properties come from -----------------------------------------------------------------


def test_stored_properties_fill_in_what_the_request_leaves_out(world):
    world.flag("f", {"groups": [{"properties": [PRO]}]})
    world.memory.persons["user-1"] = person(plan="pro")
    assert world.value("f") is True
    assert world.value("f", person_properties={"plan": "free"}) is False
    assert world.value("f", "stranger") is False
    assert world.value("f", only_use_overrides=True) is False


def test_storage_is_read_once_and_only_when_needed(world):
    other = {"key": "country", "type": "person", "value": "de", "operator": "exact"}
    for key in "abc":
        world.flag(key, {"groups": [{"properties": [PRO, other]}]})
    world.all(person_properties={"plan": "free"})
    assert world.memory.reads == []
    world.all(person_properties={"plan": "pro"})
    assert world.memory.reads == ["person"]


def test_distinct_id_is_a_property(world):
    world.flag(
        "f", {"groups": [{"properties": [{"key": "distinct_id", "type": "person", "value": ["user-1"]}]}]}
    )
    assert (world.value("f", "user-1"), world.value("f", "user-2")) == (True, False)
    assert world.memory.reads == []


def test_initial_properties_fall_back_to_current_ones(world):
    first = {"key": "$initial_utm_source", "type": "person", "value": "ad", "operator": "exact"}
    world.flag("f", {"groups": [{"properties": [first]}]})
    assert world.value("f", person_properties={"utm_source": "ad"}) is True
    world.memory.persons["user-1"] = person(**{"$initial_utm_source": "mail", "utm_source": "ad"})
    assert world.value("f", person_properties={"utm_source": "ad"}) is False
    assert world.value("f", person_properties={"$initial_utm_source": "ad"}) is True


def test_initial_sources():
    assert INITIAL_SOURCES["$initial_os"] == "$os"
    assert "$initial_os_name" not in INITIAL_SOURCES
    assert "$initial_utm_name" not in INITIAL_SOURCES
    assert len(INITIAL_SOURCES) == 42


def test_person_metadata(world):
    before = {
        "key": "created_at",
        "type": "person_metadata",
        "value": "2025-06-01",
        "operator": "is_date_before",
    }
    world.flag("f", {"groups": [{"properties": [before]}]})
    world.memory.persons["user-1"] = person()
    assert (world.value("f", "user-1"), world.value("f", "stranger")) == (True, False)


def test_filters_that_cannot_be_answered_fail_the_flag_negated_or_not(world):
    kinds = ("event", "behavioral", "hogql", "session")
    for kind, negation in product(kinds, (False, True)):
        leaf = {"key": "a", "type": kind, "value": "b", "negation": negation}
        world.flag(f"{kind}-{negation}", {"groups": [{"properties": [leaf]}]})
    outcomes = world.all(person_properties={"a": "b"}).values()
    assert {(outcome.value, outcome.failed) for outcome in outcomes} == {(False, True)}


# --- device bucketing, continuity ---------------------------------------------------------------


def test_device_bucketing(world):
    filters = {"groups": [{"rollout_percentage": 50}], "multivariate": HALVES}
    world.flag("checkout-experiment", filters, bucketing_identifier="device_id")
    assert world.value("checkout-experiment", "x", device_id="user-2") == world.value(
        "checkout-experiment", "y", device_id="user-2"
    )
    missing = world.all("user-2")["checkout-experiment"]
    assert reason(missing) == (False, "out_of_rollout_bound", 0)


def test_missing_device_id_is_not_an_early_exit(world):
    world.flag(
        "f",
        {"groups": [{}, {"aggregation_group_type_index": 0}], "early_exit": True},
        bucketing_identifier="device_id",
    )
    assert reason(world.all(groups={"company": "acme"})["f"]) == (True, "condition_match", 1)


def test_continuity_prefers_stored_then_anonymous_then_distinct_id(world):
    world.flag(
        "checkout-experiment", {"groups": [{}], "multivariate": HALVES}, ensure_experience_continuity=True
    )
    key = "checkout-experiment"
    assert world.value(key, "user-3") == "test"
    assert world.value(key, "user-3", anon_distinct_id="user-1") == "control"
    world.memory.overrides["user-3"] = {key: "bob@example.com"}
    assert world.value(key, "user-3", anon_distinct_id="user-1") == "test"
    assert world.value(key, "user-3") == "test"
    world.memory.overrides["user-3"] = {key: "user-1"}
    assert world.value(key, "user-3") == "control"


def test_continuity_is_not_asked_for_when_nothing_hangs_on_the_hash(world):
    world.flag("f", {"groups": [{"rollout_percentage": 100}]}, ensure_experience_continuity=True)
    assert world.value("f") is True
    assert world.memory.reads == []


def test_holdouts_of_flags_that_persist_go_by_the_bucketing_id(world):
    world.flag(
        "f",
        {"groups": [{}], "holdout": {"id": 1, "exclusion_percentage": 50}},
        ensure_experience_continuity=True,
    )
    assert world.value("f", "user-2") is True
    assert world.value("f", "user-2", anon_distinct_id="user-1") == "holdout-1"
    world.memory.overrides["user-2"] = {"f": "user-1"}
    assert world.value("f", "user-2") == "holdout-1"
    assert world.value("f", "user-2", anon_distinct_id="user-3") == "holdout-1"


# --- failures -----------------------------------------------------------------------------------


def test_storage_failure_fails_only_flags_that_need_it(world):
    world.flag("stored", {"groups": [{"properties": [PRO]}]})
    world.flag("stored-too", {"groups": [{"properties": [PRO]}]})
    world.flag("sent")
    world.memory.broken = True
    outcomes = world.all()
    assert outcomes["stored"].failed
    assert outcomes["stored"].reason.code == "database_error"
    assert outcomes["sent"].value is True
    assert world.memory.reads == ["person"]  # not asked again
    assert world.all(person_properties={"plan": "pro"})["stored"].value is True


@pytest.mark.parametrize(
    "filters",
    [
        {"groups": "all"},
        {"groups": [3]},
        {"groups": [{"properties": [3]}]},
        {"groups": [{"properties": {"a": 1}}]},
        {"groups": [{"rollout_percentage": "half"}]},
        {"groups": [{}], "multivariate": {"variants": [{"key": 1}]}},
        {"groups": [{}], "aggregation_group_type_index": "0"},
    ],
)
def test_broken_definitions_fail_their_flag_alone(world, filters):
    world.flag("broken", filters)
    world.flag("fine")
    outcomes = world.all()
    assert (outcomes["broken"].failed, outcomes["broken"].value) == (True, False)
    assert outcomes["fine"].value is True


# --- choice -------------------------------------------------------------------------------------


def test_inactive_flags_are_absent(world):
    world.flag("off", active=False)
    world.flag("on")
    assert set(world.all()) == {"on"}


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [("client", {"any", "client"}), ("server", {"any", "server"}), ("unknown", {"any"})],
)
def test_runtime(world, runtime, expected):
    world.flag("any", evaluation_runtime="all")
    world.flag("client", evaluation_runtime="client")
    world.flag("server", evaluation_runtime="server")
    assert set(world.all(choice=FlagSelection(runtime=runtime))) == expected


def test_contexts(world):
    world.flag("everywhere")
    world.flag("docs", evaluation_contexts=("docs", "blog"))
    world.flag("app", evaluation_contexts=("app",))
    assert set(world.all()) == {"everywhere", "docs", "app"}
    assert set(world.all(choice=FlagSelection(contexts=frozenset({"blog", "x"})))) == {"everywhere", "docs"}


def test_survey_flags(world):
    world.flag("survey-targeting-1")
    world.flag("other")
    assert set(world.all(choice=FlagSelection(surveys_only=True))) == {"survey-targeting-1"}


@pytest.mark.parametrize(
    ("request_", "asked"),
    [
        ({}, ["person"]),
        ({"person_properties": {"plan": "x"}}, []),
        ({"person_properties": {"plan": "x"}, "groups": {"company": "acme"}}, ["group"]),
        (
            {
                "person_properties": {"plan": "x"},
                "groups": {"company": "acme"},
                "group_properties": {"company": {"size": 1}},
            },
            [],
        ),
        ({"only_use_overrides": True, "groups": {"company": "acme"}}, []),
    ],
)
def test_storage_is_asked_only_for_what_the_request_left_open(world, request_, asked):
    world.flag("f", {"groups": [{"properties": [PRO]}]})
    world.flag("g", {"groups": [{"properties": [BIG]}], "aggregation_group_type_index": 0})
    world.all("u", **request_)
    assert world.memory.reads == asked
