"""Metrics and exposure criteria that are refused when they are saved, each with what the answer says (rule 3.8)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.conftest import Api
from tests.contract.experiments.test_changes import MEAN
from tests.contract.experiments.test_endpoints import of_cohort, without_cohort
from tests.contract.experiments.test_flag_linkage import patch
from tests.contract.experiments.test_metrics import COMMON, EVENT, FUNNEL, RATIO, RETENTION
from tests.contract.experiments.test_representation import refused
from tests.contract.rules import rule

QUANTILE = MEAN | {"metric_type": "quantile", "quantile_level": 0.5}
NAMELESS_TABLE = {
    "kind": "ExperimentDataWarehouseNode",
    "timestamp_field": "at",
    "events_join_key": "k",
    "data_warehouse_join_key": "k",
}
FAR_GROUP = EVENT | {"math": "unique_group", "math_group_type_index": 9}
NULL, REQUIRED = ("null", "This field may not be null."), ("required", "This field is required.")
TEXT, NUMBER = ("invalid_input", "Not a valid string."), ("invalid_input", "A valid number is required.")
WHOLE, TRUTH = (
    ("invalid_input", "A valid integer is required."),
    ("invalid_input", "Must be a valid boolean."),
)
UNKNOWN = ("invalid_key", "This key is not known here.")


def without(metric: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in metric.items() if name != key}


def choice(value: object) -> tuple[str, str]:
    return ("invalid_choice", f'"{value}" is not a valid choice.')


def at_most(limit: str) -> tuple[str, str]:
    return ("max_value", f"Ensure this value is less than {limit}.")


def at_least(limit: str) -> tuple[str, str]:
    return ("min_value", f"Ensure this value is greater than {limit}.")


def dictionary(name: str) -> tuple[str, str]:
    return ("not_a_dict", f'Expected a dictionary of items but got type "{name}".')


def items(name: str) -> tuple[str, str]:
    return ("not_a_list", f'Expected a list of items but got type "{name}".')


MALFORMED: list[tuple[dict[str, Any], tuple[str | int, ...], tuple[str, str]]] = [
    (without(MEAN, "metric_type"), ("metric_type",), REQUIRED),
    (MEAN | {"metric_type": None}, ("metric_type",), NULL),
    (MEAN | {"metric_type": "median"}, ("metric_type",), choice("median")),
    (MEAN | {"metric_type": 4}, ("metric_type",), choice(4)),
    (MEAN | {"uuid": 7}, ("uuid",), TEXT),
    (MEAN | {"name": ["n"]}, ("name",), TEXT),
    (MEAN | {"goal": "up"}, ("goal",), choice("up")),
    (MEAN | {"conversion_window": 1.5}, ("conversion_window",), WHOLE),
    (MEAN | {"conversion_window": "a"}, ("conversion_window",), WHOLE),
    (MEAN | {"conversion_window_unit": "year"}, ("conversion_window_unit",), choice("year")),
    (MEAN | {"breakdownFilter": []}, ("breakdownFilter",), dictionary("list")),
    (MEAN | {"isSharedMetric": 1}, ("isSharedMetric",), TRUTH),
    (MEAN | {"sharedMetricId": []}, ("sharedMetricId",), NUMBER),
    (MEAN | {"version": "a"}, ("version",), NUMBER),
    (MEAN | {"surprise": 1}, ("surprise",), UNKNOWN),
    (without(MEAN, "source"), ("source",), REQUIRED),
    (MEAN | {"source": None}, ("source",), NULL),
    (MEAN | {"source": 3}, ("source",), dictionary("int")),
    (MEAN | {"source": {}}, ("source", "kind"), REQUIRED),
    (MEAN | {"source": {"kind": None}}, ("source", "kind"), NULL),
    (MEAN | {"source": {"kind": "TableNode"}}, ("source", "kind"), choice("TableNode")),
    (MEAN | {"source": EVENT | {"event": 3}}, ("source", "event"), TEXT),
    (MEAN | {"source": EVENT | {"math": "p90"}}, ("source", "math"), choice("p90")),
    (MEAN | {"source": EVENT | {"math_hogql": 1}}, ("source", "math_hogql"), TEXT),
    (MEAN | {"source": FAR_GROUP}, ("source", "math_group_type_index"), at_most("or equal to 4")),
    (MEAN | {"source": EVENT | {"properties": {}}}, ("source", "properties"), items("dict")),
    (MEAN | {"source": EVENT | {"properties": [1]}}, ("source", "properties", 0), dictionary("int")),
    (MEAN | {"source": EVENT | {"EventsNode": 1}}, ("source", "EventsNode"), UNKNOWN),
    (MEAN | {"source": {"kind": "ActionsNode"}}, ("source", "id"), REQUIRED),
    (MEAN | {"source": {"kind": "ActionsNode", "id": "7"}}, ("source", "id"), WHOLE),
    (MEAN | {"source": NAMELESS_TABLE}, ("source", "table_name"), REQUIRED),
    (MEAN | {"threshold": "3"}, ("threshold",), NUMBER),
    (MEAN | {"threshold": True}, ("threshold",), NUMBER),
    (MEAN | {"ignore_zeros": 1}, ("ignore_zeros",), TRUTH),
    (MEAN | {"upper_bound_percentile": 95}, ("upper_bound_percentile",), at_most("or equal to 1.0")),
    (MEAN | {"lower_bound_percentile": -0.1}, ("lower_bound_percentile",), at_least("or equal to 0.0")),
    (FUNNEL | {"series": {"a": 1}}, ("series",), items("dict")),
    (FUNNEL | {"series": [EVENT, {"kind": "ActionsNode"}]}, ("series", 1, "id"), REQUIRED),
    (FUNNEL | {"series": [EVENT, []]}, ("series", 1), dictionary("list")),
    (FUNNEL | {"funnel_order_type": "any"}, ("funnel_order_type",), choice("any")),
    (without(RATIO, "denominator"), ("denominator",), REQUIRED),
    (RATIO | {"numerator_outlier_handling": 1}, ("numerator_outlier_handling",), dictionary("int")),
    (RATIO | {"denominator_outlier_handling": {"upper": 1}}, ("denominator_outlier_handling", "upper"),
     ("invalid_key", "This key is not known here; did you mean upper_bound_percentile?")),
    (without(RETENTION, "completion_event"), ("completion_event",), REQUIRED),
    (RETENTION | {"retention_window_start": None}, ("retention_window_start",), NULL),
    (RETENTION | {"retention_window_end": 7.5}, ("retention_window_end",), WHOLE),
    (RETENTION | {"retention_window_unit": "days"}, ("retention_window_unit",), choice("days")),
    (RETENTION | {"start_handling": "first"}, ("start_handling",), choice("first")),
    (QUANTILE | {"quantile_level": 1}, ("quantile_level",), at_most("1.0")),
    (QUANTILE | {"quantile_level": 0}, ("quantile_level",), at_least("0.0")),
    (QUANTILE | {"quantile_unit": "user"}, ("quantile_unit",), choice("user")),
]  # fmt: skip


def hogql(text: str) -> dict[str, Any]:
    return EVENT | {"math": "hogql", "math_hogql": text}


def filtered(**condition: Any) -> dict[str, Any]:
    return EVENT | {
        "properties": [{"key": "plan", "value": "a", "operator": "exact", "type": "event"} | condition]
    }


def broken_down(*breakdowns: Any) -> dict[str, Any]:
    return MEAN | {"breakdownFilter": {"breakdowns": list(breakdowns)}}


SESSION_END = EVENT | {
    "math": "sum",
    "math_property": "$end_timestamp",
    "math_property_type": "session_properties",
}
NOT_COMPUTABLE: list[tuple[dict[str, Any], str]] = [
    (MEAN | {"source": EVENT | {"math": "hogql"}}, "source.math_hogql is required for the math hogql."),
    (MEAN | {"source": hogql("sum((")}, "source.math_hogql cannot be read at character 6: "),
    (MEAN | {"source": hogql("sum(" * 5000)}, "source.math_hogql can have at most 5000 characters."),
    (MEAN | {"source": hogql("(" * 4999)}, "source.math_hogql cannot be read at character "),
    (MEAN | {"source": hogql("sum(1, 2)")}, "source.math_hogql: sum(), at character 1, takes one argument."),
    (
        MEAN | {"source": hogql("sum(toFloat(properties.a) + nope.b)")},
        "source: math_hogql: nope.b cannot be used in metrics (at character 29)",
    ),
    (
        MEAN | {"source": hogql("avg(sleep(1))")},
        "source: math_hogql: sleep() with 1 arguments cannot be used (at character 5)",
    ),
    (
        MEAN | {"source": hogql("sum(properties.a % 2)")},
        "source: math_hogql: the operator % cannot be used in metrics (at character 5)",
    ),
    (
        MEAN | {"source": hogql("sum(x -> x)")},
        "source: math_hogql: a function of one's own cannot be used in metrics (at character 5)",
    ),
    (
        RATIO | {"denominator": hogql("sum({x})")},
        "denominator: math_hogql: a placeholder cannot be used in metrics (at character 5)",
    ),
    (
        MEAN | {"source": EVENT | {"math": "unique_group"}},
        "source.math_group_type_index: unique_group needs it.",
    ),
    (
        FUNNEL | {"series": [EVENT, filtered(operator="sounds_like")]},
        "series[1]: plan: the operator sounds_like is not supported in metrics",
    ),
    (
        FUNNEL | {"series": [EVENT, filtered(operator="regex", value="(")]},
        "series[1]: plan: '(' is not a valid regular expression",
    ),
    (
        FUNNEL | {"series": [EVENT, filtered(operator="gte", value="abc")]},
        "series[1]: plan: must be a number",
    ),
    (
        FUNNEL | {"series": [EVENT, filtered(operator="icontains_multi", value=[])]},
        "series[1]: plan: must be at least one text",
    ),
    (
        RETENTION | {"completion_event": filtered(type="hogql", key="properties.a = nope")},
        "completion_event: hogql: nope cannot be used in metrics (at character 16)",
    ),
    (RETENTION | {"start_event": filtered(key=["a"])}, "start_event.properties[0].key: must be a string, got "),
    (
        MEAN | {"source": filtered(type="cohort", key="id", value=999999)},
        "source: id: cohort 999999 does not exist",
    ),
    (
        MEAN | {"source": SESSION_END},
        "source: $end_timestamp: the session property $end_timestamp is not known",
    ),
    (
        RETENTION | {"start_event": filtered(type="element", key="order")},
        "start_event: order: elements have no such property",
    ),
    (
        FUNNEL | {"series": [filtered(type="element", key="selector", value="a:hover")]},
        "series[0]: selector: Invalid selector: a:hover",
    ),
    (MEAN | {"source": hogql("quantile(2)(1)")}, "source.math_hogql: quantile(), at character 1, takes one level "),
    (broken_down("a"), "A breakdown needs a property."),
    (
        broken_down({"property": "properties.", "type": "hogql"}),
        "The HogQL of a breakdown cannot be read at character ",
    ),
    (
        broken_down({"property": "lower(nope)", "type": "hogql"}),
        "the HogQL of a breakdown: nope cannot be used in metrics (at character 7)",
    ),
    (broken_down({"property": "p", "type": "element"}), "p: breakdowns by element are not supported: a click has "),
    (
        broken_down({"property": "$vitals_lcp", "type": "session"}),
        "$vitals_lcp: sessions are known by their events alone, which tell of a session: $autocapture_count, ",
    ),
    (
        MEAN | {"source": filtered(type="session", key="plan")},
        "source: plan: sessions are known by their events alone",
    ),
    (
        broken_down(*({"property": name} for name in "abcd")),
        "Maximum of 3 breakdowns are supported for experiment metrics",
    ),
    (MEAN | {"conversion_window": -1, "conversion_window_unit": "day"}, "conversion_window: a window has to be 1"),
    (MEAN | {"conversion_window": 10**9, "conversion_window_unit": "day"}, "conversion_window is too long."),
    (RETENTION | {"retention_window_end": 10**9}, "The retention window is too long."),
    (QUANTILE | {"quantile_unit": "event"}, "A quantile over events needs a number of each event"),
    (FUNNEL | {"series": [EVENT] * 31}, "A funnel can have at most 30 steps."),
]  # fmt: skip


@rule("3.8.2")
@pytest.mark.parametrize(("metric", "place", "problem"), MALFORMED)
def test_a_malformed_metric_is_refused_in_the_words_of_the_wire(
    api: Api, metric: dict[str, Any], place: tuple[str | int, ...], problem: tuple[str, str]
) -> None:
    said = {"loc": place, "type": problem[0], "msg": problem[1]}
    for field in ("metrics", "metrics_secondary"):
        error = refused(api, **{field: [MEAN, metric]})
        assert error == {
            "type": "validation_error",
            "code": "invalid_input",
            "detail": f"Invalid metric at index 1: {[said]}.",
            "attr": field,
        }


@rule("3.8.2")
def test_several_problems_are_told_at_once(api: Api) -> None:
    error = refused(api, metrics=[MEAN | {f"k{number}": 1 for number in range(20)} | {"goal": "up"}])
    assert error["detail"].count("'loc'") == 15
    for word in ("type=", "Input should", "For further information", "MeanMetric", "literal"):
        assert word not in error["detail"]


@rule("3.8.11")
@pytest.mark.parametrize(("metric", "detail"), NOT_COMPUTABLE)
def test_a_metric_that_could_never_be_computed_is_refused(
    api: Api, metric: dict[str, Any], detail: str
) -> None:
    error = refused(api, metrics_secondary=[MEAN, metric])
    assert (error["type"], error["code"], error["attr"]) == (
        "validation_error",
        "invalid_input",
        "metrics_secondary",
    )
    assert error["detail"].startswith(f"Invalid metric at index 1: {detail}"), error["detail"]
    made = api.experiment(metrics=[MEAN])
    error = api.refused("PATCH", f"/experiments/{made['id']}/", {"metrics": [metric]})
    assert error["detail"].startswith(f"Invalid metric at index 0: {detail}")
    assert api.ok("GET", f"/experiments/{made['id']}/")["metrics"] == made["metrics"]
    if metric["metric_type"] != "quantile":  # which clients of saved metrics do not know
        error = api.refused("POST", "/experiment_saved_metrics/", {"name": "Saved", "query": metric})
        assert (error["attr"], error["detail"].startswith(f"Invalid metric: {detail}")) == ("query", True)


@rule("3.8.11")
def test_what_can_be_computed_is_kept(api: Api) -> None:
    source = hogql("sum(if(properties.plan = 'a', toFloat(properties.amount) * 2, 0))")
    metric = MEAN | COMMON | {"source": source}
    (kept,) = api.experiment(metrics=[metric])["metrics"]
    assert metric.items() <= kept.items()


@rule("3.8.11")
def test_a_metric_that_lost_what_it_names_can_still_be_edited(api: Api) -> None:
    metric = of_cohort(api)
    made = api.experiment(metrics=[metric])
    without_cohort(api, metric)
    assert api.ok("GET", f"/experiments/{made['id']}/")["metrics"] == made["metrics"]
    renamed = {**made["metrics"][0], "name": "Renamed"}
    changed = patch(api, made, description="x", metrics=[renamed, MEAN])
    assert [each.get("name") for each in changed["metrics"]] == ["Renamed", MEAN.get("name")]
    error = api.refused("PATCH", f"/experiments/{made['id']}/", {"metrics": [metric | {"goal": "decrease"}]})
    assert error["detail"].startswith("Invalid metric at index 0: source: id: cohort ")


def saw(config: str = "exposure_config", **condition: Any) -> dict[str, Any]:
    return {config: {"event": "saw", "properties": [condition]}}


@rule("3.7.3")
@pytest.mark.parametrize(
    ("criteria", "detail"),
    [
        (saw(key="a", value="(", operator="regex"), "a: '(' is not a valid regular expression"),
        (saw(key="id", value=99, type="cohort"), "id: cohort 99 does not exist"),
        (saw("activation_config", key="1 =", type="hogql"), "hogql: cannot be read at character 4: "),
    ],
)  # fmt: skip
def test_exposure_criteria_by_which_nobody_could_be_counted_are_refused(
    api: Api, criteria: dict[str, Any], detail: str
) -> None:
    error = refused(api, exposure_criteria=criteria)
    assert error["attr"] == "exposure_criteria"
    assert error["detail"].startswith(f"Invalid exposure_criteria: {detail}")
    made = api.experiment()
    error = api.refused("PATCH", f"/experiments/{made['id']}/", {"exposure_criteria": criteria})
    assert error["detail"].startswith(f"Invalid exposure_criteria: {detail}")
