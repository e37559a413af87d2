"""Results and exposures computed at once over the API."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.analysis.events import Event
from tests.analysis.lab import NOW, PURCHASES, REVENUE, Lab, bought, exposed
from tests.embedded import EmbeddedReader

from hoglab.analysis.api.schemas import KINDS
from hoglab.analysis.execution.statement_runner import MAX_CELLS
from hoglab.statistics import sample_ratio_mismatch
from hoglab.storage.event_store import (
    EventStoreUnavailableError,
    QueryError,
    QueryMemoryError,
    QueryTimeoutError,
)

START = datetime(2026, 3, 8, 9, 0, tzinfo=UTC)


def hogql(text: str) -> dict[str, Any]:
    return {**REVENUE, "source": {"kind": "EventsNode", "event": "e", "math": "hogql", "math_hogql": text}}


def session(name: str) -> dict[str, Any]:
    prop = {"math": "sum", "math_property": name, "math_property_type": "session_properties"}
    return {**REVENUE, "source": {"kind": "EventsNode", "event": "e", **prop}}


def test_a_result_has_every_key(lab: Lab) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send([exposed("ann", "control", START), bought("ann", START, 5), exposed("bob", "test", START)])
    answer = lab.query({"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": REVENUE})
    sums = {
        "step_counts": None,
        "step_sessions": None,
        "denominator_sum": None,
        "denominator_sum_squares": None,
        "numerator_denominator_sum_product": None,
        "covariate_sum": None,
        "covariate_sum_squares": None,
        "covariate_sum_product": None,
    }
    assert answer["baseline"] == {
        "key": "control",
        "number_of_samples": 1,
        "sum": 5,
        "sum_squares": 25,
        **sums,
        "validation_failures": ["not-enough-exposures"],
    }
    assert answer["variant_results"] == [
        {
            "key": "test",
            "method": "bayesian",
            "number_of_samples": 1,
            "sum": 0,
            "sum_squares": 0,
            **sums,
            "chance_to_win": None,
            "credible_interval": None,
            "point_estimate": None,
            "unbounded_reason": None,
            "significant": None,
            "validation_failures": ["not-enough-exposures"],
            "refusal": "invalid-variant",
            "problem": "fewer than 50 people",
        }
    ]
    for key in (
        *("breakdown_results", "clickhouse_sql", "hogql", "metric", "insight", "variants", "probability"),
        *("credible_intervals", "significant", "significance_code", "p_value", "stats_version"),
    ):
        assert answer[key] is None, key
    assert answer["kind"] == "ExperimentQuery"
    assert answer["is_precomputed"] is False
    assert answer["is_cached"] is False
    assert answer["timezone"] == "UTC"


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (
            {
                "kind": "ExperimentMetric",
                "metric_type": "ratio",
                "numerator": REVENUE["source"],
                "denominator": {"kind": "EventsNode", "event": "purchase"},
            },
            {"sum": 12, "denominator_sum": 2, "numerator_denominator_sum_product": 24},
        ),
        (
            {
                "kind": "ExperimentMetric",
                "metric_type": "retention",
                "start_event": {"kind": "EventsNode", "event": "purchase"},
                "completion_event": {"kind": "EventsNode", "event": "purchase"},
                "retention_window_start": 0,
                "retention_window_end": 1,
                "retention_window_unit": "day",
                "start_handling": "first_seen",
            },
            {"number_of_samples": 1, "sum": 1, "denominator_sum": 1},
        ),
    ],
)
def test_ratio_and_retention(lab: Lab, metric: dict[str, Any], expected: dict[str, Any]) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send(
        [
            exposed("ann", "control", START),
            bought("ann", START, 5),
            bought("ann", START + timedelta(hours=1), 7),
        ]
    )
    answer = lab.query({"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": metric})
    assert {name: answer["baseline"][name] for name in expected} == expected


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ({"kind": "ExperimentQuery", "metric": REVENUE}, "experiment_id is required"),
        (
            {"kind": "ExperimentQuery", "experiment_id": 999, "metric": REVENUE},
            "Experiment with id 999 not found",
        ),
        ({"kind": "ExperimentExposureQuery"}, "feature_flag key is required"),
        ({"kind": "ExperimentExposureQuery", "feature_flag": {"key": ""}}, "feature_flag key is required"),
    ],
)
def test_bad_queries_are_refused(lab: Lab, query: dict[str, Any], detail: str) -> None:
    assert lab.query(query, status=400)["detail"] == detail


@pytest.mark.parametrize("query", [{"kind": "PathsQuery"}, {"kind": ["TrendsQuery"]}, {"kind": None}, {}])
def test_unknown_kinds_are_refused_with_those_that_there_are(lab: Lab, query: dict[str, Any]) -> None:
    answer = lab.query(query, status=400)
    assert (answer["attr"], answer["code"]) == ("query__kind", "invalid_choice")
    start = f"Queries of kind {query.get('kind')!r} are not supported; there are ExperimentQuery, "
    assert answer["detail"].startswith(start)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_that_is_described_is_known(lab: Lab, kind: str) -> None:
    assert "not supported" not in lab.query({"kind": kind}, status=400)["detail"]


@pytest.mark.parametrize(
    ("metric", "detail"),
    [
        ({"metric_type": "mystery"}, "Metrics of type 'mystery' are not supported."),
        ({"metric_type": "mean"}, "source must be an object."),
        ({"metric_type": "funnel", "series": []}, "A funnel needs at least one step."),
        (
            {"metric_type": "mean", "source": {"kind": "ExperimentDataWarehouseNode"}},
            "source: the project has no data warehouse table ''.",
        ),
        (
            {**REVENUE, "breakdownFilter": {"breakdowns": [{"property": f"p{n}"} for n in range(4)]}},
            "Maximum of 3 breakdowns are supported for experiment metrics",
        ),
        (
            {**REVENUE, "conversion_window": 10**12, "conversion_window_unit": "month"},
            "conversion_window is too long.",
        ),
        ({**REVENUE, "upper_bound_percentile": 95}, "upper_bound_percentile must lie between 0 and 1."),
        (
            {"metric_type": "quantile", "source": REVENUE["source"], "quantile_level": 1},
            "quantile_level must lie strictly between 0 and 1.",
        ),
        (hogql(""), "source.math_hogql is required for the math hogql."),
        (hogql("sum(("), "source.math_hogql cannot be read at character "),
        (hogql("x" * 5001), "source.math_hogql can have at most 5000 characters."),
        (hogql("sum(" + "+".join(["1"] * 150) + ")"), "math_hogql: an expression can have at most 200 parts"),
        (hogql("sum(1, 2)"), "source.math_hogql: sum(), at character 1, takes one argument."),
        (hogql("count(1, 2)"), "source.math_hogql: count(), at character 1, takes one argument."),
        (hogql("median(1, 2)"), "source.math_hogql: median(), at character 1, takes one argument."),
        (hogql("uniq(1, 2)"), "source.math_hogql: uniq(), at character 1, takes one argument."),
        (
            hogql("quantile(90)(1)"),
            "source.math_hogql: quantile(), at character 1, takes one level from 0 to 1.",
        ),
        (hogql("median(0.5)(1)"), "source.math_hogql: median(), at character 1, takes no parameters."),
        (hogql("countIf(1, 2)"), "source.math_hogql: countIf(), at character 1, takes one condition."),
        (hogql("sumIf(1)"), "source.math_hogql: sumIf(), at character 1, takes a number and a condition."),
        (hogql("avgIf(1)"), "source.math_hogql: avgIf(), at character 1, takes a value and a condition."),
        (
            hogql("uniqIf(1, 2, 3)"),
            "source.math_hogql: uniqIf(), at character 1, takes a value and a condition.",
        ),
        (hogql("maxIf(0.5)(1, 2)"), "source.math_hogql: maxIf(), at character 1, takes no parameters."),
        (hogql("minIf(nope, 1)"), "math_hogql: nope cannot be used in metrics (at character 7)"),
        (
            hogql("quantileIf(2)(1, 2)"),
            "source.math_hogql: quantileIf(), at character 1, takes one level from 0 to 1.",
        ),
        (
            hogql("sum(1) filter (where event = 'x')"),
            "source.math_hogql: sum(), at character 1, cannot have a FILTER or an order.",
        ),
        (
            hogql("sum(abs(1) filter (where event = 'x'))"),
            "math_hogql: abs() with more than its arguments cannot be used (at character 5)",
        ),
        (hogql("sum(other.table)"), "math_hogql: other.table cannot be used in metrics (at character 5)"),
        (hogql("sum(sleep(1))"), "math_hogql: sleep() with 1 arguments cannot be used (at character 5)"),
        (hogql("sum([1])"), "math_hogql: an array cannot be used in metrics (at character 5)"),
        (
            hogql("sum(properties.a =~ 'x')"),
            "math_hogql: the operator =~ cannot be used in metrics (at character 5)",
        ),
        (
            session("$channel_type"),
            "$channel_type: the session property $channel_type is not known, or is no number",
        ),
        (session("$start_timestamp"), "$start_timestamp: the session property $start_timestamp is not known"),
    ],
)
def test_metrics_that_cannot_be_computed_are_refused(lab: Lab, metric: dict[str, Any], detail: str) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": metric}
    assert lab.query(query, status=400)["detail"].startswith(detail)


def test_a_quantile_metric_is_an_extension(lab: Lab) -> None:
    metric = {
        "kind": "ExperimentMetric",
        "metric_type": "quantile",
        "source": REVENUE["source"],
        "quantile_level": 0.5,
    }
    experiment = lab.experiment(metrics=[metric], start_date=START.isoformat())
    events = []
    for place, variant in enumerate(("control", "test")):
        for number in range(101):
            events += [exposed(f"{variant}{number}", variant, START)]
            events += [bought(f"{variant}{number}", START, number + 10 * place)]
    lab.send(events)
    point = lab.series(experiment)["timeseries"]["2026-03-10"]
    assert (point["baseline"]["quantile"], point["baseline"]["quantile_level"]) == (50, 0.5)
    row = point["variant_results"][0]
    assert row["quantile_lower"] < 60 == row["quantile"] < row["quantile_upper"]
    assert row["cluster_factor"] == 1
    assert row["point_estimate"] == pytest.approx(0.2), "the relative effect on the median"
    assert (row["largest_tie"], row["refusal"]) == (1, None)


def test_a_quantile_of_repeating_values_says_why_it_has_no_statistics(lab: Lab) -> None:
    metric = {**REVENUE, "metric_type": "quantile", "quantile_level": 0.5}
    experiment = lab.experiment(metrics=[metric], start_date=START.isoformat())
    events = []
    for variant in ("control", "test"):
        for number in range(101):
            person = f"{variant}{number}"
            events += [exposed(person, variant, START), bought(person, START, number % 5)]
    lab.send(events)
    (row,) = lab.series(experiment)["timeseries"]["2026-03-10"]["variant_results"]
    assert (row["quantile"], row["largest_tie"], row["credible_interval"]) == (2, 20, None)
    assert row["refusal"] == "tied-values"
    assert row["problem"].startswith("too many values around the quantile are equal")


def test_a_bad_filter_is_an_error_of_the_day(lab: Lab) -> None:
    source = {
        "kind": "EventsNode",
        "event": "purchase",
        "properties": [{"key": "x", "operator": "regex", "value": "("}],
    }
    made = lab.experiment(start_date=START.isoformat())
    answer = lab.series(lab.store_metrics(made, [{**REVENUE, "source": source}]))
    assert answer["status"] == "failed"
    assert list(answer["errors"]) == ["2026-03-10"]
    assert "not a valid regular expression" in answer["errors"]["2026-03-10"]


@pytest.mark.parametrize(
    ("fault", "status", "detail"),
    [
        (QueryTimeoutError("slow"), 429, "Query exceeded the time limit of 30 s"),
        (QueryMemoryError("big"), 429, "Query exceeded the memory limit"),
        (EventStoreUnavailableError("disk"), 503, "The event store is not available now"),
        (QueryError("odd"), 400, "Query failed: odd"),
    ],
)
def test_faults_of_the_engine_are_readable(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, fault: Exception, status: int, detail: str
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise fault

    experiment = lab.experiment(metrics=[REVENUE], start_date=START.isoformat())
    query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": REVENUE}
    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedReader, "execute", fail)
        assert lab.query(query, status=status)["detail"] == detail
        assert lab.series(experiment)["errors"] == {"2026-03-10": detail}
    lab.now = NOW + timedelta(minutes=2)
    answer = lab.series(experiment)
    assert (answer["status"], answer["errors"]) == ("completed", None), "tried again when stale"


def test_a_result_outlives_a_failure_which_is_not_repeated_at_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []

    def fail(*_: Any, **__: Any) -> Any:
        calls.append(None)
        raise QueryTimeoutError("slow")

    experiment = lab.experiment(metrics=[REVENUE], start_date=START.isoformat())
    before = lab.series(experiment)
    lab.now = NOW + timedelta(minutes=2)
    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedReader, "execute", fail)
        assert lab.series(experiment)["timeseries"] == before["timeseries"]
        assert lab.series(experiment)["status"] == "partial"
        assert len(calls) == 1
        lab.now = NOW + timedelta(minutes=4)
        lab.series(experiment)
        assert len(calls) == 2


def test_breakdowns_are_by_the_first_exposure(lab: Lab) -> None:
    def seen(person: str, variant: str, browser: str | None, hours: int = 0) -> Event:
        flag = {"$feature_flag": "checkout", "$feature_flag_response": variant, "$browser": browser}
        return Event(person, START + timedelta(hours=hours), "$feature_flag_called", flag)

    experiment = lab.experiment(start_date=START.isoformat())
    lab.send(
        [
            seen("ann", "control", "Firefox"),
            seen("ann", "control", "Safari", 1),
            seen("bob", "test", None),
            bought("ann", START + timedelta(hours=2), 5),
        ]
    )
    metric = {**REVENUE, "breakdownFilter": {"breakdowns": [{"property": "$browser", "type": "event"}]}}
    answer = lab.query({"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": metric})
    assert answer["baseline"]["sum"] == 5
    found = [
        (
            each["breakdown_value"],
            each["baseline"]["number_of_samples"],
            [(row["key"], row["number_of_samples"]) for row in each["variants"]],
        )
        for each in answer["breakdown_results"]
    ]
    assert found == [
        (["$$_posthog_breakdown_null_$$"], 0, [("test", 1)]),
        (["Firefox"], 1, [("test", 0)]),
    ]


def test_breakdowns_by_everything_are_refused(lab: Lab) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    events = [exposed(f"p{number}", "test", START) for number in range(MAX_CELLS + 1)]
    for number, event in enumerate(events):
        events[number] = replace(event, properties={**event.properties, "id": number})
    lab.send(events)
    metric = {**REVENUE, "breakdownFilter": {"breakdowns": [{"property": "id"}]}}
    query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": metric}
    assert "more than 500 combinations" in lab.query(query, status=400)["detail"]


@pytest.mark.parametrize(
    ("breakdown", "part"),
    [
        ({"property": "properties.", "type": "hogql"}, "cannot be read"),
        ({"property": "sleep(10)", "type": "hogql"}, "cannot be used"),
        ({"property": "name", "type": "group"}, "needs a group_type_index"),
        (
            {"property": "$vitals_lcp", "type": "session"},
            "sessions are known by their events alone, which tell ",
        ),
        (
            {"property": "text", "type": "element"},
            "by element are not supported: a click has several of them",
        ),
        (
            {"property": "$urls", "type": "session"},
            "by $urls are not supported: a session has several of them",
        ),
        ({"property": "3", "type": "cohort"}, "by cohort are not supported: a person may belong to several"),
        ({"property": "p", "type": "mystery"}, "breakdowns by mystery are not supported"),
    ],
)
def test_breakdowns_that_cannot_be_told_are_refused(lab: Lab, breakdown: dict[str, Any], part: str) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    metric = {**REVENUE, "breakdownFilter": {"breakdowns": [breakdown]}}
    query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": metric}
    assert part in lab.query(query, status=400)["detail"]


def test_written_exposures_count_where_there_are_any_and_calls_elsewhere(lab: Lab) -> None:
    def written(person: str, variant: str) -> Event:
        return replace(exposed(person, variant, START), event="$experiment_exposure")

    config = {"kind": "ExperimentEventExposureConfig", "event": "$experiment_exposure", "properties": []}
    experiment = lab.experiment(
        start_date=START.isoformat(),
        exposure_criteria={"filterTestAccounts": False, "exposure_config": config},
        metrics=[REVENUE, PURCHASES, {**REVENUE, "name": "Again"}],
    )
    lab.send([exposed("ann", "control", START), exposed("bob", "test", START), exposed("cem", "test", START)])

    def counted() -> list[dict[str, int]]:
        lab.now += timedelta(minutes=5)
        exposures = exposure_query(experiment, exposure_criteria=experiment["exposure_criteria"])
        result = lab.query(
            {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": experiment["metrics"][0]}
        )
        (point,) = [point for point in lab.series(experiment)["timeseries"].values() if point][-1:]
        results = [result, point]
        return [
            lab.query(exposures)["total_exposures"],
            *(
                {row["key"]: row["number_of_samples"] for row in (each["baseline"], *each["variant_results"])}
                for each in results
            ),
        ]

    assert counted() == [{"control": 1, "test": 2}] * 3
    lab.send([written("bob", "test")])
    assert counted() == [{"control": 0, "test": 1}] * 3


# -- exposures -------------------------------------------------------------------------------------------


def exposure_query(experiment: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "kind": "ExperimentExposureQuery",
        "experiment_id": experiment["id"],
        "experiment_name": experiment["name"],
        "feature_flag": {"key": "checkout", "filters": experiment["feature_flag"]["filters"]},
        "exposure_criteria": {"filterTestAccounts": False},
        "start_date": START.isoformat(),
        "end_date": None,
        **fields,
    }


def test_exposures_are_cumulative(lab: Lab) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    events = [
        exposed(f"p{n}", ("control", "test")[n % 3 == 0], START + timedelta(days=n % 2)) for n in range(120)
    ]
    lab.send([*events, exposed("p0", "control", START + timedelta(days=2))])
    answer = lab.query(exposure_query(experiment))
    days = ["2026-03-08", "2026-03-09", "2026-03-10"]
    assert answer["timeseries"] == [
        {"variant": "control", "days": days, "exposure_counts": [40, 80, 80]},
        {"variant": "test", "days": days, "exposure_counts": [19, 39, 39]},
        {"variant": "$multiple", "days": days, "exposure_counts": [1, 1, 1]},
    ]
    assert answer["total_exposures"] == {"control": 80, "test": 39, "$multiple": 1}
    expected = sample_ratio_mismatch({"control": 80, "test": 39}, {"control": 50, "test": 50})
    assert expected is not None
    assert answer["sample_ratio_mismatch"] == {
        "expected": expected.expected,
        "p_value": expected.p_value,
        "anytime_p_value": expected.anytime_p_value,
        "is_mismatch": expected.is_alarming(ended=False),
    }
    assert answer["bias_risk"] is None, "an even split"
    assert answer["date_range"] == {
        "date_from": "2026-03-08T09:00:00+00:00",
        "date_to": None,
        "explicitDate": True,
    }


def test_first_seen_has_no_multiple(lab: Lab) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send([exposed("ann", "test", START), exposed("ann", "control", START + timedelta(hours=1))])
    criteria = {"filterTestAccounts": False, "multiple_variant_handling": "first_seen"}
    answer = lab.query(exposure_query(experiment, exposure_criteria=criteria))
    assert answer["total_exposures"] == {"control": 0, "test": 1}


def test_uneven_splits_tell_of_bias(lab: Lab) -> None:
    variants = [{"key": "control", "rollout_percentage": 80}, {"key": "test", "rollout_percentage": 20}]
    experiment = lab.experiment(start_date=START.isoformat(), parameters={"feature_flag_variants": variants})
    lab.send([exposed("ann", "test", START), exposed("ann", "control", START), exposed("bob", "test", START)])
    assert lab.query(exposure_query(experiment))["bias_risk"] == {"multiple_variant_percentage": 50.0}
    ended = exposure_query(experiment, end_date=NOW.isoformat())
    assert lab.query(ended)["bias_risk"] is None


def test_drafts_have_no_exposures(lab: Lab) -> None:
    experiment = lab.experiment()
    answer = lab.query(exposure_query(experiment, start_date=None))
    assert answer["timeseries"] == []
    assert answer["total_exposures"] == {}


def test_exposures_by_a_custom_event(lab: Lab) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send(
        [
            Event("ann", START, "saw", {"$feature/checkout": "test", "page": "cart"}),
            Event("bob", START, "saw", {"$feature/checkout": "test", "page": "home"}),
            exposed("cy", "control", START),
        ]
    )
    criteria = {
        "filterTestAccounts": False,
        "exposure_config": {
            "kind": "ExperimentEventExposureConfig",
            "event": "saw",
            "properties": [{"key": "page", "value": "cart", "operator": "exact", "type": "event"}],
        },
    }
    answer = lab.query(exposure_query(experiment, exposure_criteria=criteria))
    assert answer["total_exposures"] == {"control": 0, "test": 1}


def test_flag_properties_are_seen(lab: Lab) -> None:
    path = '/experiments/requires_flag_implementation/?events=[{"id":"purchase"}]'
    lab.send([Event("ann", NOW - timedelta(days=1), "purchase", {"amount": 5})])
    assert lab.ok("GET", path) == {"result": True}
    lab.send([Event("ann", NOW - timedelta(days=8), "purchase", {"$feature/checkout": "test"})])
    assert lab.ok("GET", path) == {"result": True}, "too long ago"
    lab.send([Event("ann", NOW - timedelta(hours=1), "purchase", {"$feature/checkout": "test"})])
    assert lab.ok("GET", path) == {"result": False}


def test_funnel_rows_have_step_counts(lab: Lab) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send([exposed("ann", "control", START), bought("ann", START, 5)])
    answer = lab.query({"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": PURCHASES})
    assert answer["baseline"]["step_counts"] == [1]
    assert answer["variant_results"][0]["step_counts"] is None, "nobody saw it"


def test_what_has_no_effect_on_an_answer_is_told(lab: Lab) -> None:
    experiment = lab.experiment(start_date=START.isoformat(), metrics=[PURCHASES])
    source = {"kind": "EventsNode", "event": "purchase", "math": "sum", "propertes": []}
    counted = {"kind": "ExperimentMetric", "metric_type": "mean", "source": source}
    query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": counted, "mertic": {}}
    told = {each["attr"]: each["code"] for each in lab.query(query)["warnings"]}
    assert told == {
        "query__mertic": "unknown_field",
        "query__metric__source__propertes": "unknown_field",
        "query__metric__source__math_property": "missing_property",
    }
    asked = exposure_query(experiment, exposure_criterea={})
    assert [each["attr"] for each in lab.query(asked)["warnings"]] == ["query__exposure_criterea"]
    del query["mertic"]
    assert "warnings" not in lab.query({**query, "metric": experiment["metrics"][0]})
