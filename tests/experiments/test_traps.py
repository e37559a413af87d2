"""The trap list of spec experiments-api 10, one test each; the number is the list's."""

from __future__ import annotations

from typing import Any

import pytest
from tests.experiments.conftest import Lab
from tests.experiments.test_examples import METRIC

START = "2026-01-01T00:00:00Z"


def test_01_delete_is_405_without_a_body_even_for_unknown_ids(lab: Lab) -> None:
    for experiment_id in (lab.create()["id"], 999):
        answer = lab.call("DELETE", f"/experiments/{experiment_id}/")
        assert (answer.status_code, answer.content, answer.headers["content-length"]) == (405, b"", "0")
    assert lab.refused("DELETE", "/experiments/", status=405)["code"] == "method_not_allowed"


def test_02_one_error_and_its_attr(lab: Lab) -> None:
    error = lab.refused("POST", "/experiments/", {"name": "", "archived": None, "description": "x" * 3001})
    assert (error["attr"], error["code"]) == ("name", "blank")
    error = lab.refused(
        "POST", "/experiments/", {"name": "n", "feature_flag_key": "k", "description": "x" * 3001}
    )
    assert (error["attr"], error["code"]) == ("description", "max_length")
    dates = {"start_date": "2026-02-01", "end_date": "2026-01-01"}
    error = lab.refused("POST", "/experiments/", {"name": "n", "feature_flag_key": "k", **dates})
    assert (error["attr"], error["detail"]) == (None, "End date must be after start date")
    bad = [{"key": "control", "rollout_percentage": 50}, {"key": "b", "rollout_percentage": 40}]
    error = lab.refused(
        "POST",
        "/experiments/",
        {"name": "n", "feature_flag_key": "k", "parameters": {"feature_flag_variants": bad}},
    )
    assert (error["attr"], error["code"]) == ("filters", "cross_field.variant_rollout_sum_not_100")


def test_03_pages_never_fail_and_links_are_sorted(lab: Lab) -> None:
    for number in range(3):
        lab.create(f"flag-{number}")
    page = lab.ok("GET", "/experiments?limit=2&search=colour&archived=no")
    assert page["count"] == 3
    assert page["next"].endswith("/experiments?archived=no&limit=2&offset=2&search=colour")
    assert lab.ok("GET", "/experiments/?limit=x&offset=-1")["previous"] is None
    assert lab.ok("GET", "/experiments/?offset=50")["results"] == []


def test_04_saved_metrics_ids_and_write_only_keys(lab: Lab) -> None:
    created = lab.create(allow_unknown_events=True, update_feature_flag_params=True, _create_in_folder="Team")
    assert created["saved_metrics_ids"] is None
    assert not {"allow_unknown_events", "update_feature_flag_params"} & created.keys()
    assert created["_create_in_folder"] == "Team"  # the user's document lists it among the response's fields


def test_05_flag_activity_follows_launch_only(lab: Lab) -> None:
    created = lab.create()
    path, flag_id = f"/experiments/{created['id']}/", created["feature_flag"]["id"]
    assert lab.flag(flag_id)["active"] is False
    assert lab.ok("PATCH", path, {"start_date": START})["feature_flag"]["active"] is True
    lab.ok("POST", f"{path}end/")
    assert lab.flag(flag_id)["active"] is True
    lab.ok("PATCH", path, {"deleted": True})
    assert lab.flag(flag_id)["active"] is True


def test_06_an_existing_flag_is_linked_untouched(lab: Lab) -> None:
    variants = [{"key": "control", "rollout_percentage": 10}, {"key": "new", "rollout_percentage": 90}]
    flag = lab.ok(
        "POST",
        "/feature_flags/",
        {
            "key": "mine",
            "active": False,
            "filters": {"groups": [{"rollout_percentage": 5}], "multivariate": {"variants": variants}},
        },
        status=201,
    )
    created = lab.create("mine", start_date=START)
    assert created["feature_flag"]["version"] == flag["version"]
    assert created["feature_flag"]["active"] is False
    assert created["status"] == "paused"
    error = lab.refused(
        "POST",
        "/experiments/",
        {"name": "n", "feature_flag_key": "mine", "parameters": {"rollout_percentage": 6}},
    )
    assert error["attr"] == "feature_flag"
    lab.create("mine", parameters={"rollout_percentage": 5, "feature_flag_variants": variants})

    simple = {"key": "simple", "filters": {"groups": [{"rollout_percentage": 5}]}}
    lab.ok("POST", "/feature_flags/", simple, status=201)
    error = lab.refused("POST", "/experiments/", {"name": "n", "feature_flag_key": "simple"})
    assert error["detail"].startswith("Feature flag must have at least 2 variants")


