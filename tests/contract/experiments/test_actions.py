"""The actions of an experiment's life (rules 6)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.conftest import Api, Laboratory
from tests.contract.experiments.test_changes import END, MEAN, START, read
from tests.contract.experiments.test_flag_linkage import patch, shares
from tests.contract.rules import rule

NOT_LAUNCHED = "Experiment has not been launched yet."
ENDED = "Experiment has already ended."


def act(api: Api, experiment: dict[str, Any], action: str, body: Any = None, *, status: int = 200) -> Any:
    return api.ok("POST", f"/experiments/{experiment['id']}/{action}/", body, status=status)


def refused(api: Api, experiment: dict[str, Any], action: str, body: Any = None) -> str:
    error = api.refused("POST", f"/experiments/{experiment['id']}/{action}/", body)
    assert error["attr"] is None
    detail: str = error["detail"]
    return detail


def set_flag(api: Api, experiment: dict[str, Any], **fields: Any) -> None:
    api.ok("PATCH", f"/feature_flags/{experiment['feature_flag']['id']}/", fields)


def stopped(api: Api, key: str = "stopped", **fields: Any) -> dict[str, Any]:
    return api.experiment(key, start_date=START, end_date=END, **fields)


@rule("6.1")
def test_launch(api: Api) -> None:
    made = api.experiment(metrics=[MEAN])
    launched = act(api, made, "launch")
    assert (launched["status"], launched["feature_flag"]["active"]) == ("running", True)
    assert launched["start_date"] is not None
    assert launched["metrics"][0]["fingerprint"] != made["metrics"][0]["fingerprint"]
    assert refused(api, made, "launch") == "Experiment has already been launched."
    flagless = api.experiment("flagless")
    set_flag(api, flagless, deleted=True)
    assert refused(api, flagless, "launch") == (
        "Experiment cannot be launched because its feature flag has been deleted."
    )


@rule("6.2", "6.3")
def test_pause_and_resume(api: Api) -> None:
    made = api.experiment(start_date=START)
    assert refused(api, made, "resume") == "Experiment is not paused."
    paused = act(api, made, "pause")
    assert (paused["status"], paused["feature_flag"]["active"]) == ("paused", False)
    assert refused(api, made, "pause") == "Experiment is already paused."
    assert act(api, made, "resume")["status"] == "running"
    for action in ("pause", "resume"):
        assert refused(api, api.experiment(f"draft-{action}"), action) == NOT_LAUNCHED
        assert refused(api, stopped(api, f"stopped-{action}"), action) == ENDED


class TestArchive:
    @rule("6.4")
    def test_there_and_back(self, api: Api) -> None:
        made = api.experiment("running", start_date=START)
        assert refused(api, made, "archive") == "Experiment must be ended before it can be archived."
        assert refused(api, made, "unarchive") == "Experiment is not archived."
        act(api, made, "end")
        assert act(api, made, "archive")["archived"] is True
        assert refused(api, made, "archive") == "Experiment is already archived."
        assert act(api, made, "unarchive")["archived"] is False

    @rule("6.5")
    def test_the_flag(self, api: Api) -> None:
        def archived(experiment: dict[str, Any]) -> tuple[bool, bool]:
            found = api.ok("GET", f"/feature_flags/{experiment['feature_flag']['id']}/")
            return found["archived"], found["active"]

        active = stopped(api, "active")
        act(api, active, "archive")
        assert archived(active) == (False, True)
        asked = stopped(api, "asked")
        act(api, asked, "archive", {"disable_feature_flag": True})
        assert archived(asked) == (True, False)
        act(api, asked, "unarchive")
        assert archived(asked) == (False, False)
        inactive = stopped(api, "inactive")
        set_flag(api, inactive, active=False)
        act(api, inactive, "archive")
        assert archived(inactive) == (True, False)
        shared = stopped(api, "shared")
        api.experiment("shared", name="Other")
        set_flag(api, shared, active=False)
        act(api, shared, "archive")
        assert archived(shared) == (False, False)

    @rule("6.5")
    def test_what_it_took_is_given_back_after_a_second_archive(self, api: Api) -> None:
        made = stopped(api)
        act(api, made, "archive", {"disable_feature_flag": True})
        patch(api, made, archived=False)
        act(api, made, "archive")
        act(api, made, "unarchive")
        assert api.ok("GET", f"/feature_flags/{made['feature_flag']['id']}/")["archived"] is False


@rule("6.6")
def test_end(api: Api) -> None:
    made = api.experiment(start_date=START, conclusion="lost")
    assert refused(api, api.experiment("draft"), "end") == NOT_LAUNCHED
    ended = act(api, made, "end", {"conclusion_comment": "why"})
    assert (ended["status"], ended["conclusion"], ended["conclusion_comment"]) == ("stopped", None, "why")
    assert (ended["feature_flag"]["active"], ended["feature_flag"]["version"]) == (True, 1)
    assert refused(api, made, "end") == ENDED


@rule("6.7")
@pytest.mark.parametrize("fields", [{"start_date": START}, {"start_date": START, "end_date": END}])
def test_reset(api: Api, fields: dict[str, Any]) -> None:
    made = api.experiment(conclusion="won", conclusion_comment="c", archived=True, **fields)
    after = act(api, made, "reset")
    cleared = ("start_date", "end_date", "conclusion", "conclusion_comment")
    assert [after[name] for name in cleared] == [None] * 4
    assert (after["archived"], after["status"], after["feature_flag"]["active"]) == (False, "draft", True)
    assert refused(api, made, "reset") == "Experiment is already in draft state."


class TestShipVariant:
    @rule("6.8")
    def test_ship(self, api: Api) -> None:
        made = api.experiment(start_date=START)
        assert refused(api, api.experiment("draft"), "ship_variant", {"variant_key": "test"}) == NOT_LAUNCHED
        assert (
            refused(api, made, "ship_variant", {"variant_key": "x"})
            == "Variant 'x' not found on feature flag."
        )
        missing = api.refused("POST", f"/experiments/{made['id']}/ship_variant/", {})
        assert (missing["attr"], missing["code"]) == ("variant_key", "required")
        after = act(api, made, "ship_variant", {"variant_key": "test", "conclusion": "won"})
        assert (after["status"], after["conclusion"]) == ("stopped", "won")
        assert shares(after) == {"control": 0, "test": 100}
        assert [group["rollout_percentage"] for group in after["feature_flag"]["filters"]["groups"]] == [100]
        again = act(api, made, "ship_variant", {"variant_key": "control"})
        assert (again["end_date"], again["conclusion"]) == (after["end_date"], "won")

    @rule("6.9")
    def test_release_to_everyone(self, api: Api) -> None:
        made = api.experiment(start_date=START, parameters={"rollout_percentage": 30})
        body = {"variant_key": "test", "release_to_everyone": True}
        groups = act(api, made, "ship_variant", body)["feature_flag"]["filters"]["groups"]
        assert [group["rollout_percentage"] for group in groups] == [100, 30]
        assert groups[0]["properties"] == []


class TestCopies:
    @rule("6.10")
    def test_duplicate(self, api: Api) -> None:
        saved = api.ok("POST", "/experiment_saved_metrics/", {"name": "M", "query": MEAN}, status=201)["id"]
        made = api.experiment(
            start_date=START,
            description="d",
            metrics=[MEAN],
            conclusion="won",
            saved_metrics_ids=[{"id": saved, "metadata": {"type": "secondary"}}],
            stats_config={"method": "frequentist"},
            parameters={"feature_flag_variants": [
                {"key": "control", "split_percent": 10}, {"key": "b", "split_percent": 90}
            ]},
        )  # fmt: skip
        copy = act(api, made, "duplicate", made | {"name": None, "feature_flag_key": ""})
        assert copy["feature_flag"]["id"] == made["feature_flag"]["id"]
        assert (copy["status"], copy["conclusion"], copy["description"]) == ("draft", None, "d")
        assert copy["stats_config"] == made["stats_config"]
        assert [link["saved_metric"] for link in copy["saved_metrics"]] == [saved]
        assert copy["metrics"][0]["uuid"] != made["metrics"][0]["uuid"]
        assert copy["primary_metrics_ordered_uuids"] == [copy["metrics"][0]["uuid"]]
        other = act(api, made, "duplicate", {"feature_flag_key": "new-key", "name": "Named"})
        assert (other["name"], other["feature_flag"]["active"]) == ("Named", False)
        assert shares(other) == {"control": 10, "b": 90}

    @rule("6.11")
    def test_names(self, api: Api) -> None:
        made = api.experiment(name="N")
        found = [act(api, made, "duplicate", {})["name"] for _ in range(3)]
        assert found == ["N (Copy)", "N (Copy) 1", "N (Copy) 2"]

    @rule("6.12")
    def test_copy_to_project(self, api: Api, laboratory: Laboratory) -> None:
        target = laboratory.api()
        saved = api.ok("POST", "/experiment_saved_metrics/", {"name": "M", "query": MEAN}, status=201)["id"]
        link = {"id": saved, "metadata": {"type": "primary"}}
        made = api.experiment(start_date=START, metrics=[MEAN], saved_metrics_ids=[link])
        path = f"/experiments/{made['id']}/copy_to_project/"
        copy = api.ok("POST", path, {"target_team_id": target.project_id}, status=201)
        assert (copy["status"], copy["saved_metrics"], copy["feature_flag_key"]) == ("draft", [], "button")
        assert copy["feature_flag"]["team_id"] == target.project_id
        assert read(target, copy)["id"] == copy["id"]
        nowhere = api.call("POST", path, {"target_team_id": 999999})
        assert (nowhere.status_code, nowhere.json()) == (404, {"detail": "Target team not found."})


@rule("6.13")
@pytest.mark.parametrize(
    "action",
    ["launch", "pause", "resume", "end", "reset", "archive", "unarchive", "ship_variant", "duplicate"],
)
def test_every_action(api: Api, action: str) -> None:
    assert api.refused("POST", f"/experiments/999999/{action}/", {"variant_key": "test"}, status=404)
    made = api.experiment()
    for step in {"launch": (), "duplicate": ()}.get(action, ("launch",)):
        act(api, made, step)
    for step in {"resume": ("pause",), "archive": ("end",), "unarchive": ("end", "archive")}.get(action, ()):
        act(api, made, step)
    answer = act(api, made, action, {"variant_key": "test", "unknown": 1})
    assert [name for name in answer if name != "warnings"] == list(api.experiment("complete"))
    assert api.refused("GET", f"/experiments/{made['id']}/{action}/", status=405)
    assert patch(api, made, name="still there")
