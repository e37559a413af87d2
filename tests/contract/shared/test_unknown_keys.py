"""Misspelt keys: wherever a key decides something, a slip in it is refused, or told and without effect."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa
from tests.contract.conftest import Api

from hoglab.storage.database.tables import experiment, feature_flag

UUID = "6f1f3a52-1d0e-4c58-9a59-0f6f4e6b7a10"

Place = tuple[str | int, ...]

PERSON = {"key": "plan", "value": ["pro"], "type": "person", "operator": "exact"}
EVENT = {"key": "size", "value": ["big"], "type": "event", "operator": "exact"}
GROUPED = {"key": "size", "value": ["3"], "type": "group", "operator": "exact", "group_type_index": 0}
PURCHASE = {
    "kind": "EventsNode", "event": "purchase", "name": "Purchase", "custom_name": "Bought", "properties": [EVENT],
    "fixedProperties": [EVENT], "math": "sum", "math_property": "amount", "math_property_type": "event_properties",
}  # fmt: skip
COMMON = {
    "kind": "ExperimentMetric", "name": "Money", "goal": "increase", "conversion_window": 3,
    "conversion_window_unit": "day", "breakdownFilter": {"breakdowns": [{"property": "$browser", "type": "event"}]},
}  # fmt: skip
MEAN = {
    **COMMON, "metric_type": "mean", "source": PURCHASE, "lower_bound_percentile": 0.1,
    "upper_bound_percentile": 0.9, "ignore_zeros": True,
}  # fmt: skip
OUTLIERS = {"lower_bound_percentile": 0.1, "upper_bound_percentile": 0.9, "ignore_zeros": False}
METRICS = {
    "mean": MEAN,
    "funnel": {**COMMON, "metric_type": "funnel", "series": [{"kind": "EventsNode", "event": "purchase"}],
               "funnel_order_type": "unordered"},
    "ratio": {**COMMON, "metric_type": "ratio", "numerator": PURCHASE, "denominator": PURCHASE,
              "numerator_outlier_handling": OUTLIERS, "denominator_outlier_handling": OUTLIERS},
    "retention": {**COMMON, "metric_type": "retention", "start_event": {"kind": "EventsNode", "event": "a"},
                  "completion_event": {"kind": "EventsNode", "event": "b"}, "retention_window_start": 1,
                  "retention_window_end": 7, "retention_window_unit": "day", "start_handling": "first_seen"},
    "quantile": {**COMMON, "metric_type": "quantile", "source": PURCHASE, "quantile_level": 0.9,
                 "quantile_unit": "event", "ignore_zeros": True},
}  # fmt: skip
FLAG = {
    "groups": [{"properties": [PERSON | {"negation": False}], "rollout_percentage": 10, "variant": "a",
                "aggregation_group_type_index": None, "description": "Some"},
               {"properties": [GROUPED], "rollout_percentage": 10, "aggregation_group_type_index": 0}],
    "multivariate": {"variants": [{"key": "a", "name": "A", "rollout_percentage": 50},
                                  {"key": "b", "name": "B", "rollout_percentage": 50}]},
    "payloads": {"a": "1"}, "aggregation_group_type_index": None, "early_exit": True,
    "holdout": {"id": 1, "exclusion_percentage": 10}, "feature_enrollment": False,
    "super_groups": [{"properties": [PERSON], "rollout_percentage": 100}],
}  # fmt: skip
STATS = {
    "method": "frequentist", "baseline_variant_key": "control", "multiple_testing_correction": "holm",
    "bayesian": {"ci_level": 0.9, "difference_type": "ABSOLUTE",
                 "prior": {"proper": True, "mean": 0, "variance": 1}},
    "frequentist": {"alpha": 0.1, "difference_type": "ABSOLUTE", "sequential_testing_enabled": True,
                    "sequential_tuning_parameter": 100},
    "cuped": {"enabled": True, "lookback_days": 7, "relative_variance": "posthog"},
}  # fmt: skip
VIEWED = {"kind": "ExperimentEventExposureConfig", "event": "viewed", "properties": [EVENT]}
CRITERIA = {
    "filterTestAccounts": False, "exposure_config": VIEWED, "activation_config": VIEWED,
    "multiple_variant_handling": "first_seen",
}  # fmt: skip
PARAMETERS = {
    "feature_flag_variants": [{"key": "control", "name": "Old", "split_percent": 40},
                              {"key": "test", "name": "New", "split_percent": 60}],
    "rollout_percentage": 50, "aggregation_group_type_index": None, "feature_flag_payloads": {"test": "1"},
    "ensure_experience_continuity": True, "minimum_detectable_effect": 5, "recommended_running_time": 3,
    "recommended_sample_size": 10, "exposure_estimate_config": {}, "excluded_variants": [],
    "custom_exposure_filter": {}, "variant_notes": {"test": "New"},
}  # fmt: skip
BEHAVIOUR = {
    "type": "behavioral", "value": "performed_event", "key": "purchase", "negation": False, "event_type": "events",
    "event_filters": [EVENT], "time_value": 7, "time_interval": "day",
}  # fmt: skip
SINCE = {name: value for name, value in BEHAVIOUR.items() if not name.startswith("time_")}
COHORT = {
    "properties": {"type": "OR", "values": [
        {"type": "AND", "values": [PERSON, BEHAVIOUR]}, SINCE | {"explicit_datetime": "2026-01-01T00:00:00Z"}]}
}  # fmt: skip
STEPS = [
    {"event": "$autocapture", "properties": [EVENT], "url": "/pay", "url_matching": "contains", "selector": ".buy",
     "tag_name": "a", "text": "Buy", "text_matching": "exact", "href": "/buy", "href_matching": "exact"},
]  # fmt: skip
FILTERS = {
    "source": "events",
    "events": [{"id": "purchase", "name": "p", "type": "events", "order": 0, "properties": [EVENT]}],
    "properties": [EVENT], "filter_test_accounts": True,
}  # fmt: skip
SCHEMA = [
    {"type": "string", "key": "url", "label": "URL", "required": False, "default": "x", "secret": False,
     "hidden": False, "description": "Where", "templating": True, "choices": [], "searchable": False},
]  # fmt: skip
INPUTS = {"url": {"value": "https://example.com", "templating": "hog"}}
FUNCTION = {
    "hog": "return 1", "inputs_schema": SCHEMA, "inputs": INPUTS, "filters": FILTERS,
    "masking": {"ttl": 60, "threshold": 3, "hash": "{event.uuid}"},
    "mappings": [{"name": "m", "disabled": False, "inputs_schema": SCHEMA, "inputs": INPUTS, "filters": FILTERS}],
    "x_delivery": {"retry": {"attempts": 3, "base_ms": 100, "max_ms": 1000, "max_age_s": 100},
                   "rate_limit": {"per_s": 5}, "batch": {"max_events": 10, "max_wait_ms": 100}},
}  # fmt: skip
TESTED = {
    "hog": "return 1",
    "x_tests": [{"name": "t", "globals": {"event": {"event": "a"}}, "responses": [],
                 "expect": {"status": "success", "result": None, "requests": [], "logs": []}}],
}  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A resource, the field of it that is looked at, a value in which every key stands, and what else is needed."""

    path: str
    field: str
    value: Any
    beside: dict[str, Any]
    free: tuple[Place, ...] = ()
    """Objects whose keys are names that people choose."""

    def body(self, number: int, value: Any) -> dict[str, Any]:
        named = {name: f"{text}-{number}" for name, text in self.beside.items() if isinstance(text, str)}
        return {**self.beside, **named, self.field: value}


