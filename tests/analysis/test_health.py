"""The health of experiments: each danger is named, and a healthy one has none."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from tests.analysis.events import Event
from tests.analysis.lab import NOW, PURCHASES, REVENUE, Lab, bought, exposed
from tests.embedded import EmbeddedReader

from hoglab.accounts import activity
from hoglab.storage.database.tables import feature_flag, project
from hoglab.storage.event_store import QueryTimeoutError

START = NOW - timedelta(days=2)


def crowd(variants: dict[str, int], at: datetime = START + timedelta(hours=1)) -> list[Event]:
    return [
        exposed(f"{variant}-{number}", variant, at)
        for variant, count in variants.items()
        for number in range(count)
    ]


def running(lab: Lab, **fields: Any) -> dict[str, Any]:
    return lab.experiment(**{"start_date": START.isoformat(), "metrics": [PURCHASES], **fields})


def health(lab: Lab, experiment: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = lab.ok("GET", f"/experiments/{experiment['id']}/health/")
    return found


def finding(lab: Lab, experiment: dict[str, Any], code: str) -> dict[str, Any]:
    found = {one["code"]: one for one in health(lab, experiment)["findings"]}
    assert code in found, found
    one: dict[str, Any] = found[code]
    assert one["message"].endswith(".")
    assert one["advice"].endswith(".")
    return one


def set_filters(lab: Lab, experiment: dict[str, Any], at: datetime, **changes: Any) -> None:
    """Edit the flag the way its own service does: the row and the entry of the log."""
    flag = experiment["feature_flag"]
    after = {**flag["filters"], **changes}
    with lab.database.write() as tx:
        tx.execute(update(feature_flag).where(feature_flag.c.id == flag["id"]).values(filters=after))
        change = activity.change("FeatureFlag", "filters", flag["filters"], after)
        detail = {"name": flag["key"], "changes": [change]}
        activity.record(tx, 1, 1, "updated", "FeatureFlag", flag["id"], detail, now=at)


def test_a_healthy_experiment_has_no_findings(lab: Lab) -> None:
    experiment = running(lab)
    lab.send([*crowd({"control": 100, "test": 100}), bought("test-1", START + timedelta(hours=2), 5)])
    assert health(lab, experiment) == {
        "experiment_id": experiment["id"],
        "status": "healthy",
        "checked_at": "2026-03-10T12:00:00Z",
        "findings": [],
    }


def test_a_draft_is_only_told_that_it_has_not_started(lab: Lab) -> None:
    answer = health(lab, lab.experiment())
    assert [one["code"] for one in answer["findings"]] == ["not_started"]
    assert answer["status"] == "healthy"


def test_no_exposures(lab: Lab) -> None:
    experiment = running(lab)
    assert health(lab, experiment)["status"] == "critical"
    assert "$feature_flag_called" in finding(lab, experiment, "no_exposures")["message"]


def test_a_young_experiment_is_given_time(lab: Lab) -> None:
    experiment = running(lab, start_date=(NOW - timedelta(minutes=59)).isoformat())
    assert health(lab, experiment)["findings"] == []
    lab.now += timedelta(minutes=2)
    assert [one["code"] for one in health(lab, experiment)["findings"]] == [
        "no_exposures",
        "metric_without_events",
    ]


def test_a_variant_nobody_sees(lab: Lab) -> None:
    experiment = running(lab)
    lab.send(crowd({"control": 20}))
    assert finding(lab, experiment, "variant_without_exposures")["details"] == {"variants": ["test"]}


def test_sample_ratio_mismatch(lab: Lab) -> None:
    experiment = running(lab)
    lab.send(crowd({"control": 320, "test": 200}))
    found = finding(lab, experiment, "sample_ratio_mismatch")
    assert found["severity"] == "critical"
    assert found["details"]["exposures"] == {"control": 320, "test": 200}
    assert found["details"]["p_value"] < found["details"]["anytime_p_value"] < 0.001
    assert "(p = 0.0" in found["message"] or "(p < 0.0" in found["message"]


def test_a_mismatch_of_a_single_look_alarms_at_the_end_only(lab: Lab) -> None:
    """Daily looks find p < 0.001 in one of a hundred healthy experiments: while one looks, more has to be seen."""
    experiment = running(lab)
    lab.send(crowd({"control": 240, "test": 165}))
    shown = lab.query({"kind": "ExperimentExposureQuery", "experiment_id": experiment["id"]})
    mismatch = shown["sample_ratio_mismatch"]
    assert mismatch["p_value"] < 0.001 < mismatch["anytime_p_value"]
    assert mismatch["is_mismatch"] is False
    assert health(lab, experiment)["status"] != "critical"
    lab.ok("POST", f"/experiments/{experiment['id']}/end/")
    lab.now += timedelta(minutes=5)
    assert finding(lab, experiment, "sample_ratio_mismatch")["details"]["p_value"] == mismatch["p_value"]


def test_a_plan_that_is_too_small_for_its_own_effect(lab: Lab) -> None:
    """The calculator guesses how much revenue varies; what was measured says otherwise."""
    plan = {"recommended_sample_size": 300, "minimum_detectable_effect": 10}
    experiment = running(lab, metrics=[REVENUE], running_time_calculation=plan)
    lab.send(crowd({"control": 150, "test": 150}))
    lab.send(
        bought(f"{variant}-{number}", START + timedelta(hours=2), 10 + number)
        for variant in ("control", "test")
        for number in range(0, 150, 5)
    )
    lab.series(experiment)
    found = finding(lab, experiment, "underpowered_plan")
    assert found["severity"] == "warning"
    details = found["details"]
    assert details["metric_uuid"] == experiment["metrics"][0]["uuid"]
    assert (details["people_planned"], details["effect"]) == (300, 0.1)
    assert details["power"] < 0.5
    assert details["people_needed"] > 3000
    assert f"takes {details['people_needed']:,} people" in found["message"]
    enough = {**plan, "recommended_sample_size": details["people_needed"]}
    lab.ok("PATCH", f"/experiments/{experiment['id']}/", {"running_time_calculation": enough})
    codes = {each["code"] for each in health(lab, experiment)["findings"]}
    assert "underpowered_plan" not in codes


def test_people_with_several_variants(lab: Lab) -> None:
    shares = [{"key": "control", "split_percent": 90}, {"key": "test", "split_percent": 10}]
    experiment = running(lab, parameters={"feature_flag_variants": shares})
    lab.send(
        [
            *crowd({"control": 900, "test": 100}),
            *(exposed(f"control-{n}", "test", START + timedelta(hours=2)) for n in range(30)),
        ]
    )
    assert finding(lab, experiment, "multiple_variants")["details"] == {"people": 30}


def test_the_flag_is_off(lab: Lab) -> None:
    experiment = running(lab)
    lab.ok("POST", f"/experiments/{experiment['id']}/pause/")
    assert finding(lab, experiment, "flag_inactive")["severity"] == "critical"


def test_the_flag_reaches_nobody(lab: Lab) -> None:
    experiment = running(lab)
    set_filters(lab, experiment, START, groups=[{"properties": [], "rollout_percentage": 0}])
    finding(lab, experiment, "flag_reaches_nobody")


def test_the_flag_was_edited_mid_run(lab: Lab) -> None:
    experiment = running(lab)
    shares = [{"key": "control", "rollout_percentage": 20}, {"key": "test", "rollout_percentage": 80}]
    set_filters(lab, experiment, NOW - timedelta(hours=3), multivariate={"variants": shares})
    found = finding(lab, experiment, "flag_edited")
    assert found["details"]["changes"] == [
        {"at": "2026-03-10T09:00:00Z", "by": "owner@localhost", "fields": ["multivariate"]}
    ]


def test_edits_that_move_nobody_do_not_count(lab: Lab) -> None:
    experiment = running(lab)
    variants = experiment["feature_flag"]["filters"]["multivariate"]["variants"]
    renamed = [{**variant, "name": "Other name"} for variant in variants]
    set_filters(lab, experiment, NOW, multivariate={"variants": renamed})
    moved = [{**variant, "rollout_percentage": 50} for variant in variants]
    set_filters(lab, experiment, START - timedelta(hours=1), multivariate={"variants": moved[::-1]})
    codes = [one["code"] for one in health(lab, experiment)["findings"]]
    assert "flag_edited" not in codes


def test_a_metric_whose_event_never_came(lab: Lab) -> None:
    experiment = running(lab)
    lab.send(crowd({"control": 100, "test": 100}))
    found = finding(lab, experiment, "metric_without_events")
    assert found["details"] == {"metric_uuid": experiment["metrics"][0]["uuid"], "events": ["purchase"]}


LOST = {
    **PURCHASES,
    "name": "Of members",
    "series": [
        {
            "kind": "EventsNode",
            "event": "purchase",
            "properties": [{"key": "id", "type": "cohort", "operator": "in", "value": 77}],
        }
    ],
}


def test_a_metric_that_cannot_be_computed(lab: Lab) -> None:
    experiment = lab.store_metrics(running(lab), [PURCHASES, LOST])
    lab.send([*crowd({"control": 100, "test": 100}), bought("test-1", START + timedelta(hours=2), 5)])
    for _ in range(2):  # before anybody computed it, and after it failed
        [found] = health(lab, experiment)["findings"]
        assert (found["code"], found["severity"]) == ("metric_not_computable", "critical")
        assert found["message"] == (
            "The metric “Of members” cannot be computed: series[0]: id: cohort 77 does not exist."
        )
        uuid = experiment["metrics"][1]["uuid"]
        assert found["details"] == {
            "metric_uuid": uuid,
            "reason": "series[0]: id: cohort 77 does not exist",
        }
        assert health(lab, experiment)["status"] == "critical"
        assert lab.series(experiment, 1)["status"] == "failed"
    lab.ok("PATCH", f"/experiments/{experiment['id']}/", {"metrics": experiment["metrics"][:1]})
    assert health(lab, experiment)["findings"] == []


def test_a_draft_is_told_what_could_never_be_computed(lab: Lab) -> None:
    draft = lab.store_metrics(lab.experiment(), [LOST])
    answer = health(lab, draft)
    assert [one["code"] for one in answer["findings"]] == ["metric_not_computable", "not_started"]
    assert answer["status"] == "critical"


def test_filters_of_test_accounts_that_cannot_be_computed(lab: Lab) -> None:
    experiment = running(lab, exposure_criteria={"filterTestAccounts": True})
    lost = [{"key": "id", "type": "cohort", "operator": "in", "value": 77}]
    with lab.database.write() as tx:
        tx.execute(update(project).values(test_account_filters=lost))
        tx.changed("project", 1)
    found = finding(lab, experiment, "exposures_not_computable")
    assert found["details"]["reason"] == "id: cohort 77 does not exist"
    codes = [one["code"] for one in health(lab, experiment)["findings"]]
    assert "no_exposures" not in codes


def test_a_metric_whose_last_computation_failed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = running(lab)
    lab.send([*crowd({"control": 100, "test": 100}), bought("test-1", START + timedelta(hours=2), 5)])

    def slow(*_: Any, **__: Any) -> Any:
        raise QueryTimeoutError("slow")

    def failed() -> dict[str, Any]:
        lab.now += timedelta(hours=1)
        with monkeypatch.context() as patch:
            patch.setattr(EmbeddedReader, "execute", slow)
            lab.series(experiment)
        return finding(lab, experiment, "metric_failed")

    found = failed()
    assert found["severity"] == "critical"
    assert "There is no result." in found["message"]
    assert found["details"]["reason"] in found["message"]
    lab.now += timedelta(hours=1)
    assert lab.series(experiment)["status"] == "completed"
    assert health(lab, experiment)["findings"] == []
    found = failed()
    assert found["severity"] == "warning"
    assert "An older result is shown." in found["message"]


def test_a_failure_is_remembered_over_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told by the health and by the series, beside the result of a try before; trying again forgets it."""
    lab = Lab(tmp_path)
    experiment = running(lab)
    lab.send([*crowd({"control": 100, "test": 100}), bought("test-1", START + timedelta(hours=2), 5)])
    before = lab.series(experiment)
    assert before["status"] == "completed"
    assert before["errors"] is None
    lab.now += timedelta(hours=1)

    def slow(*_: Any, **__: Any) -> Any:
        raise QueryTimeoutError("slow")

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedReader, "execute", slow)
        failing = lab.series(experiment)
    day, reason = "2026-03-10", "Query exceeded the time limit of 30 s"
    assert failing["timeseries"] == before["timeseries"]
    assert failing["status"] == "partial"
    assert failing["errors"] == {day: reason}
    assert failing["computed_at"] == before["computed_at"]
    failed_at = lab.now
    lab.close()

    lab = Lab(tmp_path)
    lab.now = failed_at + timedelta(seconds=30)
    assert lab.series(experiment) == failing, "and it is not tried again at once"
    found = finding(lab, experiment, "metric_failed")
    assert found["severity"] == "warning"
    assert "An older result is shown." in found["message"]
    assert found["details"]["reason"] == reason
    assert found["details"]["failed_at"] == "2026-03-10T13:00:00Z"
    lab.now += timedelta(minutes=1)
    again = lab.series(experiment)
    assert again["status"] == "completed"
    assert again["errors"] is None
    assert health(lab, experiment)["findings"] == []
    lab.close()


