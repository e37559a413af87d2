"""The document of the application under test, and a project with one of everything in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.contract.conftest import Api, Laboratory

METHODS = ("get", "post", "put", "patch", "delete")
# What SDKs call has a contract of its own, which tests/capture, tests/flags and tests/clients hold it to.
SDK_TAGS = ("capture", "flag evaluation")

COMMITTED = Path(__file__).parents[3] / "docs" / "api" / "openapi.json"
RELEASED = Path(__file__).parent / "released.json"
"""The document of the last release; replaced when one is made."""
OPERATIONS = [
    (method, path)
    for path, item in json.loads(COMMITTED.read_bytes())["paths"].items()
    for method, operation in item.items()
    if method in METHODS and operation["tags"][0] not in SDK_TAGS
]
"""Method and path of every operation of the management API."""

ANSWERING = "return {'httpResponse': {'status': 200, 'body': [request.method, request.query, request.body]}}"

METRIC = {
    "kind": "ExperimentMetric",
    "metric_type": "mean",
    "name": "Purchases",
    "source": {"kind": "EventsNode", "event": "purchase"},
}


@dataclass(frozen=True)
class World:
    """One application with one of everything, and the document that it serves of itself."""

    laboratory: Laboratory
    api: Api
    document: dict[str, Any]
    ids: dict[str, list[Any]]
    """For each path parameter the values that lead somewhere."""


@pytest.fixture(scope="session")
def world(open_laboratory: Callable[..., Laboratory]) -> World:
    laboratory = open_laboratory()
    api = laboratory.api()
    document = api.ok("GET", "/api/schema/")
    return World(laboratory, api, document, _furnish(api))


def _furnish(api: Api) -> dict[str, list[Any]]:
    holdout = api.ok(
        "POST",
        "/experiment_holdouts/",
        {"name": "Everybody else", "filters": [{"properties": [], "rollout_percentage": 10}]},
        status=201,
    )
    metric = api.ok("POST", "/experiment_saved_metrics/", {"name": "Orders", "query": METRIC}, status=201)
    draft = api.experiment("draft", metrics=[METRIC], holdout_id=holdout["id"])
    running = api.experiment(
        "running", metrics=[METRIC], saved_metrics_ids=[{"id": metric["id"], "metadata": {"type": "primary"}}]
    )
    api.ok("POST", f"/experiments/{running['id']}/launch/")
    stopped = api.experiment("stopped", start_date="2026-01-01T00:00:00Z", end_date="2026-02-01T00:00:00Z")
    flag = api.ok(
        "POST",
        "/feature_flags/",
        {"key": "plain", "filters": {"groups": [{"properties": [], "rollout_percentage": 50}]}},
        status=201,
    )
    cohort = api.ok("POST", "/cohorts/", {"name": "Some", "is_static": True}, status=201)
    action = api.ok("POST", "/actions/", {"name": "Buy", "steps": [{"event": "purchase"}]}, status=201)
    (api.data / "warehouse").mkdir()
    (api.data / "warehouse" / "orders.csv").write_text("customer,at,amount\nc1,2026-01-01 10:00:00,2.5\n")
    table = api.ok("POST", "/warehouse_tables/", {"name": "orders", "url_pattern": "orders.csv"}, status=201)
    function = api.ok(
        "POST",
        "/hog_functions/",
        {"name": "Print", "type": "destination", "hog": "print(event.event)", "enabled": True},
        status=201,
    )
    webhook = api.ok(
        "POST",
        "/hog_functions/",
        {"name": "Hook", "type": "source_webhook", "hog": ANSWERING, "enabled": True},
        status=201,
    )
    day = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
    backfill = api.ok("POST", f"/hog_functions/{function['id']}/backfill/", day, status=201)
    templates = api.ok("GET", "/hog_function_templates/")["results"]
    key = api.ok(
        "POST", "/api/personal_api_keys/", {"label": "spare", "scopes": ["experiment:read"]}, status=201
    )
    query = {"kind": "ExperimentQuery", "experiment_id": running["id"], "metric": METRIC}
    asked = api.ok("POST", "/query/", {"query": query, "refresh": "async"}, status=202)
    spare = [
        api.ok("POST", "/api/organizations/@current/projects/", {"name": "spare"}, status=201)
        for _ in range(3)
    ]
    return {
        "project_id": [str(api.project_id)],
        "project": [str(project["id"]) for project in spare],  # they may be deleted
        "organization_id": ["@current"],
        "experiment_id": [draft["id"], running["id"], stopped["id"]],
        "holdout_id": [holdout["id"]],
        "metric_id": [metric["id"]],
        "flag_id": [flag["id"], running["feature_flag"]["id"]],
        "flag_key": ["plain", "running"],
        "cohort_id": [cohort["id"]],
        "recalculation_id": ["018f6c1e-7b0a-7000-8000-3f0c9a5b1d22", "nothing"],
        "action_id": [action["id"]],
        "table_id": [table["id"]],
        "function_id": [function["id"]],
        "backfill_id": [backfill["id"], "00000000-0000-4000-8000-000000000001"],
        "rerun_id": [
            "00000000-0000-4000-8000-000000000001"
        ],  # none goes on in the background with so few runs
        "webhook_id": [webhook["id"], f"{webhook['id']}.gif"],
        "version": [1, 2],
        "template_id": [template["id"] for template in templates[:3]],
        "key_id": [key["id"]],
        "session_id": ["00000000-0000-4000-8000-000000000001"],  # there is no browser here
        "person_id": ["00000000-0000-4000-8000-000000000001"],
        "record_id": [1, 2],  # nothing is in quarantine here: tests of ingestion put records there
        "query_id": [asked["query_status"]["id"], "nothing"],
        "event_id": ["00000000-0000-4000-8000-000000000001"],
    }