EXPERIMENT = {"name": "e", "feature_flag_key": "e"}
KINDS = {
    "flag": Kind("/feature_flags/", "filters", FLAG, {"key": "f"}, free=(("payloads",),)),
    "stats_config": Kind("/experiments/", "stats_config", STATS, EXPERIMENT),
    "exposure_criteria": Kind("/experiments/", "exposure_criteria", CRITERIA, EXPERIMENT),
    "parameters": Kind(
        "/experiments/", "parameters", PARAMETERS, EXPERIMENT,
        free=(("feature_flag_payloads",), ("variant_notes",)),
    ),
    **{name: Kind("/experiments/", "metrics", [each], EXPERIMENT) for name, each in METRICS.items()},
    "secondary": Kind("/experiments/", "metrics_secondary", [MEAN], EXPERIMENT),
    "saved": Kind("/experiment_saved_metrics/", "query", MEAN, {"name": "s"}),
    "holdout": Kind(
        "/experiment_holdouts/", "filters", [{"properties": [], "rollout_percentage": 10}], {"name": "h"}
    ),
    "cohort": Kind("/cohorts/", "filters", COHORT, {"name": "c"}),
    "action": Kind("/actions/", "steps", STEPS, {"name": "a"}),
    **{
        f"function {name}": Kind(
            "/hog_functions/", name, FUNCTION[name],
            {"name": "f", **{each: value for each, value in FUNCTION.items() if each not in (name, "x_delivery")}},
            free=(("inputs",),) if name == "mappings" else ((),) if name == "inputs" else (),
        )
        for name in ("inputs_schema", "inputs", "filters", "masking", "mappings", "x_delivery")
    },
    "function x_tests": Kind(
        "/hog_functions/", "x_tests", TESTED["x_tests"], {"name": "f", "hog": "return 1"},
        free=(("globals",), ("globals", "event")),
    ),
}  # fmt: skip


