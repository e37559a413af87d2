"""The actions API, on a running server: what is accepted, and that metrics and functions follow an action."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from hoglab.actions.schemas import MAX_STEPS
from hoglab.actions.service import checked_steps
from hoglab.demo.server import ChildServer
from hoglab.http.errors import ApiError

SIGNED_UP = [{"event": "signed up", "properties": [{"key": "plan", "type": "event", "value": "pro"}]}]


@pytest.fixture
def api(shared_server: ChildServer) -> Iterator[httpx.Client]:
    """The management API inside a project of its own."""
    headers = {"Authorization": f"Bearer {shared_server.api_key}"}
    with httpx.Client(base_url=shared_server.url, headers=headers) as client:
        made = client.post("/api/organizations/@current/projects/", json={"name": "Actions"})
        client.base_url = httpx.URL(f"{shared_server.url}/api/projects/{made.json()['id']}")
        yield client


def create(api: httpx.Client, name: str = "Sign-up", steps: Any = SIGNED_UP, **more: Any) -> dict[str, Any]:
    answer = api.post("/actions/", json={"name": name, "steps": steps, **more})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_an_action_in_full(api: httpx.Client) -> None:
    made = create(api, tags=["Growth", "growth"], description="Paid ones")
    assert {
        name: made[name] for name in ("name", "description", "tags", "steps", "deleted", "is_action")
    } == {
        "name": "Sign-up",
        "description": "Paid ones",
        "tags": ["growth"],
        "steps": SIGNED_UP,
        "deleted": False,
        "is_action": True,
    }
    assert made["bytecode_error"] is None
    assert made["created_by"]["email"] == "owner@localhost"
    assert api.get(f"/actions/{made['id']}").json() == made


def test_list_and_search(api: httpx.Client) -> None:
    ids = [create(api, name)["id"] for name in ("Alpha", "Beta", "Alphabet")]
    assert [one["id"] for one in api.get("/actions/").json()["results"]] == ids[::-1]
    assert [one["id"] for one in api.get("/actions/?search=alpha&limit=1").json()["results"]] == [ids[2]]


def test_delete_and_restore(api: httpx.Client) -> None:
    path = f"/actions/{create(api)['id']}/"
    refused = api.delete(path)
    assert (refused.status_code, refused.content) == (405, b"")
    assert api.patch(path, json={"deleted": True}).json()["deleted"] is True
    assert api.get(path).status_code == 404
    assert api.patch(path, json={"name": "x"}).status_code == 404
    assert api.get("/actions/").json()["count"] == 0
    assert api.patch(path, json={"deleted": False}).status_code == 200
    assert api.get(path).status_code == 200


def test_names_are_unique_among_those_that_exist(api: httpx.Client) -> None:
    first = create(api)
    again = api.post("/actions/", json={"name": "Sign-up"})
    assert (again.status_code, again.json()["code"], again.json()["attr"]) == (400, "unique", "name")
    api.patch(f"/actions/{first['id']}/", json={"deleted": True})
    create(api)
    taken = api.patch(f"/actions/{first['id']}/", json={"deleted": False})
    assert (taken.status_code, taken.json()["code"]) == (400, "unique")


def test_changes_are_logged(api: httpx.Client) -> None:
    made = create(api)
    path = f"/actions/{made['id']}/"
    api.patch(path, json={"name": "Registration"})
    api.patch(path, json={"name": "Registration"})
    api.patch(path, json={"deleted": True})
    log = api.get("/activity_log/", params={"scope": "Action", "item_id": made["id"]}).json()["results"]
    assert [entry["activity"] for entry in log] == ["deleted", "updated", "created"]
    assert log[1]["detail"]["changes"] == [
        {"type": "Action", "action": "changed", "field": "name", "before": "Sign-up", "after": "Registration"}
    ]


@pytest.mark.parametrize(
    ("steps", "attr", "text"),
    [
        ("everything", "steps", "list"),
        ([1], "steps__0", "object"),
        ([{"event": ["a"]}], "steps__0__event", "string"),
        ([{"url": "a", "url_matching": "roughly"}], "steps__0__url_matching", "choice"),
        ([{"url": "(", "url_matching": "regex"}], "steps", "url"),
        ([{"event": "a", "properties": "plan"}], "steps", "properties"),
        ([{}] * (MAX_STEPS + 1), "steps", "100"),
    ],
)
def test_steps_that_cannot_match_are_refused(api: httpx.Client, steps: Any, attr: str, text: str) -> None:
    answer = api.post("/actions/", json={"name": "Bad", "steps": steps})
    assert answer.status_code == 400
    assert answer.json()["attr"] == attr
    assert text in answer.json()["detail"]


def test_steps_keep_what_was_sent_of_the_known_parts() -> None:
    step = {"event": "$autocapture", "text": "Buy", "text_matching": "contains", "selector": "button.buy"}
    assert checked_steps([{**step, "unknown": 1}]) == [step]
    with pytest.raises(ApiError):
        checked_steps([{"event": "$autocapture", "selector": ">>"}])


def test_a_cohort_in_a_step_is_no_mistake() -> None:
    step = {"properties": [{"key": "id", "type": "cohort", "value": 4, "operator": "in"}]}
    assert checked_steps([step]) == [step]


def test_functions_follow_the_action(api: httpx.Client) -> None:
    action = create(api)
    filters = {"actions": [{"id": str(action["id"]), "type": "actions"}]}
    body = {"type": "destination", "name": "F", "hog": "print(1)", "filters": filters, "enabled": True}
    function = api.post("/hog_functions/", json=body).json()
    before = function["filters"]["bytecode"]

    def compiled() -> dict[str, Any]:
        found: dict[str, Any] = api.get(f"/hog_functions/{function['id']}/").json()["filters"]
        return found

    api.patch(f"/actions/{action['id']}/", json={"steps": [{"event": "registered"}]})
    _wait(lambda: compiled()["bytecode"] != before)
    assert "registered" in compiled()["bytecode"]
    assert api.patch(f"/actions/{action['id']}/", json={"deleted": True}).status_code == 400
    api.patch(f"/hog_functions/{function['id']}/", json={"enabled": False})
    assert api.patch(f"/actions/{action['id']}/", json={"deleted": True}).status_code == 200
    _wait(lambda: compiled().get("bytecode_error"))
    assert f"Action {action['id']} does not exist" in compiled()["bytecode_error"]


def test_metrics_name_actions_that_exist(api: httpx.Client) -> None:
    action = create(api)
    node = {"kind": "ActionsNode", "id": action["id"]}
    metric = {"kind": "ExperimentMetric", "metric_type": "mean", "source": node}
    body = {"name": "E", "feature_flag_key": "e", "metrics": [metric]}
    made = api.post("/experiments/", json=body)
    assert made.status_code == 201, made.text
    api.patch(f"/actions/{action['id']}/", json={"name": "Registration"})
    shown = api.get(f"/experiments/{made.json()['id']}/").json()
    assert shown["metrics"][0]["source"]["name"] == "Registration"
    assert api.get("/experiments/?event=signed+up").json()["count"] == 1
    api.patch(f"/actions/{action['id']}/", json={"deleted": True})
    refused = api.post("/experiments/", json={**body, "feature_flag_key": "e2"})
    assert f"ID {action['id']} not found or deleted" in refused.json()["detail"]


def _wait(reached: Any, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)
