"""The endpoints around an experiment (rules 8)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from tests.contract.conftest import Api
from tests.contract.experiments.test_changes import MEAN, START, read
from tests.contract.experiments.test_freezing import called, members
from tests.contract.rules import rule

FUNNEL = {
    "kind": "ExperimentMetric",
    "metric_type": "funnel",
    "series": [{"kind": "EventsNode", "event": "purchase"}],
}


def of_cohort(api: Api) -> dict[str, Any]:
    """A metric of the people of a cohort."""
    cohort = api.ok("POST", "/cohorts/", {"name": "Some", "is_static": True}, status=201)
    condition = {"key": "id", "value": cohort["id"], "type": "cohort", "operator": "in"}
    return MEAN | {"source": {"kind": "EventsNode", "event": "purchase", "properties": [condition]}}


def without_cohort(api: Api, metric: dict[str, Any]) -> None:
    """The cohort was deleted by an earlier version, and the metric can no longer be computed."""
    [condition] = metric["source"]["properties"]
    api.lose_cohort(condition["value"])


def ago(days: float) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).isoformat()


def action(api: Api, event: str = "viewed") -> int:
    made = api.ok("POST", "/actions/", {"name": event, "steps": [{"event": event}]}, status=201)
    number: int = made["id"]
    return number


class TestExposureCohort:
    @staticmethod
    def make(api: Api, experiment: dict[str, Any]) -> dict[str, Any]:
        path = f"/experiments/{experiment['id']}/create_exposure_cohort_for_experiment/"
        made: dict[str, Any] = api.ok("POST", path, {})["cohort"]
        return made

    @staticmethod
    def rule_of(cohort: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = cohort["filters"]["properties"]["values"][0]["values"][0]
        return found

    @rule("8.1.1", "8.1.2")
    def test_the_cohort_and_its_members(self, api: Api) -> None:
        made = api.experiment(start_date="2026-01-02T03:04:05.678901Z")
        api.capture(called("in", "test"), called("also", "control"), called("other", "test", key="other"))
        before = called("before", "test") | {"timestamp": "2025-12-01T00:00:00Z"}
        api.capture(before)
        cohort = self.make(api, made)
        assert (cohort["is_static"], cohort["is_calculating"], cohort["count"]) == (False, True, None)
        assert cohort["experiment_set"] == [made["id"]]
        assert read(api, made)["exposure_cohort"] == cohort["id"]
        path = f"/cohorts/{cohort['id']}/"
        api.until(lambda: api.ok("GET", path)["is_calculating"] is False)
        assert api.ok("GET", path)["count"] == 2
        assert members(api, cohort["id"]) == {"in", "also"}

    def test_a_deleted_cohort_is_no_longer_shown(self, api: Api) -> None:
        made = api.experiment(start_date=START)
        cohort = self.make(api, made)
        path = f"/cohorts/{cohort['id']}/"
        api.ok("PATCH", path, {"deleted": True})
        assert read(api, made)["exposure_cohort"] is None
        assert [each["exposure_cohort"] for each in api.ok("GET", "/experiments/")["results"]] == [None]
        api.ok("PATCH", path, {"deleted": False})
        assert read(api, made)["exposure_cohort"] == cohort["id"]

    @rule("8.1.3")
    def test_refusals(self, api: Api) -> None:
        path = "/experiments/{}/create_exposure_cohort_for_experiment/"
        draft, running = api.experiment("draft"), api.experiment("running", start_date=START)
        error = api.refused("POST", path.format(draft["id"]))
        assert (error["attr"], error["detail"]) == (None, "Experiment does not have a start date")
        first = self.make(api, running)
        error = api.refused("POST", path.format(running["id"]))
        assert error["detail"] == "Experiment already has an exposure cohort"
        assert api.refused("POST", path.format(999999), status=404)
        api.ok("PATCH", f"/cohorts/{first['id']}/", {"deleted": True})
        assert self.make(api, running)["id"] != first["id"]

    @rule("8.1.4")
    def test_what_exposes(self, api: Api) -> None:
        number = action(api)
        plan = {"key": "plan", "value": ["pro"], "operator": "exact", "type": "event"}
        event = {"exposure_config": {"event": "viewed", "properties": [plan]}}
        deed = {"exposure_config": {"kind": "ActionsNode", "id": number}}
        custom = {"events": [{"id": "opened", "properties": [plan]}]}
        custom_action = {"actions": [{"id": str(number)}]}
        cases: list[tuple[dict[str, Any], tuple[Any, str, list[Any]]]] = [
            ({"exposure_criteria": event}, ("viewed", "events", [plan])),
            ({"exposure_criteria": deed}, (number, "actions", [])),
            ({"parameters": {"custom_exposure_filter": custom}, "exposure_criteria": event},
             ("opened", "events", [plan])),
            ({"parameters": {"custom_exposure_filter": custom_action}}, (number, "actions", [])),
        ]  # fmt: skip
        for index, (fields, wanted) in enumerate(cases):
            made = api.experiment(f"flag-{index}", start_date=START, **fields)
            found = self.rule_of(self.make(api, made))
            assert (found["key"], found["event_type"], found["event_filters"]) == wanted, fields

    @rule("8.1.5")
    def test_bad_action(self, api: Api) -> None:
        custom = {"actions": [{"id": "view"}]}
        made = api.experiment(start_date=START, parameters={"custom_exposure_filter": custom})
        path = f"/experiments/{made['id']}/create_exposure_cohort_for_experiment/"
        assert api.refused("POST", path)["detail"] == "Invalid action ID"


class TestDailyResults:
    @rule("8.2.1")
    def test_what_is_required(self, api: Api) -> None:
        path = f"/experiments/{api.experiment(start_date=START)['id']}/timeseries_results/"
        needs_uuid, needs_fingerprint = (
            f"{name} query parameter is required" for name in ("metric_uuid", "fingerprint")
        )
        assert api.refused("GET", path)["detail"] == needs_uuid
        assert api.refused("GET", f"{path}?metric_uuid=&fingerprint=f")["detail"] == needs_uuid
        assert api.refused("GET", f"{path}?metric_uuid=u")["detail"] == needs_fingerprint
        draft = f"/experiments/{api.experiment('draft')['id']}/timeseries_results/"
        error = api.refused("GET", f"{draft}?metric_uuid=u&fingerprint=f")
        assert (error["attr"], error["detail"]) == (None, "Experiment has not been started yet")

    @rule("8.2.2")
    def test_unknown(self, api: Api) -> None:
        made = api.experiment(start_date="2026-01-01T10:00:00Z", end_date="2026-01-03T01:00:00Z")
        path = f"/experiments/{made['id']}/timeseries_results/?metric_uuid=what&fingerprint=ever"
        found = api.ok("GET", path)
        assert list(found) == [
            "experiment_id", "metric_uuid", "status", "timeseries", "errors", "computed_at", "created_at",
            "updated_at", "recalculation_status", "recalculation_created_at",
        ]  # fmt: skip
        assert (found["status"], found["metric_uuid"], found["errors"]) == ("pending", "what", None)
        assert found["timeseries"] == {"2026-01-01": None, "2026-01-02": None, "2026-01-03": None}

    @rule("8.2.3")
    def test_results(self, api: Api) -> None:
        made = api.experiment(start_date=ago(1), metrics=[FUNNEL])
        api.capture(called("a", "control"), called("b", "test"), {"event": "purchase", "distinct_id": "b"})
        metric = made["metrics"][0]
        query = f"metric_uuid={metric['uuid']}&fingerprint={metric['fingerprint']}"
        path = f"/experiments/{made['id']}/timeseries_results/?{query}"
        found = api.until(lambda: (one := api.ok("GET", path))["status"] == "completed" and one)
        assert len(found["timeseries"]) == 2
        for name in ("computed_at", "created_at", "updated_at"):
            assert found[name].endswith("+00:00")
        assert set(found["timeseries"][max(found["timeseries"])]) >= {"baseline", "variant_results"}


class TestRecalculatingDailyResults:
    @rule("8.3.1")
    def test_refusals(self, api: Api) -> None:
        path = f"/experiments/{api.experiment(start_date=START)['id']}/recalculate_timeseries/"
        assert api.refused("POST", path, {"fingerprint": "f"})["detail"] == "metric is required"
        assert api.refused("POST", path, {"metric": MEAN})["detail"] == "fingerprint is required"
        draft = f"/experiments/{api.experiment('draft')['id']}/recalculate_timeseries/"
        error = api.refused("POST", draft, {"metric": MEAN, "fingerprint": "f"})
        assert error["attr"] is None
        assert error["detail"] == "Cannot recalculate timeseries for experiment that hasn't started"

    @rule("8.3.2")
    def test_a_job(self, api: Api) -> None:
        made = api.experiment(start_date=ago(1), metrics=[MEAN])
        metric = made["metrics"][0]
        body = {"metric": metric, "fingerprint": metric["fingerprint"]}
        job = api.ok("POST", f"/experiments/{made['id']}/recalculate_timeseries/", body, status=201)
        assert list(job) == [
            "id", "experiment_id", "metric_uuid", "fingerprint", "status", "created_at",
        ]  # fmt: skip
        assert (job["status"], job["metric_uuid"]) == ("pending", metric["uuid"])
        assert job["created_at"].endswith("+00:00")
        query = f"metric_uuid={metric['uuid']}&fingerprint={metric['fingerprint']}"
        path = f"/experiments/{made['id']}/timeseries_results/?{query}"
        done = api.until(lambda: (one := api.ok("GET", path))["recalculation_status"] is None and one)
        assert done["status"] == "completed"


class TestImplementation:
    PATH = "/experiments/requires_flag_implementation/"

    @rule("8.4.1")
    def test_events_and_actions(self, api: Api) -> None:
        assert api.ok("GET", self.PATH) == {"result": True}
        number = action(api)
        asked = [quote('[{"id": "viewed"}]'), quote(f'[{{"id": {number}}}]')]
        queries = [f"{self.PATH}?events={asked[0]}", f"{self.PATH}?actions={asked[1]}"]
        api.capture({"event": "viewed", "distinct_id": "a", "properties": {"plan": "pro"}})
        assert [api.ok("GET", query)["result"] for query in queries] == [True, True]
        api.capture({"event": "viewed", "distinct_id": "a", "properties": {"$feature/button": "test"}})
        assert [api.ok("GET", query)["result"] for query in queries] == [False, False]

    @rule("8.4.2")
    @pytest.mark.parametrize("name", ["events", "actions"])
    def test_malformed(self, api: Api, name: str) -> None:
        error = api.refused("GET", f"{self.PATH}?{name}=[")
        assert (error["attr"], error["detail"]) == (None, "Properties are unparsable!")


@rule("8.5.1")
def test_stats(api: Api) -> None:
    empty = api.ok("GET", "/experiments/stats/")
    assert empty == {
        "launched_last_30d": 0, "launched_previous_30d": 0, "percent_change": 0.0, "active_experiments": 0,
        "completed_last_30d": 0,
    }  # fmt: skip
    api.experiment("draft")
    running = api.experiment("running", start_date=ago(1))
    assert api.ok("GET", "/experiments/stats/")["percent_change"] == 100.0
    api.ok("POST", f"/experiments/{running['id']}/pause/")
    for number in range(2):
        api.experiment(f"older-{number}", start_date=ago(40), end_date=ago(5))
    api.experiment("archived", start_date=ago(1), archived=True)
    gone = api.experiment("gone", start_date=ago(1))
    api.ok("PATCH", f"/experiments/{gone['id']}/", {"deleted": True})
    assert list(api.ok("GET", "/experiments/stats/").values()) == [1, 2, -50.0, 1, 2]


@rule("8.6.1")
def test_eligible_flags(api: Api) -> None:
    api.ok("POST", "/feature_flags/", {"key": "simple", "filters": {"groups": [{}]}}, status=201)
    for key in ("a", "b", "c"):
        api.experiment(key)
    path = "/experiments/eligible_feature_flags/"
    found = api.ok("GET", f"{path}?order=key&limit=2&offset=1")
    assert (list(found), found["count"]) == (["results", "count"], 3)
    assert [flag["key"] for flag in found["results"]] == ["b", "c"]
    for query in ("limit=x", "offset=1.5"):
        answer = api.call("GET", f"{path}?{query}")
        assert (answer.status_code, answer.json()) == (400, {"error": "Invalid limit or offset"})
    assert api.refused("GET", f"{path}?order=version")["detail"] == "Invalid order field: 'version'"


class TestRecalculatingAllMetrics:
    @staticmethod
    def path(experiment: dict[str, Any], tail: str = "") -> str:
        return f"/experiments/{experiment['id']}/metrics_recalculation/{tail}"

    def finished(self, api: Api, experiment: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
        path = self.path(experiment, f"{job['id']}/")
        over = ("completed", "failed")
        found: dict[str, Any] = api.until(lambda: (one := api.ok("GET", path))["status"] in over and one)
        return found

    @rule("8.7.1")
    def test_asking(self, api: Api) -> None:
        made = api.experiment(start_date=START, metrics=[MEAN])
        job = api.ok("POST", self.path(made), {}, status=201)
        assert list(job) == [
            "id", "experiment_id", "status", "total_metrics", "completed_metrics", "failed_metrics",
            "metric_errors", "trigger", "created_at", "started_at", "completed_at", "query_to", "is_existing",
            "result_source",
        ]  # fmt: skip
        assert (job["status"], job["trigger"], job["total_metrics"]) == ("pending", "manual", 1)
        assert (job["is_existing"], job["result_source"]) == (False, "recalculation")
        draft = api.experiment("draft")
        error = api.refused("POST", self.path(draft), {})
        assert (error["attr"], error["detail"]) == (None, "Experiment has not been started yet")
        error = api.refused("POST", self.path(made), {"trigger": "whim"})
        assert (error["attr"], error["code"]) == ("trigger", "invalid_choice")
        assert api.refused("POST", "/experiments/999999/metrics_recalculation/", {}, status=404)

    @rule("8.7.2", "8.7.3")
    def test_results(self, api: Api) -> None:
        saved = api.ok("POST", "/experiment_saved_metrics/", {"name": "M", "query": FUNNEL}, status=201)
        link = {"id": saved["id"], "metadata": {"type": "secondary"}}
        members = of_cohort(api)
        made = api.experiment(start_date=ago(1), metrics=[MEAN, members], saved_metrics_ids=[link])
        without_cohort(api, members)
        people = [f"p{number}" for number in range(60)]
        api.capture(*(called(person, ("control", "test")[n % 2]) for n, person in enumerate(people)))
        api.capture(*({"event": "purchase", "distinct_id": person} for person in people[::3]))
        job = api.ok("POST", self.path(made), {"trigger": "config_change"}, status=201)
        done = self.finished(api, made, job)
        mean, odd = (metric["uuid"] for metric in made["metrics"])
        assert (done["status"], done["trigger"], done["total_metrics"]) == ("completed", "config_change", 3)
        assert (done["completed_metrics"], done["failed_metrics"]) == (2, 1)
        assert list(done["metric_errors"]) == [odd]
        assert done["query_to"] is not None
        assert done["completed_at"] >= done["started_at"] >= done["created_at"]
        outcomes = {each["metric_uuid"]: each for each in done["results"]}
        assert list(outcomes) == [mean, odd, saved["query"]["uuid"]]
        assert (outcomes[odd]["status"], outcomes[odd]["result"]) == ("failed", None)
        result = outcomes[mean]["result"]
        samples = {
            row["key"]: row["number_of_samples"] for row in (result["baseline"], *result["variant_results"])
        }
        assert samples == {"control": 30, "test": 30}
        assert api.ok("GET", self.path(made, "latest/")) == done

    @rule("8.7.3")
    def test_latest_without_a_job(self, api: Api) -> None:
        draft = api.experiment("draft", metrics=[MEAN])
        answer = api.call("GET", self.path(draft, "latest/"))
        assert (answer.status_code, answer.json()) == (404, {"detail": "No completed recalculation found"})
        made = api.experiment(start_date=ago(1), metrics=[MEAN])
        metric = made["metrics"][0]
        query = f"metric_uuid={metric['uuid']}&fingerprint={metric['fingerprint']}"
        series = f"/experiments/{made['id']}/timeseries_results/?{query}"
        api.until(lambda: api.ok("GET", series)["status"] == "completed")
        found = api.ok("GET", self.path(made, "latest/"))
        assert (found["result_source"], found["id"], found["status"]) == (
            "timeseries_fallback",
            None,
            "completed",
        )
        assert [each["metric_uuid"] for each in found["results"]] == [metric["uuid"]]
        assert found["results"][0]["result"]["baseline"]["key"] == "control"

    @rule("8.7.4")
    @pytest.mark.parametrize("odd", ["nothing", "018f6c1e-7b0a-7000-8000-3f0c9a5b1d22"])
    def test_unknown_jobs(self, api: Api, odd: str) -> None:
        answer = api.call("GET", self.path(api.experiment(), f"{odd}/"))
        assert (answer.status_code, answer.json()) == (404, {"detail": "Recalculation not found"})


class TestRunningTime:
    PATH = "/experiments/calculate_running_time/"

    @rule("8.8.1")
    def test_numbers(self, api: Api) -> None:
        body = {"metric_type": "funnel", "minimum_detectable_effect": 20, "number_of_variants": 2}
        known = api.ok("POST", self.PATH, body | {"baseline_value": 0.1, "exposure_rate_per_day": 1000})
        # N = 16 p (1 - p) / (0.2 p)^2 for each of two variants
        assert known["recommended_sample_size"] == 7200
        assert known["recommended_running_time_days"] == 8
        unknown = api.ok("POST", self.PATH, body)
        assert unknown["recommended_sample_size"] is None
        assert unknown["recommended_running_time_days"] is None
        stats = {"number_of_samples": 1000, "sum": 100}
        measured = api.ok("POST", self.PATH, body | {"baseline_stats": stats})
        assert (measured["baseline_value"], measured["recommended_sample_size"]) == (0.1, 7200)

    @rule("8.8.2")
    def test_refusals(self, api: Api) -> None:
        body = {"metric_type": "funnel", "minimum_detectable_effect": 20}
        for change, attr in (
            ({"metric_type": "odd"}, "metric_type"),
            ({"number_of_variants": 1}, "number_of_variants"),
        ):
            assert api.refused("POST", self.PATH, body | change)["attr"] == attr
