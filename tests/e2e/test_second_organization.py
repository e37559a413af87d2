"""The key of a second organization on every operation, with the ids of what the first one has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from tests.http.asgi import Answer, ask

from hoglab.accounts.service import AccountService
from hoglab.app import Hoglab
from hoglab.http.identity import Level
from hoglab.settings import Settings
from hoglab.storage.database import Database

FIRST_KEY = "phx_" + "a" * 43
SECRET = "only-the-first-may-see-this"


@dataclass
class World:
    hoglab: Hoglab
    runner: asyncio.Runner
    second_key: str
    second_project: int
    first_organization: str

    def ask(self, key: str, method: str, path: str, body: Any = None) -> Answer:
        headers = [(b"authorization", f"Bearer {key}".encode()), (b"content-type", b"application/json")]
        parts = [] if body is None else [orjson.dumps(body)]
        return self.runner.run(ask(self.hoglab.http, method, path, headers, body=parts))

    def first(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.ask(FIRST_KEY, method, f"/api/projects/1/{path}", body)
        assert answer.status in (200, 201), (path, answer.body)
        return orjson.loads(answer.body)

    def operations(self) -> Iterator[tuple[str, str]]:
        """Method and path of each."""
        for operation in self.hoglab.http.management.table.operations():
            if operation.handler is not None and not operation.path.startswith("/api/environments/"):
                yield operation.method, operation.path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("organizations") / "data"
    hoglab = Hoglab.open(Settings(data=folder, bootstrap_api_key=FIRST_KEY, access_log=False))
    database = Database.open(folder / "hoglab.db")
    accounts = AccountService(database)
    first = accounts.project(1)
    assert first is not None
    organization = accounts.create_organization("Second")
    project = accounts.create_project(organization, "Second")
    user = accounts.create_user("second@example.com", current_project_id=project.id)
    accounts.join(organization, user.id, Level.OWNER)
    key = accounts.create_key(user.id, "second", ["*"]).value
    database.dispose()
    hoglab.start()
    try:
        with asyncio.Runner() as runner:
            yield World(hoglab, runner, key, project.id, first.organization_id)
    finally:
        hoglab.stop()


@pytest.fixture(scope="module")
def ids(world: World) -> dict[str, Any]:
    """One of each kind, of the first organization, by the names of parameters in paths."""
    function = world.first(
        "POST",
        "hog_functions/",
        {"type": "destination", "name": SECRET, "hog": f"print('{SECRET}')", "enabled": True},
    )
    flag = {"key": "f", "name": SECRET, "filters": {"groups": [{"rollout_percentage": 100}]}}
    metric = {
        "kind": "ExperimentMetric",
        "metric_type": "mean",
        "source": {"kind": "EventsNode", "event": "e"},
    }
    experiment = {"name": SECRET, "feature_flag_key": "x", "start_date": "2026-01-01", "metrics": [metric]}
    cohort = {"name": SECRET, "is_static": True}
    holdout = {"name": SECRET, "filters": [{"properties": [], "rollout_percentage": 10}]}
    made = {
        "experiment_id": world.first("POST", "experiments/", experiment)["id"],
        "holdout_id": world.first("POST", "experiment_holdouts/", holdout)["id"],
        "metric_id": world.first("POST", "experiment_saved_metrics/", {"name": SECRET, "query": metric})[
            "id"
        ],
        "action_id": world.first("POST", "actions/", {"name": SECRET, "steps": [{"event": "e"}]})["id"],
        "cohort_id": world.first("POST", "cohorts/", cohort)["id"],
        "flag_id": world.first("POST", "feature_flags/", flag)["id"],
        "flag_key": "f",
        "function_id": function["id"],
        "version": "1",
        "organization_id": world.first_organization,
        "record_id": 1,
    }
    keys = orjson.loads(world.ask(FIRST_KEY, "GET", "/api/personal_api_keys/").body)
    made["key_id"] = (keys["results"] if isinstance(keys, dict) else keys)[0]["id"]
    return made


UNKNOWN = "0199f0f0-0000-7000-8000-000000000000"


def filled(path: str, project: int, ids: dict[str, Any]) -> str:
    parts = []
    for part in path.strip("/").split("/"):
        name = part.strip("{}") if part.startswith("{") else None
        parts.append(
            part if name is None else str(project if name == "project_id" else ids.get(name, UNKNOWN))
        )
    return "/" + "/".join(parts) + "/"


def state(world: World, ids: dict[str, Any]) -> list[Any]:
    """All that the first organization has, as it shows."""
    paths = [
        path
        for method, path in world.operations()
        if method == "GET" and path.startswith("/api/projects/{project_id}/") and path.endswith("_id}")
    ]
    found = []
    for path in paths:
        answer = world.ask(FIRST_KEY, "GET", filled(path, 1, ids))
        if answer.status == 200:
            found.append((path, orjson.loads(answer.body)))
    return found


def test_nothing_of_another_organization_is_shown_or_changed(world: World, ids: dict[str, Any]) -> None:
    before = state(world, ids)
    assert len(before) >= 7, "the ids lead somewhere"
    tried = 0
    for method, path in world.operations():
        own = path.removeprefix("/api/projects/{project_id}").lstrip("/")
        scoped = path.startswith("/api/projects/{project_id}")
        names_object = "{" in own
        for project in (1, world.second_project) if scoped else (world.second_project,):
            if not (project == 1 or names_object):
                continue  # their own lists
            body = {} if method in ("POST", "PUT", "PATCH") else None
            answer = world.ask(world.second_key, method, filled(path, project, ids), body)
            tried += 1
            what = (method, path, project, answer.status, answer.body[:200])
            assert SECRET.encode() not in answer.body, what
            assert answer.status < 500, what
            if project == 1 and scoped:
                assert answer.status in (403, 404), what
            elif answer.status not in (400, 403, 404, 405):  # then nobody can tell that there is such a thing
                unknown = world.ask(world.second_key, method, filled(path, project, {}), body)
                assert (answer.status, answer.body) == (unknown.status, unknown.body), what
    assert tried > 200
    assert state(world, ids) == before