def places(value: Any, free: tuple[Place, ...], path: Place = ()) -> Iterator[Place]:
    """Where keys stand that are not chosen by people."""
    if isinstance(value, dict):
        for key, each in value.items():
            if tuple(part for part in path if isinstance(part, str)) not in free:
                yield (*path, key)
            yield from places(each, free, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from places(each, free, (*path, index))


def slips(key: str) -> Iterator[str]:
    """Ways to misspell a key by one letter."""
    middle = len(key) // 2
    yield key[:middle] + key[middle + 1 :]
    yield key[:middle] + key[middle - 1 : middle] + key[middle:]
    yield f"{key}s"


def with_slip(value: Any, place: Place, slip: str) -> Any:
    """The value with the key at a place renamed."""
    changed = copy.deepcopy(value)
    around = changed
    for part in place[:-1]:
        around = around[part]
    around[slip] = around.pop(place[-1])
    return changed


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_slip_is_refused_or_told(api: Api, kind: Kind) -> None:
    made = api.ok("POST", kind.path, kind.body(0, kind.value), status=201)
    assert "warnings" not in made, made["warnings"]
    number, unnoticed = 0, []
    for place in places(kind.value, kind.free):
        for slip in slips(str(place[-1])):
            number += 1
            answer = api.call("POST", kind.path, kind.body(number, with_slip(kind.value, place, slip)))
            attr = "__".join(map(str, (kind.field, *place[:-1], slip)))
            found = answer.json()
            told = [each["attr"] for each in found.get("warnings", ())]
            # What misses the key that was meant may be refused for that.
            if answer.status_code != 400 and attr not in told:
                unnoticed.append(attr)
    assert unnoticed == []
    assert number > 2


CLOSED = [
    ("flag", ("groups", 1, "rollout_percentage"), "roll_out", "rollout_percentage"),
    ("flag", ("groups", 1, "rollout_percentage"), "percentage", "rollout_percentage"),
    ("flag", ("groups", 0, "properties"), "propertes", "properties"),
    ("flag", ("groups", 0, "properties", 0, "operator"), "op", "operator"),
    ("flag", ("early_exit",), "earlyExit", "early_exit"),
    ("stats_config", ("frequentist", "sequential_testing_enabled"), "sequential_testing", None),
    ("stats_config", ("frequentist", "alpha"), "alpa", "alpha"),
    ("stats_config", ("cuped",), "cupped", "cuped"),
    ("exposure_criteria", ("filterTestAccounts",), "filter_test_accounts", "filterTestAccounts"),
    ("exposure_criteria", ("multiple_variant_handling",), "multiple_variants_handling", "multiple_variant_handling"),
    ("parameters", ("rollout_percentage",), "rolloutPercentage", "rollout_percentage"),
    ("mean", (0, "source", "properties", 0, "value"), "values", "value"),
    ("saved", ("source", "properties", 0, "operator"), "oprator", "operator"),
    ("holdout", (0, "properties"), "filters", None),
    ("cohort", ("properties", "values", 0, "values", 1, "time_value"), "time_vale", "time_value"),
    ("action", (0, "url_matching"), "urlMatching", "url_matching"),
    ("function filters", ("events", 0, "id"), "event", "id"),
    ("function filters", ("properties",), "propertys", "properties"),
    ("function masking", ("threshold",), "treshold", "threshold"),
    ("function x_delivery", ("retry", "attempts"), "atempts", "attempts"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "place", "slip", "meant"), CLOSED)
def test_the_refusal_says_where_and_what_is_meant(
    api: Api, name: str, place: Place, slip: str, meant: str | None
) -> None:
    kind = KINDS[name]
    error = api.refused("POST", kind.path, kind.body(0, with_slip(kind.value, place, slip)))
    assert (error["code"], error["attr"]) == (
        "unknown_field", "__".join(map(str, (kind.field, *place[:-1], slip)))
    )  # fmt: skip
    assert "is not a known key" in error["detail"]
    if meant is not None:
        assert error["detail"].endswith(f"did you mean {meant}?")
    assert api.ok("GET", kind.path)["count"] == 0


def test_a_flag_is_not_released_further_than_it_says(api: Api) -> None:
    for group in ({"roll_out": 10}, {"rollout_percentage": 5, "propertes": [PERSON]}, {"xyz": 1}):
        error = api.refused("POST", "/feature_flags/", {"key": "f", "filters": {"groups": [group]}})
        assert error["code"] == "unknown_field"
    made = api.ok(
        "POST",
        "/feature_flags/",
        {"key": "f", "filters": {"groups": [{"rollout_percentage": 0}]}},
        status=201,
    )
    error = api.refused("PATCH", f"/feature_flags/{made['id']}/", {"filters": {"groups": [{"roll_out": 10}]}})
    assert error["attr"] == "filters__groups__0__roll_out"
    assert api.variant("f", "somebody") is False


def test_what_was_stored_before_is_told_and_may_be_sent_back(api: Api) -> None:
    """Keys that were let in once do not lock an object; further ones are refused."""
    made = api.experiment(metrics=[METRICS["funnel"]])
    path, flag = f"/experiments/{made['id']}/", made["feature_flag"]
    with api.database() as database, database.write() as tx:
        filters = flag["filters"] | {"groups": [{"properties": [], "roll_out": 10}]}
        tx.execute(sa.update(feature_flag).where(feature_flag.c.id == flag["id"]).values(filters=filters))
        old = {"method": "frequentist", "frequentest": {"alpha": 0.2}}
        counted = MEAN | {"uuid": UUID, "source": {"kind": "EventsNode", "event": "a", "math": "sum"}}
        tx.execute(
            sa.update(experiment)
            .where(experiment.c.id == made["id"])
            .values(stats_config=old, metrics=[counted])
        )
        tx.changed("flags", api.project_id)
        tx.changed("experiments", api.project_id)
    told = {
        "stats_config__frequentest": "unknown_field",
        "feature_flag__filters__groups__0__roll_out": "unknown_field",
        "metrics__0__source__math_property": "missing_property",
    }
    shown = api.ok("GET", path)
    assert {each["attr"]: each["code"] for each in shown["warnings"]} == told
    found = api.ok("GET", f"{path}health/")["findings"]
    assert {each["details"].get("attr"): each["code"] for each in found if "attr" in each["details"]} == told
    assert all(each["message"].endswith((".", "?")) for each in found)
    listed = api.ok("GET", "/experiments/")["results"][0]
    assert listed["warnings"] == shown["warnings"]
    for body in (shown, {"name": "Other"}, {"stats_config": old}):
        assert api.ok("PATCH", path, body)["warnings"] == shown["warnings"]
    worse = {**old, "method": "bayesian", "cupped": {}}
    assert api.refused("PATCH", path, {"stats_config": worse})["attr"] == "stats_config__cupped"
    flag_path = f"/feature_flags/{flag['id']}/"
    flag = api.ok("GET", flag_path)
    assert [each["attr"] for each in flag["warnings"]] == ["filters__groups__0__roll_out"]
    assert api.ok("PATCH", flag_path, flag)["warnings"] == flag["warnings"]
    groups = [*flag["filters"]["groups"], {"roll_out": 20}]
    assert api.refused("PATCH", flag_path, {"filters": {"groups": groups}})["code"] == "unknown_field"
    mended = {"filters": {"groups": [{"rollout_percentage": 10}]}}
    assert "warnings" not in api.ok("PATCH", flag_path, mended)


def test_keys_beside_the_fields_are_told(api: Api) -> None:
    made = api.ok(
        "POST", "/feature_flags/", {"key": "f", "filters": {"groups": [{}]}, "actve": False}, status=201
    )
    assert [(each["code"], each["attr"]) for each in made["warnings"]] == [("unknown_field", "actve")]
    assert made["warnings"][0]["detail"].endswith("has no effect; did you mean active?")
    assert made["active"] is True
    assert "warnings" not in api.ok("GET", f"/feature_flags/{made['id']}/")


@pytest.mark.parametrize("math", ["sum", "avg", "min", "max"])
def test_maths_without_its_property_is_refused_when_it_is_saved(api: Api, math: str) -> None:
    node = {"kind": "EventsNode", "event": "purchase", "math": math}
    wrong = [
        {"kind": "ExperimentMetric", "metric_type": "mean", "source": node},
        {**METRICS["ratio"], "denominator": node},
        {**METRICS["quantile"], "source": node | {"math_property": ""}},
    ]
    made = api.experiment()
    for metric, place in zip(wrong, ("source", "denominator", "source"), strict=True):
        said = f"{place}.math_property: {math} needs the property to compute with"
        for field in ("metrics", "metrics_secondary"):
            body = {"name": "n", "feature_flag_key": "other", field: [metric]}
            error = api.refused("POST", "/experiments/", body)
            assert (error["attr"], said in error["detail"]) == (field, True)
            assert api.refused("PATCH", f"/experiments/{made['id']}/", {field: [metric]})["attr"] == field
    error = api.refused("POST", "/experiment_saved_metrics/", {"name": "s", "query": wrong[0]})
    assert error["attr"] == "query"
    funnel = {"kind": "ExperimentMetric", "metric_type": "funnel", "series": [node]}  # which counts people
    assert api.experiment("third", metrics=[funnel])["metrics"]
