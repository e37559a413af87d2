"""The unmodified PostHog Python SDK against a running server (spec sdk-wire 6)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from posthog import Posthog
from tests.conftest import StartServer

from hoglab.demo.server import ChildServer

pytestmark = pytest.mark.clients

USERS = 60


class Project:
    """A project of its own on a server, the API's view of it, and SDK clients that are shut down at the end."""

    def __init__(self, server: ChildServer) -> None:
        self.server = server
        self.clients: list[Posthog] = []
        headers = {"Authorization": f"Bearer {server.api_key}"}
        made = httpx.post(
            f"{server.url}/api/organizations/@current/projects/", json={"name": "Mine"}, headers=headers
        ).json()
        self.token = made["api_token"]
        self._http = httpx.Client(base_url=f"{server.url}/api/projects/{made['id']}", headers=headers)

    def sdk(self, **options: Any) -> Posthog:
        client = Posthog(self.token, host=self.server.url, **options)
        self.clients.append(client)
        return client

    def close(self) -> None:
        for client in self.clients:
            client.shutdown()
        self._http.close()

    def get(self, path: str, **query: Any) -> Any:
        answer = self._http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any) -> Any:
        answer = self._http.post(path, json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def flag(self, key: str, *, groups: list[dict[str, Any]] | None = None, **filters: Any) -> None:
        filters["groups"] = groups or [{"properties": [], "rollout_percentage": 100}]
        self.post("/feature_flags/", {"key": key, "filters": filters})

    def events(self, count: int, **query: Any) -> list[dict[str, Any]]:
        """The stored events, newest first, once there are ``count``."""
        return self.until(lambda: self.get("/events/", limit=1000, **query)["results"], count)

    def until(self, find: Callable[[], list[Any]], count: int) -> list[Any]:
        deadline = time.monotonic() + 30
        while len(found := find()) < count and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(found) == count
        return found


@pytest.fixture
def project(shared_server: ChildServer) -> Iterator[Project]:
    project = Project(shared_server)
    yield project
    project.close()


VARIANTS = {
    "variants": [
        {"key": "control", "rollout_percentage": 50},
        {"key": "test", "rollout_percentage": 50},
    ]
}


@pytest.mark.parametrize("gzip", [False, True])
def test_events_arrive_as_they_were_sent(project: Project, gzip: bool) -> None:
    client = project.sdk(gzip=gzip)
    sent = {
        client.capture(
            "viewed", distinct_id=f"user-{n}", properties={"n": n, "text": "é\u2028", "deep": {"a": [1]}}
        )
        for n in range(250)
    }
    client.shutdown()
    stored = project.events(250, event="viewed")
    assert {event["id"] for event in stored} == sent
    for event in stored:
        properties = event["properties"]
        assert event["distinct_id"] == f"user-{properties['n']}"
        assert properties["text"] == "é\u2028"
        assert properties["deep"] == {"a": [1]}
        assert properties["$lib"] == "posthog-python"


def test_people_follow_set_and_set_once(project: Project) -> None:
    client = project.sdk()
    client.set(distinct_id="ann", properties={"plan": "free", "email": "ann@example.com"})
    client.set_once(distinct_id="ann", properties={"first": 1})
    client.set_once(distinct_id="ann", properties={"first": 2})
    client.capture("upgraded", distinct_id="ann", properties={"$set": {"plan": "pro"}})
    client.shutdown()
    project.events(4)
    (person,) = project.get("/persons/", distinct_id="ann")["results"]
    assert person["properties"]["plan"] == "pro"
    assert person["properties"]["first"] == 1
    assert project.get("/persons/", search="ann@example.com")["results"][0]["id"] == person["id"]


def test_flags_and_their_exposures(project: Project) -> None:
    project.flag("everyone")
    project.flag("nobody", groups=[{"properties": [], "rollout_percentage": 0}])
    project.flag("multi", multivariate=VARIANTS, payloads={"test": '{"x": 2}'})
    project.flag(
        "pros",
        groups=[
            {
                "properties": [{"key": "plan", "type": "person", "value": ["pro"], "operator": "exact"}],
                "rollout_percentage": 100,
            }
        ],
    )
    client = project.sdk()
    seen = {}
    for number in range(USERS):
        user = f"user-{number}"
        plan = "pro" if number % 2 else "free"
        flags = client.evaluate_flags(user, person_properties={"plan": plan})
        assert flags.get_flag("everyone") is True
        assert flags.get_flag("nobody") is False
        assert flags.get_flag("missing") is None
        assert flags.is_enabled("pros") is (plan == "pro")
        seen[user] = flags.get_flag("multi")
        assert flags.get_flag_payload("multi") == ({"x": 2} if seen[user] == "test" else None)
    client.shutdown()
    assert set(seen.values()) == {"control", "test"}

    exposures = [
        event
        for event in project.events(USERS * 5, event="$feature_flag_called")
        if event["properties"]["$feature_flag"] == "multi"
    ]
    assert {
        event["distinct_id"]: event["properties"]["$feature_flag_response"] for event in exposures
    } == seen


def test_local_evaluation_equals_the_servers(project: Project) -> None:
    project.flag("half", groups=[{"properties": [], "rollout_percentage": 50}])
    project.flag("multi", multivariate=VARIANTS)
    remote = project.sdk()
    local = project.sdk(secret_key=project.server.api_key)
    local.load_feature_flags()
    for number in range(USERS):
        user = f"user-{number}"
        here = local.evaluate_flags(user, only_evaluate_locally=True)
        there = remote.evaluate_flags(user)
        for key in ("half", "multi"):
            assert here.get_flag(key) == there.get_flag(key), (key, user)


def test_a_stored_property_decides_when_none_is_sent(project: Project) -> None:
    project.flag(
        "pros",
        groups=[
            {
                "properties": [{"key": "plan", "type": "person", "value": "pro", "operator": "exact"}],
                "rollout_percentage": 100,
            }
        ],
    )
    client = project.sdk()
    client.set(distinct_id="ann", properties={"plan": "pro"})
    client.flush()
    project.events(1)
    project.until(lambda: [1] if client.evaluate_flags("ann").is_enabled("pros") else [], 1)
    assert client.evaluate_flags("bob").is_enabled("pros") is False
    assert client.evaluate_flags("ann", person_properties={"plan": "free"}).is_enabled("pros") is False


def test_events_wait_for_a_server_that_restarts(start_server: StartServer) -> None:
    project = Project(start_server())
    client = project.sdk(max_retries=10, flush_interval=0.1)
    for number in range(20):
        client.capture("before", distinct_id=f"user-{number}")
    client.flush()
    project.server.stop()
    sent = {client.capture("during", distinct_id=f"user-{number}") for number in range(20)}
    project.server.start()
    client.shutdown()
    stored = project.events(20, event="during")
    assert {event["id"] for event in stored} == sent
    assert len(project.events(20, event="before")) == 20
    project.close()


def test_a_wrong_token_is_refused_for_good(project: Project) -> None:
    failures: list[Exception] = []
    client = Posthog(
        "phc_nobodyhasthistoken",
        host=project.server.url,
        on_error=lambda error, _batch: failures.append(error),
    )
    client.capture("x", distinct_id="d")
    client.shutdown()
    assert [getattr(error, "status", None) for error in failures] == [401]
    assert project.get("/events/")["results"] == []


def test_an_encrypted_remote_config_is_read_in_clear_with_a_key_only(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(data=tmp_path / "data")
    project = Project(server)
    project.post(
        "/feature_flags/",
        {
            "key": "limits",
            "is_remote_configuration": True,
            "has_encrypted_payloads": True,
            "filters": {
                "groups": [{"properties": [], "rollout_percentage": 100}],
                "payloads": {"true": '{"word": "open sesame"}'},
            },
        },
    )
    payload = project.sdk(secret_key=server.api_key).get_remote_config_payload("limits")
    assert payload == {"word": "open sesame"}
    assert "sesame" not in str(project.sdk().evaluate_flags("somebody").get_flag_payload("limits"))
    project.close()
    server.stop()
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert files
    assert not any(b"open sesame" in path.read_bytes() for path in files)


def test_the_javascript_sdk_is_served_from_a_folder(start_server: StartServer, tmp_path: Path) -> None:
    files = tmp_path / "dist"
    files.mkdir()
    (files / "array.js").write_text("window.posthog = []")
    server = start_server(HOGLAB_SDK_FILES=str(files))
    answer = httpx.get(f"{server.url}/static/array.js")
    assert (answer.status_code, answer.text) == (200, "window.posthog = []")
    assert "javascript" in answer.headers["content-type"]
