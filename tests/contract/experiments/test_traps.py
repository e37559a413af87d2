"""What clients stumble over (rules 10)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.conftest import Api, Laboratory
from tests.contract.experiments.test_examples import METRIC, create
from tests.contract.rules import rule

START = "2026-01-01T00:00:00Z"


def flag_of(api: Api, flag_id: int) -> dict[str, Any]:
    found: dict[str, Any] = api.ok("GET", f"/feature_flags/{flag_id}/")
    return found


@rule("10.1")
def test_delete_is_405_without_a_body_even_for_unknown_ids(api: Api) -> None:
    for experiment_id in (create(api)["id"], 999):
        answer = api.call("DELETE", f"/experiments/{experiment_id}/")
        assert (answer.status_code, answer.content, answer.headers["content-length"]) == (405, b"", "0")
    assert api.refused("DELETE", "/experiments/", status=405)["code"] == "method_not_allowed"


@rule("10.2")
def test_one_error_and_its_attr(api: Api) -> None:
    error = api.refused("POST", "/experiments/", {"name": "", "archived": None, "description": "x" * 3001})
    assert (error["attr"], error["code"]) == ("name", "blank")
    error = api.refused(
        "POST", "/experiments/", {"name": "n", "feature_flag_key": "k", "description": "x" * 3001}
    )
    assert (error["attr"], error["code"]) == ("description", "max_length")
    dates = {"start_date": "2026-02-01", "end_date": "2026-01-01"}
    error = api.refused("POST", "/experiments/", {"name": "n", "feature_flag_key": "k", **dates})
    assert (error["attr"], error["detail"]) == (None, "End date must be after start date")
    bad = [{"key": "control", "rollout_percentage": 50}, {"key": "b", "rollout_percentage": 40}]
    error = api.refused(
        "POST",
        "/experiments/",
        {"name": "n", "feature_flag_key": "k", "parameters": {"feature_flag_variants": bad}},
    )
    assert (error["attr"], error["code"]) == ("filters", "cross_field.variant_rollout_sum_not_100")


@rule("10.3")
def test_pages_never_fail_and_links_are_sorted(api: Api) -> None:
    for number in range(3):
        create(api, f"flag-{number}")
    page = api.ok("GET", "/experiments?limit=2&search=colour&archived=no")
    assert page["count"] == 3
    assert page["next"].endswith("/experiments?archived=no&limit=2&offset=2&search=colour")
    assert api.ok("GET", "/experiments/?limit=x&offset=-1")["previous"] is None
    assert api.ok("GET", "/experiments/?offset=50")["results"] == []


@rule("10.4")
def test_saved_metrics_ids_and_write_only_keys(api: Api) -> None:
    created = create(
        api, allow_unknown_events=True, update_feature_flag_params=True, _create_in_folder="Team"
    )
    assert created["saved_metrics_ids"] is None
    assert not {"allow_unknown_events", "update_feature_flag_params"} & created.keys()
    assert created["_create_in_folder"] == "Team"  # the user's document lists it among the response's fields


@rule("10.5")
def test_flag_activity_follows_launch_only(api: Api) -> None:
    created = create(api)
    path, flag_id = f"/experiments/{created['id']}/", created["feature_flag"]["id"]
    assert flag_of(api, flag_id)["active"] is False
    assert api.ok("PATCH", path, {"start_date": START})["feature_flag"]["active"] is True
    api.ok("POST", f"{path}end/")
    assert flag_of(api, flag_id)["active"] is True
    api.ok("PATCH", path, {"deleted": True})
    assert flag_of(api, flag_id)["active"] is True


@rule("10.6")
def test_an_existing_flag_is_linked_untouched(api: Api) -> None:
    variants = [{"key": "control", "rollout_percentage": 10}, {"key": "new", "rollout_percentage": 90}]
    flag = api.ok(
        "POST",
        "/feature_flags/",
        {
            "key": "mine",
            "active": False,
            "filters": {"groups": [{"rollout_percentage": 5}], "multivariate": {"variants": variants}},
        },
        status=201,
    )
    created = create(api, "mine", start_date=START)
    assert created["feature_flag"]["version"] == flag["version"]
    assert created["feature_flag"]["active"] is False
    assert created["status"] == "paused"
    error = api.refused(
        "POST",
        "/experiments/",
        {"name": "n", "feature_flag_key": "mine", "parameters": {"rollout_percentage": 6}},
    )
    assert error["attr"] == "feature_flag"
    create(api, "mine", parameters={"rollout_percentage": 5, "feature_flag_variants": variants})

    simple = {"key": "simple", "filters": {"groups": [{"rollout_percentage": 5}]}}
    api.ok("POST", "/feature_flags/", simple, status=201)
    error = api.refused("POST", "/experiments/", {"name": "n", "feature_flag_key": "simple"})
    assert error["detail"].startswith("Feature flag must have at least 2 variants")


@rule("10.7")
def test_parameters_are_replaced_and_mirror_the_flag(api: Api) -> None:
    created = create(api, parameters={"a": 1, "b": 2})
    path = f"/experiments/{created['id']}/"
    changed = api.ok("PATCH", path, {"parameters": {"c": 3}})
    assert {"a", "b"}.isdisjoint(changed["parameters"])
    assert changed["parameters"]["c"] == 3
    flag = f"/feature_flags/{created['feature_flag']['id']}/"
    api.ok("PATCH", flag, {"filters": {"groups": [{"properties": [], "rollout_percentage": 7}]}})
    assert api.ok("GET", path)["parameters"]["rollout_percentage"] == 7


@rule("10.8")
@pytest.mark.parametrize("start", [None, START])
def test_echoing_a_whole_body_changes_nothing(api: Api, start: str | None) -> None:
    metric = {"name": "Orders", "query": {k: v for k, v in METRIC.items() if k != "name"}}
    saved = api.ok("POST", "/experiment_saved_metrics/", metric, status=201)
    holdout = api.ok(
        "POST",
        "/experiment_holdouts/",
        {"name": "h", "filters": [{"properties": [], "rollout_percentage": 10}]},
        status=201,
    )
    created = create(
        api,
        start_date=start,
        metrics=[METRIC],
        holdout_id=holdout["id"],
        saved_metrics_ids=[{"id": saved["id"], "metadata": {"type": "primary"}}],
        parameters={"note": "x", "minimum_detectable_effect": 5},
    )
    for method in ("PATCH", "PUT"):
        echoed = api.ok(method, f"/experiments/{created['id']}/", created)
        assert echoed == created | {"updated_at": echoed["updated_at"]}


@rule("10.9")
def test_archived_experiments_vanish_from_the_list(api: Api) -> None:
    created = create(api, archived=True)
    assert api.ok("GET", "/experiments/")["count"] == 0
    assert api.ok("GET", "/experiments/?archived=TRUE")["count"] == 1
    assert api.ok("GET", f"/experiments/{created['id']}/")["archived"] is True


@rule("10.10")
def test_only_a_falsy_deleted_reaches_a_deleted_experiment(api: Api) -> None:
    created = create(api)
    path = f"/experiments/{created['id']}/"
    api.ok("PATCH", path, {"deleted": True})
    for body in ({"name": "x"}, {"deleted": True}):
        api.refused("PATCH", path, body, status=404)
    api.refused("POST", f"{path}launch/", status=404)
    assert api.ok("PATCH", path, {"deleted": "no"})["deleted"] is False


@rule("10.11")
def test_end_overwrites_the_conclusion_and_ship_variant_does_not(api: Api) -> None:
    created = create(api, start_date=START, conclusion="lost", conclusion_comment="hm")
    path = f"/experiments/{created['id']}/"
    assert api.ok("POST", f"{path}ship_variant/", {"variant_key": "test"})["conclusion"] == "lost"
    api.ok("PATCH", path, {"end_date": None})
    ended = api.ok("POST", f"{path}end/")
    assert (ended["conclusion"], ended["conclusion_comment"]) == (None, None)


@rule("10.13")
def test_lenient_types(api: Api) -> None:
    created = create(api, name=5, archived="yes", only_count_matured_users="1")
    assert (created["name"], created["archived"], created["only_count_matured_users"]) == ("5", True, True)


@rule("10.14")
def test_the_flag_key_has_another_name_in_errors(api: Api) -> None:
    created = create(api)
    path = f"/experiments/{created['id']}/"
    assert api.ok("PATCH", path, {"feature_flag_key": "button-colour", "type": "product"})
    error = api.refused("PATCH", path, {"feature_flag_key": "other", "type": "web"})
    assert (error["attr"], error["detail"]) == (
        None,
        "Can't update keys: get_feature_flag_key, type on Experiment",
    )


@rule("10.15")
def test_a_duplicate_without_a_key_shares_the_flag(api: Api) -> None:
    created = create(api, metrics=[METRIC], start_date=START, conclusion="won")
    path = f"/experiments/{created['id']}/duplicate/"
    copy = api.ok("POST", path, {})
    assert copy["feature_flag"]["id"] == created["feature_flag"]["id"]
    assert (copy["name"], copy["status"], copy["conclusion"]) == ("Button colour (Copy)", "draft", None)
    assert copy["metrics"][0]["uuid"] != created["metrics"][0]["uuid"]
    assert copy["primary_metrics_ordered_uuids"] == [copy["metrics"][0]["uuid"]]
    assert api.ok("POST", path, {"feature_flag_key": ""})["name"] == "Button colour (Copy) 1"
    other = api.ok("POST", path, {"feature_flag_key": "new-key", "name": "Mine"})
    assert (other["name"], other["feature_flag_key"], other["feature_flag"]["active"]) == (
        "Mine",
        "new-key",
        False,
    )


@rule("10.16")
def test_metrics_null(api: Api) -> None:
    created = create(api, metrics=None)
    assert created["metrics"] == []
    assert api.ok("PATCH", f"/experiments/{created['id']}/", {"metrics": None})["metrics"] is None


@rule("10.17")
def test_what_changes_a_fingerprint(api: Api) -> None:
    created = create(api, metrics=[METRIC, {**METRIC, "name": "Again"}])
    path = f"/experiments/{created['id']}/"
    first = created["metrics"][0]["fingerprint"]
    assert created["metrics"][1]["fingerprint"] == first

    def after(**changes: Any) -> str:
        fingerprint: str = api.ok("PATCH", path, changes)["metrics"][0]["fingerprint"]
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


@rule("10.18")
def test_holdout_changes_reach_all_flags_at_once(api: Api) -> None:
    holdout = api.ok(
        "POST",
        "/experiment_holdouts/",
        {"name": "h", "filters": [{"properties": [], "rollout_percentage": 10}]},
        status=201,
    )
    members = [create(api, f"flag-{n}", holdout_id=holdout["id"]) for n in range(2)]
    path = f"/experiment_holdouts/{holdout['id']}/"
    api.ok("PATCH", path, {"filters": [{"properties": [], "rollout_percentage": 30}]})
    for member in members:
        held = flag_of(api, member["feature_flag"]["id"])["filters"]["holdout"]
        assert held == {"id": holdout["id"], "exclusion_percentage": 30}
    assert api.call("DELETE", path).status_code == 204
    for member in members:
        assert flag_of(api, member["feature_flag"]["id"])["filters"]["holdout"] is None
        assert api.ok("GET", f"/experiments/{member['id']}/")["holdout_id"] is None


@rule("10.19")
def test_status_filter(api: Api) -> None:
    draft = create(api, "a")
    running = create(api, "b", start_date=START)
    paused = create(api, "c", start_date=START)
    stopped = create(api, "d", start_date=START, end_date="2026-01-02T00:00:00Z")
    api.ok("POST", f"/experiments/{paused['id']}/pause/")

    def found(status: str) -> list[int]:
        return [row["id"] for row in api.ok("GET", f"/experiments/?status={status}&order=name")["results"]]

    assert found("draft") == [draft["id"]]
    assert found("RUNNING") == [running["id"]]
    assert found("paused") == [paused["id"]]
    assert found("stopped") == found("complete") == [stopped["id"]]
    assert len(found("all")) == len(found("nonsense")) == 4
    assert api.refused("GET", "/experiments/?order=colour")["detail"] == "Invalid order field: 'colour'"


@rule("10.20")
def test_missing_things(api: Api, laboratory: Laboratory) -> None:
    gone = "/api/projects/999999/experiments/"
    assert api.refused("GET", gone, status=404)["detail"] == "Project not found."
    others = laboratory.api()
    path = f"/experiments/{create(others)['id']}/"
    limited = api.with_key(api.new_key("*", scoped_teams=[api.project_id]))
    error = limited.refused("GET", f"/api/projects/{others.project_id}{path}", status=403)
    assert error["type"] == "authentication_error"
    assert api.refused("GET", path, status=404)["detail"] == "Not found."
    for odd in ("abc", "-1", "9" * 30, "1.5"):
        assert api.refused("GET", f"/experiments/{odd}/", status=404)["detail"] == "Not found."


@rule("10.12")
def test_spellings_of_moments(api: Api) -> None:
    created = create(api, start_date=START)
    assert created["created_at"].endswith("Z")
    path = f"/experiments/{created['id']}/timeseries_results/?metric_uuid=u&fingerprint=unknown"
    series = api.ok("GET", path)
    assert series["created_at"].endswith("+00:00")
    assert series["status"] == "pending"