def test_07_parameters_are_replaced_and_mirror_the_flag(lab: Lab) -> None:
    created = lab.create(parameters={"a": 1, "b": 2})
    path = f"/experiments/{created['id']}/"
    changed = lab.ok("PATCH", path, {"parameters": {"c": 3}})
    assert {"a", "b"}.isdisjoint(changed["parameters"])
    assert changed["parameters"]["c"] == 3
    flag = f"/feature_flags/{created['feature_flag']['id']}/"
    lab.ok("PATCH", flag, {"filters": {"groups": [{"properties": [], "rollout_percentage": 7}]}})
    assert lab.ok("GET", path)["parameters"]["rollout_percentage"] == 7


@pytest.mark.parametrize("start", [None, START])
def test_08_echoing_a_whole_body_changes_nothing(lab: Lab, start: str | None) -> None:
    metric = {"name": "Orders", "query": {k: v for k, v in METRIC.items() if k != "name"}}
    saved = lab.ok("POST", "/experiment_saved_metrics/", metric, status=201)
    holdout = lab.ok(
        "POST",
        "/experiment_holdouts/",
        {"name": "h", "filters": [{"properties": [], "rollout_percentage": 10}]},
        status=201,
    )
    created = lab.create(
        start_date=start,
        metrics=[METRIC],
        holdout_id=holdout["id"],
        saved_metrics_ids=[{"id": saved["id"], "metadata": {"type": "primary"}}],
        parameters={"note": "x", "minimum_detectable_effect": 5},
    )
    for method in ("PATCH", "PUT"):
        echoed = lab.ok(method, f"/experiments/{created['id']}/", created)
        assert echoed == created


def test_09_archived_experiments_vanish_from_the_list(lab: Lab) -> None:
    created = lab.create(archived=True)
    assert lab.ok("GET", "/experiments/")["count"] == 0
    assert lab.ok("GET", "/experiments/?archived=TRUE")["count"] == 1
    assert lab.ok("GET", f"/experiments/{created['id']}/")["archived"] is True


def test_10_only_a_falsy_deleted_reaches_a_deleted_experiment(lab: Lab) -> None:
    created = lab.create()
    path = f"/experiments/{created['id']}/"
    lab.ok("PATCH", path, {"deleted": True})
    for body in ({"name": "x"}, {"deleted": True}):
        lab.refused("PATCH", path, body, status=404)
    lab.refused("POST", f"{path}launch/", status=404)
    assert lab.ok("PATCH", path, {"deleted": "no"})["deleted"] is False


def test_11_end_overwrites_the_conclusion_and_ship_variant_does_not(lab: Lab) -> None:
    created = lab.create(start_date=START, conclusion="lost", conclusion_comment="hm")
    path = f"/experiments/{created['id']}/"
    assert lab.ok("POST", f"{path}ship_variant/", {"variant_key": "test"})["conclusion"] == "lost"
    lab.ok("PATCH", path, {"end_date": None})
    ended = lab.ok("POST", f"{path}end/")
    assert (ended["conclusion"], ended["conclusion_comment"]) == (None, None)


def test_13_lenient_types(lab: Lab) -> None:
    created = lab.create(name=5, archived="yes", only_count_matured_users="1")
    assert (created["name"], created["archived"], created["only_count_matured_users"]) == ("5", True, True)


def test_14_the_flag_key_has_another_name_in_errors(lab: Lab) -> None:
    created = lab.create()
    path = f"/experiments/{created['id']}/"
    assert lab.ok("PATCH", path, {"feature_flag_key": "button-colour", "type": "product"})
    error = lab.refused("PATCH", path, {"feature_flag_key": "other", "type": "web"})
    assert (error["attr"], error["detail"]) == (
        None,
        "Can't update keys: get_feature_flag_key, type on Experiment",
    )


