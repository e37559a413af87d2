"""Closing an experiment to new people (rules 6.14 to 6.18)."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from tests.contract.conftest import Api
from tests.contract.experiments.test_actions import ENDED, NOT_LAUNCHED, act, refused, set_flag, stopped
from tests.contract.experiments.test_changes import read
from tests.contract.experiments.test_flag_linkage import patch
from tests.contract.rules import rule

PRO = {"key": "plan", "type": "person", "value": "pro", "operator": "exact"}


def called(person: str, variant: Any, key: str = "button") -> dict[str, Any]:
    properties = {"$feature_flag": key, "$feature_flag_response": variant}
    return {"event": "$feature_flag_called", "distinct_id": person, "properties": properties}


def conditions(experiment: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = experiment["feature_flag"]["filters"]["groups"]
    return found


def members(api: Api, cohort_id: int) -> set[str]:
    page = api.ok("GET", f"/cohorts/{cohort_id}/persons/")
    return {name for person in page["results"] for name in person["distinct_ids"]}


@pytest.fixture
def running(api: Api) -> dict[str, Any]:
    return api.experiment(start_date="2026-01-01T00:00:00Z")


@rule("6.14", "6.17")
def test_there_and_back(api: Api, running: dict[str, Any]) -> None:
    variant = api.variant("button", "early")
    api.capture(called("early", variant), called("outside", False), called("other", "test", key="other"))
    api.capture({"event": "purchase", "distinct_id": "late", "properties": {}})
    set_flag(api, running, filters={"groups": [{"properties": []}, {"properties": [PRO]}]})
    before = conditions(read(api, running))

    frozen = act(api, running, "freeze_exposure")

    cohort_id = conditions(frozen)[0]["exposure_frozen_cohort"]
    member = {"type": "cohort", "key": "id", "value": cohort_id, "operator": "in"}
    assert frozen["status"] == "exposure_frozen"
    assert [group["properties"] for group in conditions(frozen)] == [[member], [PRO, member]]
    assert [group["exposure_frozen"] for group in conditions(frozen)] == [True, True]
    cohort = api.ok("GET", f"/cohorts/{cohort_id}/")
    assert (cohort["is_static"], cohort["count"], members(api, cohort_id)) == (True, 1, {"early"})
    assert api.variant("button", "early") == variant
    assert api.variant("button", "late") is False
    assert api.ok("GET", "/experiments/?status=exposure_frozen")["count"] == 1
    assert api.ok("GET", "/experiments/?status=running")["count"] == 0
    assert refused(api, running, "freeze_exposure") == "Experiment exposure is already frozen."

    thawed = act(api, running, "unfreeze_exposure")

    assert (thawed["status"], conditions(thawed)) == ("running", before)
    assert api.variant("button", "late") in ("control", "test")
    assert api.refused("GET", f"/cohorts/{cohort_id}/", status=404)
    assert refused(api, running, "unfreeze_exposure") == "Experiment exposure is not frozen."


@rule("6.14")
def test_custom_exposure(api: Api) -> None:
    config = {"kind": "ExperimentEventExposureConfig", "event": "viewed", "properties": []}
    made = api.experiment(start_date="2026-01-01T00:00:00Z", exposure_criteria={"exposure_config": config})
    api.capture(
        {"event": "viewed", "distinct_id": "in", "properties": {"$feature/button": "test"}},
        {"event": "viewed", "distinct_id": "out", "properties": {}},
        called("out", "test"),
    )
    frozen = act(api, made, "freeze_exposure")
    assert members(api, conditions(frozen)[0]["exposure_frozen_cohort"]) == {"in"}


@rule("6.14")
def test_a_condition_that_was_added_is_frozen_by_the_next_freeze(api: Api, running: dict[str, Any]) -> None:
    first = conditions(act(api, running, "freeze_exposure"))
    set_flag(api, running, filters={"groups": [*first, {"properties": [PRO]}]})
    assert read(api, running)["status"] == "running"
    again = act(api, running, "freeze_exposure")
    assert again["status"] == "exposure_frozen"
    assert [len(group["properties"]) for group in conditions(again)] == [1, 2]
    old, new = first[0]["exposure_frozen_cohort"], conditions(again)[0]["exposure_frozen_cohort"]
    assert api.refused("GET", f"/cohorts/{old}/", status=404)
    assert api.ok("GET", f"/cohorts/{new}/")


@rule("6.17")
def test_a_cohort_that_is_used_elsewhere_stays(api: Api, running: dict[str, Any]) -> None:
    frozen = conditions(act(api, running, "freeze_exposure"))[0]
    filters = {"groups": [{"properties": frozen["properties"]}]}
    api.ok("POST", "/feature_flags/", {"key": "also", "filters": filters}, status=201)
    act(api, running, "unfreeze_exposure")
    assert api.ok("GET", f"/cohorts/{frozen['exposure_frozen_cohort']}/")["deleted"] is False


@rule("6.15")
def test_states_that_cannot_be_frozen(api: Api, running: dict[str, Any]) -> None:
    for action in ("freeze_exposure", "unfreeze_exposure"):
        assert refused(api, api.experiment(f"draft-{action}"), action) == NOT_LAUNCHED
        assert refused(api, stopped(api, f"stopped-{action}"), action) == ENDED
    act(api, running, "pause")
    text = "Cannot freeze a paused experiment. Resume it first."
    assert refused(api, running, "freeze_exposure") == text


@rule("6.16")
@pytest.mark.parametrize(
    ("filters", "reason"),
    [
        ({"aggregation_group_type_index": 0, "groups": [{}]}, "Group-aggregated"),
        ({"feature_enrollment": True}, "early access"),
        ({"groups": []}, "no release condition"),
    ],
)
def test_flags_that_cannot_be_frozen(
    api: Api, running: dict[str, Any], filters: dict[str, Any], reason: str
) -> None:
    set_flag(api, running, filters=filters)
    assert reason in refused(api, running, "freeze_exposure")
    assert api.ok("GET", "/cohorts/")["count"] == 0


@rule("6.16")
def test_holdouts_cannot_be_frozen(api: Api) -> None:
    body = {"name": "H", "filters": [{"properties": [], "rollout_percentage": 20}]}
    holdout = api.ok("POST", "/experiment_holdouts/", body, status=201)["id"]
    made = api.experiment(start_date="2026-01-01", holdout_id=holdout)
    assert "in a holdout" in refused(api, made, "freeze_exposure")


@rule("6.16")
def test_deleted_flags_cannot_be_frozen(api: Api) -> None:
    made = api.experiment()
    set_flag(api, made, deleted=True)
    with api.database() as database, database.write() as tx:
        started = sa.text("UPDATE experiment SET start_date = 1, status = 'running' WHERE id = :id")
        tx.execute(started, {"id": made["id"]})
    assert "has been deleted" in refused(api, made, "freeze_exposure")


@rule("6.18")
@pytest.mark.parametrize(("action", "body"), [("reset", None), ("ship_variant", {"variant_key": "test"})])
def test_other_actions_thaw(
    api: Api, running: dict[str, Any], action: str, body: dict[str, Any] | None
) -> None:
    cohort_id = conditions(act(api, running, "freeze_exposure"))[0]["exposure_frozen_cohort"]
    after = conditions(act(api, running, action, body))
    assert after == [{"properties": [], "rollout_percentage": 100, "aggregation_group_type_index": None}]
    assert api.refused("GET", f"/cohorts/{cohort_id}/", status=404)


@rule("6.18")
def test_a_patch_back_to_draft_thaws(api: Api, running: dict[str, Any]) -> None:
    cohort_id = conditions(act(api, running, "freeze_exposure"))[0]["exposure_frozen_cohort"]
    after = patch(api, running, start_date=None)
    assert (after["status"], conditions(after)[0]["properties"]) == ("draft", [])
    assert api.refused("GET", f"/cohorts/{cohort_id}/", status=404)


@pytest.mark.parametrize("event", ["$feature_flag_called", "$experiment_exposure"])
def test_the_call_of_the_flag_named_as_criterion(api: Api, event: str) -> None:
    """Calls of other flags do not count, and without written exposures those that gave a variant do."""
    pro = {"key": "plan", "type": "event", "value": "pro", "operator": "exact"}
    config = {"kind": "ExperimentEventExposureConfig", "event": event, "properties": [pro]}
    criteria = {"exposure_config": config}
    experiment = api.experiment(start_date="2026-01-01T00:00:00Z", exposure_criteria=criteria)
    wanted = (
        called("in", "test"),
        called("free", "test"),
        called("out", False),
        called("else", "test", key="x"),
    )
    for each in wanted:
        each["properties"]["plan"] = "free" if each["distinct_id"] == "free" else "pro"
    written = {**called("copied", "control"), "event": event}
    written["properties"]["plan"] = "pro"
    api.capture(*wanted, written)
    path = f"/experiments/{experiment['id']}/create_exposure_cohort_for_experiment/"
    (either,) = api.ok("POST", path, {})["cohort"]["filters"]["properties"]["values"]
    assert [each["key"] for each in either["values"]] == list(dict.fromkeys([event, "$feature_flag_called"]))
    frozen = act(api, experiment, "freeze_exposure")
    assert members(api, conditions(frozen)[0]["exposure_frozen_cohort"]) == {"in", "copied"}
