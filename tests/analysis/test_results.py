"""The results of whole experiments: everything in one answer, and the verdict on it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, update
from tests.analysis.events import Event
from tests.analysis.lab import NOW, PURCHASES, REVENUE, Lab, bought, exposed
from tests.embedded import EmbeddedReader

from hoglab.analysis.definitions import query_to
from hoglab.analysis.presentation import without_step_sessions
from hoglab.analysis.query.days import DayGrid
from hoglab.analysis.query.model import Span
from hoglab.analysis.results.exposures import ExposureCounts
from hoglab.analysis.results.gathering import ExperimentResults
from hoglab.analysis.results.health import ExperimentHealth
from hoglab.analysis.results.plan import plan_of
from hoglab.statistics.verdict import Plan
from hoglab.storage.database.tables import feature_flag
from hoglab.storage.event_store import QueryTimeoutError

START = NOW - timedelta(days=9)
FREQUENTIST = {"method": "frequentist"}
SEQUENTIAL = {
    "method": "frequentist",
    "frequentist": {"sequential_testing_enabled": True, "sequential_tuning_parameter": 1000},
}
Group = tuple[str, int, int]


def crowd(*groups: Group, at: datetime = START, name: str = "p") -> Iterator[Event]:
    """For each variant so many people, of whom so many buy."""
    for variant, people, buyers in groups:
        for number in range(people):
            person = f"{name}-{variant}-{number}"
            yield exposed(person, variant, at)
            if number < buyers:
                yield bought(person, at + timedelta(minutes=1), 5 + number % 9)


def running(lab: Lab, **fields: Any) -> dict[str, Any]:
    given = {"start_date": START.isoformat(), "stats_config": FREQUENTIST, "metrics": [PURCHASES], **fields}
    return lab.experiment(**given)


def results(lab: Lab, experiment: dict[str, Any], **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = lab.ok("GET", f"/experiments/{experiment['id']}/results/", params=query)
    return found


def planned(people: int | None = None, days: int | None = None) -> dict[str, Any]:
    named = {"recommended_sample_size": people, "recommended_running_time": days}
    return {"running_time_calculation": {key: value for key, value in named.items() if value is not None}}


# -- one answer ----------------------------------------------------------------------------------------------------


def test_everything_is_in_one_answer(lab: Lab) -> None:
    saved = lab.ok(
        "POST", "/experiment_saved_metrics/", {"name": "Saved", "query": REVENUE | {"name": None}}, status=201
    )
    experiment = running(
        lab,
        metrics=[PURCHASES],
        metrics_secondary=[REVENUE | {"goal": "decrease"}],
        saved_metrics_ids=[{"id": saved["id"], "metadata": {"type": "secondary"}}],
        **planned(people=200),
    )
    lab.send(crowd(("control", 100, 20), ("test", 100, 50)))
    found = results(lab, experiment)
    assert (found["status"], found["pending"]) == ("complete", [])
    assert [(each["name"], each["is_primary"], each["status"]) for each in found["metrics"]] == [
        ("Purchase rate", True, "completed"),
        ("Revenue", False, "completed"),
        ("Saved", False, "completed"),
    ]
    assert [each["value_label"] for each in found["metrics"]] == ["rate", "mean sum", "mean sum"]
    assert [each["goal"] for each in found["metrics"]] == ["increase", "decrease", "increase"]
    assert found["metrics"][2]["saved_metric_id"] == saved["id"]
    # Every part is what its own address answers.
    for each, metric in zip(
        found["metrics"], [*experiment["metrics"], *experiment["metrics_secondary"]], strict=False
    ):
        query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": metric}
        answer = without_step_sessions(lab.query(query))
        assert {name: answer[name] for name in each["result"]} == each["result"]
        series = lab.ok(
            "GET",
            f"/experiments/{experiment['id']}/timeseries_results/",
            params={"metric_uuid": each["uuid"], "fingerprint": each["fingerprint"]},
        )
        assert [*series["timeseries"].values()][-1] == each["result"]
    exposures = lab.query({"kind": "ExperimentExposureQuery", "experiment_id": experiment["id"]})
    assert {name: exposures[name] for name in found["exposures"]} == found["exposures"]
    health = lab.ok("GET", f"/experiments/{experiment['id']}/health/")
    assert found["health"] == {name: health[name] for name in ("status", "findings")}
    assert found["statistics"] == {
        "method": "frequentist",
        "is_sequential": False,
        "design": None,
        "level": 0.95,
        "difference_type": "relative",
        "correction": "none",
        "cuped": False,
        "posthog_numbers": False,
        "baseline": "control",
    }
    assert found["verdict"]["state"] == "better", "dearer on the secondary metric, which decides nothing"


def test_metrics_stand_in_the_order_in_which_clients_show_them(lab: Lab) -> None:
    experiment = running(lab, metrics=[PURCHASES, REVENUE])
    uuids = [metric["uuid"] for metric in experiment["metrics"]]
    lab.ok("PATCH", f"/experiments/{experiment['id']}/", {"primary_metrics_ordered_uuids": uuids[::-1]})
    assert [each["uuid"] for each in results(lab, experiment)["metrics"]] == uuids[::-1]


def test_a_draft_has_no_results_and_no_verdict(lab: Lab) -> None:
    found = results(lab, lab.experiment(metrics=[PURCHASES]))
    assert (found["status"], found["exposures"], found["verdict"]) == ("not_started", None, None)
    assert [each["status"] for each in found["metrics"]] == ["not_started"]
    assert [each["code"] for each in found["health"]["findings"]] == ["not_started"]


def test_an_unknown_experiment_is_not_found(lab: Lab) -> None:
    lab.ok("GET", "/experiments/99/results/", status=404)
    lab.ok("GET", f"/experiments/{running(lab)['id']}/results/", params={"refresh": "perhaps"}, status=400)


def test_stored_results_are_given_until_newer_ones_are_asked_for(lab: Lab) -> None:
    experiment = running(lab)
    lab.send(crowd(("control", 100, 20), ("test", 100, 50)))
    assert results(lab, experiment)["metrics"][0]["result"]["baseline"]["sum"] == 20
    lab.send([bought("p-control-99", NOW - timedelta(hours=1), 5)])
    stored = results(lab, experiment)["metrics"][0]
    assert stored["result"]["baseline"]["sum"] == 20, "not a minute old"
    assert results(lab, experiment, refresh="true")["metrics"][0]["result"]["baseline"]["sum"] == 21
    lab.send([bought("p-control-98", NOW - timedelta(hours=1), 5)])
    lab.now += timedelta(seconds=61)
    assert results(lab, experiment)["metrics"][0]["result"]["baseline"]["sum"] == 22


def test_nothing_is_computed_that_is_there(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = running(lab, metrics=[PURCHASES, REVENUE])
    lab.send(crowd(("control", 100, 20), ("test", 100, 50)))
    first = results(lab, experiment)
    computed: list[object] = []
    monkeypatch.setattr(lab.service.computer, "points", lambda *asked: computed.append(asked))
    monkeypatch.setattr(lab.service.computer, "exposures", lambda *asked: computed.append(asked))
    assert results(lab, experiment) == results(lab, experiment, refresh="true") == first
    assert computed == []


def test_an_unchanged_answer_need_not_be_sent_again(lab: Lab) -> None:
    experiment = running(lab)
    lab.send(crowd(("control", 100, 20), ("test", 100, 50)))
    path = f"/experiments/{experiment['id']}/results/"
    tag = lab.call("GET", path).headers["etag"]
    assert lab.call("GET", path, headers={"If-None-Match": tag}).status_code == 304
    lab.send([bought("p-control-99", NOW - timedelta(hours=1), 5)])
    newer = lab.call("GET", path, headers={"If-None-Match": tag}, params={"refresh": "1"})
    assert newer.status_code == 200
    assert newer.headers["etag"] != tag


def whole(lab: Lab, budget_s: float | None) -> ExperimentResults:
    exposures = ExposureCounts(lab.service)
    return ExperimentResults(
        lab.service, exposures, ExperimentHealth(lab.service, exposures, lab.events), budget_s=budget_s
    )


def test_what_is_not_there_in_time_is_named_and_goes_on(lab: Lab) -> None:
    experiment = running(lab, metrics=[PURCHASES, REVENUE])
    lab.send(crowd(("control", 100, 20), ("test", 100, 50)))
    project = lab.accounts.project(1)
    assert project is not None
    part = whole(lab, 0).read(project, experiment["id"])
    uuids = [metric["uuid"] for metric in experiment["metrics"]]
    assert part["status"] == "partial"
    assert set(part["pending"]) <= {"exposures", "health", *uuids}
    assert part["pending"]
    assert part["verdict"] is None, "what is missing might turn it around"
    assert {each["uuid"] for each in part["metrics"] if each["status"] == "pending"} <= set(part["pending"])
    rest = whole(lab, 60).read(project, experiment["id"])
    assert (rest["status"], rest["pending"]) == ("complete", [])
    assert rest["verdict"] is not None


def test_an_older_result_stands_beside_what_is_pending(lab: Lab) -> None:
    experiment = running(lab)
    lab.send(crowd(("control", 100, 20), ("test", 100, 50)))
    results(lab, experiment)
    lab.send([bought("p-control-99", NOW - timedelta(hours=1), 5)])
    project = lab.accounts.project(1)
    assert project is not None
    (metric,) = whole(lab, 0).read(project, experiment["id"], refresh=True)["metrics"]
    assert metric["status"] == "pending"
    assert metric["result"]["baseline"]["sum"] == 20
    whole(lab, 60).read(
        project, experiment["id"], refresh=True
    )  # what goes on has to end before the engine does


def test_a_metric_that_fails_leaves_the_others(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = running(lab, metrics=[PURCHASES, REVENUE])
    lab.send(crowd(("control", 100, 20), ("test", 100, 50)))
    results(lab, experiment)
    execute = EmbeddedReader.execute

    def slow(self: EmbeddedReader, statement: str, *rest: Any, **options: Any) -> Any:
        if "amount" in repr(rest) + repr(options) + statement:
            raise QueryTimeoutError("slow")
        return execute(self, statement, *rest, **options)

    lab.send([bought("p-control-99", NOW - timedelta(hours=1), 5)])
    monkeypatch.setattr(EmbeddedReader, "execute", slow)
    found = results(lab, experiment, refresh="true")
    rate, revenue = found["metrics"]
    assert (rate["status"], rate["result"]["baseline"]["sum"], rate["error"]) == ("completed", 21, None)
    assert revenue["error"] == "Query exceeded the time limit of 30 s"
    assert revenue["result"] is not None, "an older one"
    assert found["status"] == "complete"


def test_exposures_that_cannot_be_told_are_explained(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = running(lab)
    lab.send(crowd(("control", 100, 20), ("test", 100, 50)))

    def slow(*_: object, **__: object) -> Any:
        raise QueryTimeoutError("slow")

    monkeypatch.setattr(EmbeddedReader, "execute", slow)
    found = results(lab, experiment)
    assert found["exposures_error"] == "Query exceeded the time limit of 30 s"
    assert (found["status"], found["pending"], found["verdict"]) == ("partial", ["health"], None)
    assert found["metrics"][0]["status"] == "failed"


def test_a_metric_of_the_former_engine_is_named(lab: Lab) -> None:
    experiment = lab.store_metrics(running(lab), [{"kind": "ExperimentTrendsQuery", "count_query": {}}])
    found = results(lab, experiment)
    (metric,) = found["metrics"]
    assert (metric["status"], metric["result"], metric["value_label"]) == ("unsupported", None, "value")
    assert "ExperimentTrendsQuery" in metric["error"]
    assert (found["status"], found["verdict"]) == ("complete", None)


def test_people_of_a_holdout_are_counted_beside_the_variants(lab: Lab) -> None:
    experiment = running(lab, **planned(people=200))
    flag = experiment["feature_flag"]
    filters = flag["filters"] | {"holdout": {"id": 7, "exclusion_percentage": 10}}
    with lab.database.write() as tx:
        tx.execute(update(feature_flag).where(feature_flag.c.id == flag["id"]).values(filters=filters))
    lab.send(crowd(("control", 100, 20), ("test", 100, 25), ("holdout-7", 30, 3)))
    found = results(lab, experiment)
    exposures = found["exposures"]
    assert exposures["total_exposures"] == {"control": 100, "test": 100}
    assert exposures["holdout"]["key"] == "holdout-7"
    assert exposures["holdout"]["total"] == 30
    assert exposures["holdout"]["days"] == exposures["timeseries"][0]["days"]
    assert exposures["holdout"]["exposure_counts"] == [30] * 10
    assert found["verdict"]["numbers"]["people"] == 200
    assert exposures["sample_ratio_mismatch"]["p_value"] == 1
    asked = lab.query({"kind": "ExperimentExposureQuery", "feature_flag": {"key": "checkout"},
                       "holdout": {"id": 8}, "experiment_id": experiment["id"]})  # fmt: skip
    assert asked["holdout"]["total"] == 0


def test_an_experiment_without_a_holdout_has_none(lab: Lab) -> None:
    assert results(lab, running(lab))["exposures"]["holdout"] is None


# -- the verdict ---------------------------------------------------------------------------------------------------


def verdict(lab: Lab, experiment: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = results(lab, experiment, refresh="true")["verdict"]
    return found


def codes(found: dict[str, Any]) -> set[str]:
    return {reason["code"] for reason in found["reasons"]}


def test_a_sample_ratio_mismatch_withholds_every_decision(lab: Lab) -> None:
    experiment = running(lab, **planned(people=200))
    lab.send(crowd(("control", 360, 60), ("test", 200, 120)))
    found = results(lab, experiment)
    assert found["metrics"][0]["result"]["variant_results"][0]["significant"] is True, "the numbers stay"
    said = found["verdict"]
    assert (said["state"], said["withholds_decisions"]) == ("invalid", True)
    assert said["headline"].startswith("Do not decide. The variants have not got the shares")
    assert "(p < 0.0001)" in said["headline"]
    assert said["next_action"]["code"] == "fix_assignment"
    assert [each["decision"] for metric in said["metrics"] for each in metric["variants"]] == ["withheld"]
    assert codes(said) == {"sample_ratio_mismatch"}


@pytest.mark.parametrize("config", [FREQUENTIST, {"method": "bayesian"}])
def test_a_method_of_a_single_look_waits_for_its_planned_end(lab: Lab, config: dict[str, Any]) -> None:
    experiment = running(lab, stats_config=config, **planned(people=400, days=12))
    lab.send(crowd(("control", 100, 10), ("test", 100, 80)))
    early = verdict(lab, experiment)
    assert (early["state"], early["reads_at_any_time"]) == ("running", False)
    assert early["headline"] == "Running for 9 of about 18 days, with 200 of 400 people."
    numbers = early["numbers"]
    assert (numbers["people"], numbers["people_needed"], numbers["people_remaining"]) == (200, 400, 200)
    assert (numbers["days"], numbers["plan_source"]) == (9, "running_time_calculation")
    assert [each["decision"] for metric in early["metrics"] for each in metric["variants"]] == ["early"]
    lab.ok("POST", f"/experiments/{experiment['id']}/end/")
    lab.now += timedelta(minutes=1)
    stopped = verdict(lab, experiment)
    assert stopped["state"] == "inconclusive"
    assert "stopped_early" in codes(stopped)


def test_it_is_decided_once_by_the_numbers_of_the_planned_end(lab: Lab) -> None:
    experiment = running(lab, **planned(people=200))
    lab.send(crowd(("control", 60, 6), ("test", 60, 9), at=START + timedelta(hours=1)))
    # On the third day the size is reached, and test is better; later it is not any more.
    lab.send(crowd(("control", 60, 6), ("test", 60, 40), at=START + timedelta(days=2, hours=1), name="q"))
    lab.send(crowd(("control", 100, 90), ("test", 100, 10), at=START + timedelta(days=5), name="r"))
    found = results(lab, experiment)
    said = found["verdict"]
    assert (said["state"], said["as_of"]) == ("better", "2026-03-03")
    assert "decided_at_planned_end" in codes(said)
    (decided,) = said["metrics"][0]["variants"]
    assert decided["effect"] == pytest.approx(49 / 12 - 1)
    (row,) = found["metrics"][0]["result"]["variant_results"]
    assert sum(row["confidence_interval"]) < 0, "the newest numbers are others"
    assert said["numbers"]["people"] == 240
    lab.now += timedelta(days=20)
    assert verdict(lab, experiment)["headline"] == said["headline"]


def test_the_day_on_which_the_size_is_reached_ends_first(lab: Lab) -> None:
    experiment = running(lab, start_date=(NOW - timedelta(hours=5)).isoformat(), **planned(people=200))
    lab.send(crowd(("control", 100, 10), ("test", 100, 80), at=NOW - timedelta(hours=4)))
    assert verdict(lab, experiment)["state"] == "running"
    lab.now += timedelta(days=1)
    assert verdict(lab, experiment)["state"] == "better"


def test_a_sequential_method_decides_at_any_time(lab: Lab) -> None:
    experiment = running(lab, stats_config=SEQUENTIAL, **planned(people=100_000))
    lab.send(crowd(("control", 200, 20), ("test", 200, 120)))
    found = verdict(lab, experiment)
    assert (found["state"], found["reads_at_any_time"]) == ("better", True)
    assert found["next_action"] == {"code": "ship_variant", "text": "Ship “test”.", "variant": "test"}
    assert found["as_of"] is None


def test_without_a_written_plan_the_own_variance_says_how_long(lab: Lab) -> None:
    experiment = running(lab)
    lab.send(crowd(("control", 200, 40), ("test", 200, 44)))
    numbers = verdict(lab, experiment)["numbers"]
    assert numbers["plan_source"] == "default"
    assert 9000 < numbers["people_needed"] < 20_000, "for a change of 10 %"
    lab.now += timedelta(days=10)
    lab.ok("PATCH", f"/experiments/{experiment['id']}/",
           {"running_time_calculation": {"minimum_detectable_effect": 90}})  # fmt: skip
    found = verdict(lab, experiment)
    assert found["numbers"]["people_needed"] < 400
    assert found["numbers"]["plan_source"] == "planner"
    assert found["state"] == "inconclusive"
    assert found["numbers"]["largest_difference"] == max(
        abs(bound) for bound in found["metrics"][0]["variants"][0]["interval"]
    )
    assert found["as_of"] == "2026-03-15", "two whole weeks first"


def test_the_effect_of_a_plan_is_the_experiments_or_the_projects(lab: Lab) -> None:
    project = lab.accounts.project(1)
    assert project is not None
    experiment = running(lab)
    assert plan_of(lab.service.plan_of(project, experiment["id"])) == Plan()
    lab.accounts.update_experiment_defaults(1, {"default_minimum_detectable_effect": 10})
    project = lab.accounts.project(1)
    assert project is not None
    assert plan_of(lab.service.plan_of(project, experiment["id"])) == Plan(effect=0.1)


def test_primary_metrics_share_one_level_with_and_without_a_correction(lab: Lab) -> None:
    def experiment(correction: str) -> dict[str, Any]:
        config = FREQUENTIST | {"multiple_testing_correction": correction}
        metrics = [PURCHASES, *(REVENUE | {"name": f"Revenue {n}", "source": other(n)} for n in range(4))]
        return running(lab, key=f"flag-{correction}", stats_config=config, metrics=metrics, **planned(days=2))

    def other(number: int) -> dict[str, Any]:
        return {"kind": "EventsNode", "event": f"other {number}"}

    for correction in ("none", "bonferroni"):
        made = experiment(correction)
        events = []
        for variant, buyers in (("control", 20), ("test", 33)):
            for number in range(100):
                person = f"{correction}-{variant}-{number}"
                events.append(exposed(person, variant, START, f"flag-{correction}"))
                if number < buyers:
                    events.append(bought(person, START + timedelta(minutes=1), 5))
                events += [
                    Event(person, START + timedelta(minutes=1), f"other {n}") for n in range(4) if number % 2
                ]
        lab.send(events)
        found = verdict(lab, made)
        rows = [
            row for metric in results(lab, made)["metrics"] for row in metric["result"]["variant_results"]
        ]
        assert rows[0]["significant"] is True
        assert found["state"] == "inconclusive", "five metrics share one level, whatever correction is shown"
        assert "error_rates" in codes(found)


def test_variants_of_a_flag_without_people_are_no_winners(lab: Lab) -> None:
    """Nothing is known of anybody: health says so, and the verdict with it."""
    found = verdict(lab, running(lab))
    assert (found["state"], found["next_action"]["code"]) == ("invalid", "fix_exposures")
    assert found["numbers"]["people"] == 0


def test_a_secondary_metric_that_cannot_be_computed_is_withheld_alone(lab: Lab) -> None:
    """The experiment is judged by the others; where it is a primary metric nothing is decided."""
    lost_cohort = {"key": "id", "type": "cohort", "operator": "in", "value": 77}
    lost = {**PURCHASES, "name": "Of members"}
    lost["series"] = [{**PURCHASES["series"][0], "properties": [lost_cohort]}]
    lab.send(crowd(("control", 100, 20), ("test", 100, 80)))
    experiment = lab.store_metrics(running(lab, stats_config=SEQUENTIAL), [lost], field="metrics_secondary")
    found = verdict(lab, experiment)
    assert (found["state"], found["withholds_decisions"]) == ("better", False)
    decided = {metric["name"]: metric["variants"][0]["decision"] for metric in found["metrics"]}
    assert decided == {"Purchase rate": "better", "Of members": "withheld"}
    (reason,) = (each for each in found["reasons"] if each["code"] == "metric_not_computable")
    assert reason["metric_uuid"] == experiment["metrics_secondary"][0]["uuid"]
    lab.store_metrics(experiment, [PURCHASES, lost])
    found = verdict(lab, experiment)
    assert (found["state"], found["withholds_decisions"]) == ("invalid", True)


def test_an_experiment_without_metrics_needs_one(lab: Lab) -> None:
    experiment = running(lab, metrics=[])
    lab.send(crowd(("control", 100, 20), ("test", 100, 25)))
    found = verdict(lab, experiment)
    assert (found["state"], found["next_action"]["code"]) == ("running", "add_metric")
    assert "no_primary_metric" in codes(found)


# -- queries that name the experiment alone ------------------------------------------------------------------------


def test_an_experiment_alone_is_enough_of_a_query(lab: Lab) -> None:
    experiment = running(
        lab,
        metrics=[REVENUE, PURCHASES],
        end_date=(NOW - timedelta(days=2)).isoformat(),
        exposure_criteria={"filterTestAccounts": False, "multiple_variant_handling": "first_seen"},
    )
    lab.send(crowd(("control", 100, 20), ("test", 100, 25)))
    lab.send(
        [
            exposed("late", "test", NOW - timedelta(days=1)),
            exposed("p-control-1", "test", NOW - timedelta(days=3)),
        ]
    )
    alone = {"experiment_id": experiment["id"]}
    exposures = lab.query({"kind": "ExperimentExposureQuery", **alone})
    assert exposures["total_exposures"] == {"control": 100, "test": 100}
    full = {
        "experiment_name": experiment["name"],
        "feature_flag": experiment["feature_flag"],
        "exposure_criteria": experiment["exposure_criteria"],
        "holdout": None,
        "start_date": experiment["start_date"],
        "end_date": experiment["end_date"],
    }
    assert (
        lab.query({"kind": "ExperimentExposureQuery", **alone, **full})["cache_key"] == exposures["cache_key"]
    )
    first, second = experiment["metrics"]
    asked = {"kind": "ExperimentQuery", **alone}
    whole = lab.query({**asked, "metric": first})
    for name in ("baseline", "variant_results"):
        assert lab.query(asked)[name] == whole[name]
    for named in ({"metric_uuid": second["uuid"]}, {"metric": {"uuid": second["uuid"]}}):
        answer = lab.query({**asked, **named})
        assert answer["baseline"]["step_counts"] is not None, "the funnel"
        assert not answer.get("warnings")
    ordered = {"primary_metrics_ordered_uuids": [second["uuid"], first["uuid"]]}
    lab.ok("PATCH", f"/experiments/{experiment['id']}/", ordered)
    assert lab.query(asked)["baseline"]["step_counts"] is not None, "the first in the order"


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        (
            {"metric": {"metric_type": "mystery"}},
            ["'mystery'", "mean, funnel, ratio, retention and quantile"],
        ),
        (
            {"metric": {"kind": "ExperimentMetric"}},
            ["metric_type", "mean, funnel, ratio, retention and quantile"],
        ),
        ({"metric": "revenue"}, ["metric must be an object"]),
        ({"metric_uuid": "nope"}, ["no metric with uuid nope", "(Purchase rate)"]),
    ],
)
def test_a_metric_that_there_is_not_is_answered_with_those_there_are(
    lab: Lab, fields: dict[str, Any], parts: list[str]
) -> None:
    experiment = running(lab)
    answer = lab.query({"kind": "ExperimentQuery", "experiment_id": experiment["id"], **fields}, status=400)
    assert all(part in answer["detail"] for part in parts), answer


def test_an_experiment_without_a_primary_metric_asks_for_one(lab: Lab) -> None:
    experiment = running(lab, metrics=[], metrics_secondary=[PURCHASES])
    answer = lab.query({"kind": "ExperimentQuery", "experiment_id": experiment["id"]}, status=400)
    assert answer["detail"] == "metric is required: the experiment has no primary metric"


# -- years without events ------------------------------------------------------------------------------------------


class CountingDate(date):
    """A date that counts how often another one is computed from it."""

    additions = 0

    def __add__(self, other: timedelta) -> date:
        type(self).additions += 1
        return date.fromordinal(self.toordinal() + other.days)


def test_the_end_of_a_day_is_found_without_going_through_the_others() -> None:
    days = 2_000
    start = datetime(2020, 1, 1, tzinfo=UTC)
    grid = DayGrid(UTC, CountingDate(2020, 1, 1), days)
    span = Span(start, start + timedelta(days=days), start + timedelta(days=days), grid)
    ends = [query_to(span, number) for number in range(days - 1)]
    assert ends == [start + timedelta(days=number + 1) for number in range(days - 1)]
    assert CountingDate.additions <= days


def test_years_without_events_take_no_more_statements_than_days(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    execute, run = EmbeddedReader.execute, Connection.execute

    def noted(self: EmbeddedReader, sql: str, *arguments: Any, **more: Any) -> Any:
        asked.append(sql)
        return execute(self, sql, *arguments, **more)

    def noted_run(self: Connection, statement: Any, *arguments: Any, **more: Any) -> Any:
        asked.append(str(statement))
        return run(self, statement, *arguments, **more)

    monkeypatch.setattr(EmbeddedReader, "execute", noted)
    monkeypatch.setattr(Connection, "execute", noted_run)
    counts = {}
    for days in (20, 1_000):
        experiment = running(
            lab, name=f"{days}", feature_flag_key=f"f-{days}", start_date=f"{NOW - timedelta(days=days)}"
        )
        asked.clear()
        assert len(results(lab, experiment)["metrics"]) == 1
        counts[days] = len(asked)
    assert counts[1_000] <= 2 * counts[20]