def test_15_a_duplicate_without_a_key_shares_the_flag(lab: Lab) -> None:
    created = lab.create(metrics=[METRIC], start_date=START, conclusion="won")
    path = f"/experiments/{created['id']}/duplicate/"
    copy = lab.ok("POST", path, {})
    assert copy["feature_flag"]["id"] == created["feature_flag"]["id"]
    assert (copy["name"], copy["status"], copy["conclusion"]) == ("Button colour (Copy)", "draft", None)
    assert copy["metrics"][0]["uuid"] != created["metrics"][0]["uuid"]
    assert copy["primary_metrics_ordered_uuids"] == [copy["metrics"][0]["uuid"]]
    assert lab.ok("POST", path, {"feature_flag_key": ""})["name"] == "Button colour (Copy) 1"
    other = lab.ok("POST", path, {"feature_flag_key": "new-key", "name": "Mine"})
    assert (other["name"], other["feature_flag_key"], other["feature_flag"]["active"]) == (
        "Mine",
        "new-key",
        False,
    )


def test_16_metrics_null(lab: Lab) -> None:
    created = lab.create(metrics=None)
    assert created["metrics"] == []
    assert lab.ok("PATCH", f"/experiments/{created['id']}/", {"metrics": None})["metrics"] is None


def test_17_what_changes_a_fingerprint(lab: Lab) -> None:
    created = lab.create(metrics=[METRIC, {**METRIC, "name": "Again"}])
    path = f"/experiments/{created['id']}/"
    first = created["metrics"][0]["fingerprint"]
    assert created["metrics"][1]["fingerprint"] == first

    def after(**changes: Any) -> str:
        fingerprint: str = lab.ok("PATCH", path, changes)["metrics"][0]["fingerprint"]
        return fingerprint

    assert after(name="Other", description="d") == first
    seen = {first}
    for changes in (
        {"start_date": START},
        {"stats_config": {"method": "frequentist"}},
        {"exposure_criteria": {"filterTestAccounts": False}},
        {"only_count_matured_users": True},
    ):
        fingerprint = after(**changes)
        assert fingerprint not in seen
        seen.add(fingerprint)


def test_18_holdout_changes_reach_all_flags_at_once(lab: Lab) -> None:
    holdout = lab.ok(
        "POST",
        "/experiment_holdouts/",
        {"name": "h", "filters": [{"properties": [], "rollout_percentage": 10}]},
        status=201,
    )
    members = [lab.create(f"flag-{n}", holdout_id=holdout["id"]) for n in range(2)]
    path = f"/experiment_holdouts/{holdout['id']}/"
    lab.ok("PATCH", path, {"filters": [{"properties": [], "rollout_percentage": 30}]})
    for member in members:
        held = lab.flag(member["feature_flag"]["id"])["filters"]["holdout"]
        assert held == {"id": holdout["id"], "exclusion_percentage": 30}
    assert lab.call("DELETE", path).status_code == 204
    for member in members:
        assert lab.flag(member["feature_flag"]["id"])["filters"]["holdout"] is None
        assert lab.ok("GET", f"/experiments/{member['id']}/")["holdout_id"] is None


def test_19_status_filter(lab: Lab) -> None:
    draft = lab.create("a")
    running = lab.create("b", start_date=START)
    paused = lab.create("c", start_date=START)
    stopped = lab.create("d", start_date=START, end_date="2026-01-02T00:00:00Z")
    lab.ok("POST", f"/experiments/{paused['id']}/pause/")

    def found(status: str) -> list[int]:
        return [row["id"] for row in lab.ok("GET", f"/experiments/?status={status}&order=name")["results"]]

    assert found("draft") == [draft["id"]]
    assert found("RUNNING") == [running["id"]]
    assert found("paused") == [paused["id"]]
    assert found("stopped") == found("complete") == [stopped["id"]]
    assert len(found("all")) == len(found("nonsense")) == 4
    assert lab.refused("GET", "/experiments/?order=colour")["detail"] == "Invalid order field: 'colour'"


def test_20_missing_things(lab: Lab) -> None:
    base = "http://test/api/projects"
    assert lab.refused("GET", f"{base}/99/experiments/", status=404)["detail"] == "Project not found."
    assert lab.refused("GET", "/experiments/99/", status=404)["detail"] == "Not found."
    for odd in ("abc", "-1", "9" * 30, "1.5"):
        assert lab.refused("GET", f"/experiments/{odd}/", status=404)["detail"] == "Not found."