def test_a_failure_on_schedule_waits_for_the_next_time(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = running(lab)
    lab.send(crowd({"control": 100, "test": 100}))
    assert lab.runner.run_once() == 1
    lab.now += timedelta(hours=13)  # an hour before the schedule
    lab.series(experiment)
    lab.now += timedelta(hours=2)

    def slow(*_: Any, **__: Any) -> Any:
        raise QueryTimeoutError("slow")

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedReader, "execute", slow)
        assert lab.runner.run_once() == 1
        assert lab.runner.run_once() == 0
    finding(lab, experiment, "metric_failed")
    lab.now += timedelta(days=1)
    assert lab.runner.run_once() == 1
    assert [point for point in health(lab, experiment)["findings"] if point["code"] == "metric_failed"] == []


def test_no_metrics(lab: Lab) -> None:
    finding(lab, running(lab, metrics=[]), "no_metrics")


def test_holdouts_of_experiment_and_flag_differ(lab: Lab) -> None:
    experiment = running(lab)
    set_filters(lab, experiment, START, holdout={"id": 7, "exclusion_percentage": 10})
    found = finding(lab, experiment, "holdout_conflict")
    assert found["details"] == {"experiment_holdout_id": None, "flag_holdout_id": 7}


def test_two_running_experiments_on_one_flag(lab: Lab) -> None:
    experiment = running(lab)
    other = running(lab, name="Other")
    found = finding(lab, experiment, "flag_shared")
    assert found["details"] == {"experiment_ids": [other["id"]]}
    lab.ok("POST", f"/experiments/{other['id']}/end/")
    assert "flag_shared" not in [one["code"] for one in health(lab, experiment)["findings"]]


def test_worst_findings_come_first(lab: Lab) -> None:
    severities = [one["severity"] for one in health(lab, running(lab, metrics=[]))["findings"]]
    assert severities == ["critical", "warning"]


def test_unknown_experiments_are_not_found(lab: Lab) -> None:
    assert lab.call("GET", "/experiments/999/health/").status_code == 404


def test_events_that_cannot_be_looked_at_now_are_asked_for_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = running(lab)
    lab.send(crowd({"control": 100, "test": 100}))
    health(lab, experiment)
    execute = EmbeddedReader.execute

    def slow(self: EmbeddedReader, statement: str, *rest: Any, **options: Any) -> Any:
        if "unnest($names)" in statement:
            raise QueryTimeoutError("slow")
        return execute(self, statement, *rest, **options)

    monkeypatch.setattr(EmbeddedReader, "execute", slow)
    answer = lab.call("GET", f"/experiments/{experiment['id']}/health/")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "30")
    found = lab.ok("GET", f"/experiments/{experiment['id']}/results/")
    assert (found["status"], found["pending"], found["health"]) == ("partial", ["health"], None)
