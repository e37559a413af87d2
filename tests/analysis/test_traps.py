"""What is easily got wrong in results, one test for each (spec experiment-results 12)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.analysis.events import Event
from tests.analysis.lab import REVENUE, Lab, bought, exposed

from hoglab.experiments.definitions.fingerprint import Calculation, fingerprint
from hoglab.statistics import CupedConfig, RelativeVariance, resolve_config

START = datetime(2026, 3, 8, 9, 0, tzinfo=UTC)
END = datetime(2026, 3, 9, 9, 0, tzinfo=UTC)
MICRO = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
PURCHASE = {"kind": "EventsNode", "event": "purchase"}
COUNT = {"kind": "ExperimentMetric", "metric_type": "mean", "source": PURCHASE}
RATE = {"kind": "ExperimentMetric", "metric_type": "funnel", "series": [PURCHASE]}
AMOUNT = {**PURCHASE, "math": "sum", "math_property": "amount"}
BACK = {
    "kind": "ExperimentMetric",
    "metric_type": "retention",
    "start_event": PURCHASE,
    "completion_event": PURCHASE,
    "retention_window_start": 1,
    "retention_window_end": 1,
    "retention_window_unit": "day",
    "start_handling": "first_seen",
}

Result = dict[str, Any]


@pytest.fixture
def results(lab: Lab) -> Callable[..., dict[str, Result]]:
    """Store events, compute a metric, and give its rows by variant."""

    def compute(events: list[Event], metric: Result, **fields: Any) -> dict[str, Result]:
        experiment = lab.experiment(start_date=START.isoformat(), **fields)
        lab.send(events)
        return rows(lab, experiment, metric)

    return compute


def rows(lab: Lab, experiment: Result, metric: Result) -> dict[str, Result]:
    answer = lab.query({"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": metric})
    return {row["key"]: row for row in (answer["baseline"], *answer["variant_results"])}


def exposures(lab: Lab, key: str, **query: Any) -> Result:
    return lab.query(
        {"kind": "ExperimentExposureQuery", "feature_flag": {"key": key}, "start_date": START.isoformat()}
        | query
    )


def crowd(control: int, test: int, *, buyers: int = 0, amount: Any = 1) -> list[Event]:
    """Exposed people; the first ones of each variant buy."""
    events = []
    for variant, size in (("control", control), ("test", test)):
        for number in range(size):
            events.append(exposed(f"{variant}-{number}", variant, START))
            if number < buyers:
                events.append(bought(f"{variant}-{number}", START + HOUR, amount))
    return events


def test_1_edges_of_the_window(results: Any) -> None:
    at_the_end = [exposed("a", "control", END), bought("a", END, 1), exposed("b", "control", END + MICRO)]
    sums = results([*at_the_end, exposed("c", "test", START)], COUNT, end_date=END.isoformat())
    assert (sums["control"]["number_of_samples"], sums["control"]["sum"]) == (1, 0), "events end exclusive"


@pytest.mark.parametrize(("metric", "counted"), [(COUNT, 2), (RATE, 1)], ids=["mean", "funnel"])
def test_1_a_window_ends_before_its_length_for_means_and_with_it_for_funnels(
    results: Any, metric: Result, counted: int
) -> None:
    """Of a day: events at the exposure, just before its end, and at it; for funnels one at the end is enough."""
    events = [exposed("t", "test", START), exposed("c", "control", START)]
    moments = [START, START + DAY - MICRO, START + DAY] if metric is COUNT else [START + DAY]
    events += [bought("c", moment, 1) for moment in moments]
    window = {"conversion_window": 1, "conversion_window_unit": "day"}
    assert results(events, metric | window)["control"]["sum"] == counted


def test_1_a_funnel_step_at_the_very_end_counts(results: Any) -> None:
    events = [exposed("a", "control", END - HOUR), bought("a", END, 1), exposed("c", "test", START)]
    assert results(events, RATE, end_date=END.isoformat())["control"]["sum"] == 1


@pytest.mark.parametrize(("metric", "found"), [(COUNT, 0), (RATE, 1)])
def test_2_a_repeated_exposure_renews_only_the_funnels_window(
    results: Any, metric: Result, found: int
) -> None:
    window = {"conversion_window": 1, "conversion_window_unit": "hour"}
    events = [
        *(exposed("a", "control", START + number * HOUR) for number in range(3)),
        bought("a", START + 2.5 * HOUR, 1),
        exposed("b", "test", START),
    ]
    assert results(events, {**metric, **window})["control"]["sum"] == found


def test_3_multiple_entities_influence_bounds_and_not_n(results: Any) -> None:
    events = [
        *(exposed("both", variant, START) for variant in ("control", "test")),
        bought("both", START, 5),
        *(exposed(f"c{number}", "control", START) for number in range(2)),
        bought("c0", START, 100),
        bought("c1", START, 100),
        exposed("t", "test", START),
    ]
    metric = {
        "kind": "ExperimentMetric",
        "metric_type": "mean",
        "source": AMOUNT,
        "upper_bound_percentile": 0.25,
    }
    control = results(events, metric)["control"]
    assert (control["number_of_samples"], control["sum"]) == (2, 10), (
        "the bound is the 5 of somebody left out"
    )


def test_4_only_session_metrics_drop_who_has_no_session(results: Any, lab: Lab) -> None:
    def at(person: str, minutes: int, session: str | None) -> Event:
        return Event(person, START + timedelta(minutes=minutes), "$pageview", {"$session_id": session})

    events = [*(exposed(name, "control", START) for name in "abc"), exposed("t", "test", START)]
    events += [at("a", 1, "s1"), at("a", 11, "s1"), at("b", 1, None)]
    source = {
        "kind": "EventsNode",
        "event": "$pageview",
        "math": "avg",
        "math_property": "$session_duration",
        "math_property_type": "session_properties",
    }
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send(events)
    found = [
        rows(lab, experiment, {"kind": "ExperimentMetric", "metric_type": "mean", "source": each})["control"]
        for each in (source, {"kind": "EventsNode", "event": "$pageview"})
    ]
    assert [(row["number_of_samples"], row["sum"]) for row in found] == [(1, 600), (3, 3)]


def test_5_retention_counts_who_started_and_needs_two_rows(results: Any) -> None:
    events = [*(exposed(name, "control", START) for name in "abc"), exposed("t", "test", START)]
    events += [bought("a", START, 1), bought("b", START, 1), bought("b", START + DAY, 1)]
    control = results(events, BACK)["control"]
    assert (control["number_of_samples"], control["sum"]) == (2, 1)
    assert control["denominator_sum"] == 2


@pytest.mark.parametrize(("zone", "retained"), [("UTC", 1), ("Pacific/Auckland", 0)])
def test_6_days_of_retention_are_those_of_the_project(lab: Lab, zone: str, retained: int) -> None:
    with lab.database.write() as tx:
        tx.connection.exec_driver_sql("UPDATE project SET timezone = ?", (zone,))
        tx.changed("project", 1)
    experiment = lab.experiment(start_date=START.isoformat())
    late, next_day = START.replace(hour=23), (START + DAY).replace(hour=2)
    lab.send([exposed("a", "control", START), bought("a", late, 1), bought("a", next_day, 1)])
    lab.send([exposed("t", "test", START)])
    assert rows(lab, experiment, BACK)["control"]["sum"] == retained


def test_7_bounds_are_fractions_without_interpolation_and_disable_the_threshold(results: Any) -> None:
    amounts = [1, 2, 3, 10]
    events = [exposed("t", "test", START)]
    for number, amount in enumerate(amounts):
        events += [exposed(f"c{number}", "control", START), bought(f"c{number}", START, amount)]
    events += [exposed("d", "control", START), exposed("e", "control", START)]
    metric = {
        "kind": "ExperimentMetric",
        "metric_type": "mean",
        "source": AMOUNT,
        "upper_bound_percentile": 0.75,
        "threshold": 2,
    }
    # Seven values: 0 0 0 1 2 3 10; rank floor(0.75 · 7) = 5 holds 3.
    assert results(events, metric)["control"]["sum"] == 1 + 2 + 3 + 3


def test_7_of_bounds_that_cross_the_upper_one_decides(results: Any) -> None:
    """They can: with ``ignore_zeros`` only the upper one is taken of what is not 0."""
    events = [exposed("t", "test", START)]
    for number, amount in enumerate([-5, -5, 0, 0]):
        events += [exposed(f"c{number}", "control", START), bought(f"c{number}", START, amount)]
    bounds = {"lower_bound_percentile": 0.5, "upper_bound_percentile": 0.5, "ignore_zeros": True}
    metric = {"kind": "ExperimentMetric", "metric_type": "mean", "source": AMOUNT, **bounds}
    # Five values: -5 -5 0 0 0; the lower bound is 0, the upper one that of -5 -5.
    assert results(events, metric)["control"]["sum"] == 4 * -5


def test_7_where_nothing_is_left_of_zeros_there_is_no_upper_bound(results: Any) -> None:
    events = [exposed(person, variant, START) for person, variant in (("c", "control"), ("t", "test"))]
    bounds = {"upper_bound_percentile": 0.5, "ignore_zeros": True}
    metric = {"kind": "ExperimentMetric", "metric_type": "mean", "source": AMOUNT, **bounds}
    assert [(row["number_of_samples"], row["sum"]) for row in results(events, metric).values()] == [
        (1, 0),
        (1, 0),
    ]


def test_8_goal_changes_nothing(results: Any, lab: Lab) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send(crowd(60, 60, buyers=10))
    wanted, unwanted = (rows(lab, experiment, {**RATE, "goal": goal}) for goal in ("increase", "decrease"))
    assert wanted == unwanted


def test_9_difference_type_is_upper_case_in_and_lower_case_in_the_fingerprint() -> None:
    def settings(difference: str) -> Calculation:
        stored = {"bayesian": {"difference_type": difference}, "posthog_numbers": True}
        return Calculation(START, "f", ["control", "test"], resolve_config(stored), exposure_criteria={})

    assert fingerprint(RATE, settings("absolute")) == fingerprint(RATE, settings("RELATIVE"))
    hashed = {
        "key_version": 2,
        "metric": {"metric_type": "funnel", "series": [PURCHASE]},
        "start_date": "2026-03-08T09:00:00+00:00",
        "feature_flag_key": "f",
        "aggregation_group_type_index": None,
        "variants": ["control", "test"],
        "baseline": "control",
        "excluded_variants": [],
        "exposure": {
            "exposure": {"event": "$default_exposure_event", "properties": []},
            "multiple_variant_handling": "exclude",
            "filter_test_accounts": True,
        },
        "test_account_filters": [],
        "stats": {"method": "bayesian", "ci_level": 0.95, "difference_type": "absolute"},
        "cuped": {"enabled": False, "lookback_days": 14},
        "only_count_matured_users": False,
    }
    text = json.dumps(hashed, sort_keys=True, separators=(",", ":"))
    assert fingerprint(RATE, settings("ABSOLUTE")) == hashlib.sha256(text.encode()).hexdigest()


def test_10_bayesian_significance_is_one_sided(results: Any) -> None:
    events = crowd(200, 200, buyers=40) + [
        bought(f"test-{number}", START + HOUR, 1) for number in range(40, 55)
    ]
    row = results(events, RATE)["test"]
    low, high = row["credible_interval"]
    assert row["significant"] is True
    assert low < 0 < high
    assert row["chance_to_win"] > 0.95


@pytest.mark.parametrize("method", ["bayesian", "frequentist"])
def test_11_when_everybody_converts(results: Any, method: str) -> None:
    events = crowd(60, 60, buyers=60)
    events += [exposed(f"more-{number}", "control", START) for number in range(10)]
    row = results(events, RATE, stats_config={"method": method})["test"]
    interval = row["credible_interval" if method == "bayesian" else "confidence_interval"]
    assert (interval is None) == (method == "bayesian")
    assert row["validation_failures"] == []


def test_12_a_small_baseline_nulls_the_others_and_is_named_once(results: Any) -> None:
    found = results(crowd(49, 60, buyers=10), RATE)
    assert found["control"]["validation_failures"] == ["not-enough-exposures"]
    assert found["test"]["validation_failures"] == []
    assert found["test"]["chance_to_win"] is None


def test_13_relative_cuped_is_the_correct_one_unless_asked_for_the_other() -> None:
    assert CupedConfig().relative_variance is RelativeVariance.DELTA
    asked = resolve_config({"cuped": {"enabled": True, "relative_variance": "posthog"}})
    assert asked.cuped.relative_variance is RelativeVariance.POSTHOG


def test_14_a_baseline_that_cancels_to_zero_is_named(results: Any) -> None:
    events = crowd(60, 60)
    events += [bought("control-0", START, 5), bought("control-1", START, -5), bought("test-0", START, 5)]
    found = results(events, {"kind": "ExperimentMetric", "metric_type": "mean", "source": AMOUNT})
    assert found["control"]["validation_failures"] == ["baseline-mean-is-zero"]


def test_15_test_accounts_are_left_out_of_exposures_only(lab: Lab) -> None:
    with lab.database.write() as tx:
        filters = '[{"key": "staff", "type": "event", "operator": "is_not", "value": "yes"}]'
        tx.connection.exec_driver_sql("UPDATE project SET test_account_filters = ?", (filters,))
        tx.changed("project", 1)
    experiment = lab.experiment(start_date=START.isoformat(), exposure_criteria={"filterTestAccounts": True})
    called = {"$feature_flag": "checkout", "$feature_flag_response": "control", "staff": "yes"}
    lab.send(
        [
            Event("staff", START, "$feature_flag_called", called),
            exposed("a", "control", START),
            exposed("t", "test", START),
            Event("a", START + HOUR, "purchase", {"staff": "yes"}),
        ]
    )
    control = rows(lab, experiment, COUNT)["control"]
    assert (control["number_of_samples"], control["sum"]) == (1, 1)


def test_16_srm_ignores_multiple_and_needs_a_hundred(lab: Lab) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send(crowd(99, 0) + [exposed("both", each, START) for each in ("control", "test")])
    asked = {"experiment_id": experiment["id"]}
    assert exposures(lab, "checkout", **asked)["sample_ratio_mismatch"] is None
    lab.send([exposed("one more", "control", START)])
    found = exposures(lab, "checkout", **asked)["sample_ratio_mismatch"]
    assert found["expected"] == {"control": 50, "test": 50}, (
        "a variant that nobody saw is expected all the same"
    )
    assert found["p_value"] < 1e-20


def test_17_an_excluded_variant_disappears_everywhere(lab: Lab) -> None:
    variants = [
        {"key": key, "rollout_percentage": share} for key, share in (("control", 34), ("a", 33), ("b", 33))
    ]
    experiment = lab.experiment(
        metrics=[RATE], parameters={"feature_flag_variants": variants}, start_date=START.isoformat()
    )
    lab.send([exposed(f"{key}{number}", key, START) for key in ("control", "a", "b") for number in range(60)])
    assert set(rows(lab, experiment, RATE)) == {"control", "a", "b"}
    changed = lab.ok("PATCH", f"/experiments/{experiment['id']}/", {"excluded_variants": ["b"]})
    assert set(rows(lab, changed, RATE)) == {"control", "a"}
    shown = exposures(lab, "checkout", experiment_id=experiment["id"])
    assert set(shown["total_exposures"]) == {"control", "a"}
    assert set(shown["sample_ratio_mismatch"]["expected"]) == {"control", "a"}
    assert changed["metrics"][0]["fingerprint"] != experiment["metrics"][0]["fingerprint"]


def test_18_daily_points_are_cumulative(lab: Lab) -> None:
    experiment = lab.experiment(metrics=[COUNT], start_date=START.isoformat())
    lab.send([exposed("a", "control", START), bought("a", START, 1), bought("a", START + DAY, 1)])
    found = lab.series(experiment)["timeseries"]
    assert [found[day]["baseline"]["sum"] for day in sorted(found)] == [1, 2, 2]


def test_19_an_unknown_fingerprint_is_pending(lab: Lab) -> None:
    experiment = lab.experiment(metrics=[COUNT], start_date=START.isoformat())
    query = {"metric_uuid": experiment["metrics"][0]["uuid"], "fingerprint": "0" * 64}
    answer = lab.ok("GET", f"/experiments/{experiment['id']}/timeseries_results/", params=query)
    assert answer["status"] == "pending"
    assert set(answer["timeseries"].values()) == {None}


def test_20_the_overall_row_sums_the_clamped_rows_of_cells(results: Any) -> None:
    events = [exposed("t", "test", START)]
    for browser, amounts in (("Firefox", (1, 2)), ("Safari", (100, 200))):
        for number, amount in enumerate(amounts):
            name = f"{browser}{number}"
            called = {"$feature_flag": "checkout", "$feature_flag_response": "control", "$browser": browser}
            events += [Event(name, START, "$feature_flag_called", called), bought(name, START, amount)]
    metric = {
        "kind": "ExperimentMetric",
        "metric_type": "mean",
        "source": AMOUNT,
        "upper_bound_percentile": 0.0,
        "breakdownFilter": {"breakdowns": [{"property": "$browser", "type": "event"}]},
    }
    assert results(events, metric)["control"]["sum"] == 1 + 1 + 100 + 100


def test_21_unique_group_honours_index_0(results: Any) -> None:
    events = [exposed("a", "control", START), exposed("t", "test", START)]
    events += [
        Event("a", START, "purchase", groups={0: key, 1: "same"}) for key in ("acme", "umbrella", "acme")
    ]
    source = {**PURCHASE, "math": "unique_group", "math_group_type_index": 0}
    metric = {"kind": "ExperimentMetric", "metric_type": "mean", "source": source}
    assert results(events, metric)["control"]["sum"] == 2


@pytest.mark.parametrize(("math", "found"), [("sum", 10), ("avg", 5), ("min", 0), ("max", 10)])
def test_22_what_is_no_number_counts_as_zero(results: Any, math: str, found: float) -> None:
    events = [exposed("a", "control", START), exposed("t", "test", START)]
    events += [bought("a", START, "abc"), bought("a", START, 10)]
    source = {**AMOUNT, "math": math}
    assert results(events, {**REVENUE, "source": source})["control"]["sum"] == found
