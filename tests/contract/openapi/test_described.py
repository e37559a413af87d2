"""The check of every answer against the document finds what is off, and misses no operation."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from tests.contract.conftest import DOCUMENT, Api
from tests.contract.described import Described

LIST = "/api/projects/1/experiments/"


@pytest.fixture(scope="module")
def described() -> Described:
    return Described(json.loads(DOCUMENT.read_bytes()))


@pytest.fixture
def experiment(api: Api) -> dict[str, Any]:
    return api.experiment()


def answer(method: str, path: str, status: int, body: Any, **headers: str) -> httpx.Response:
    request = httpx.Request(method, f"http://hoglab.test{path}")
    if body is None:
        return httpx.Response(status, request=request)
    return httpx.Response(status, json=body, headers=headers, request=request)


def test_good_answers(described: Described, experiment: dict[str, Any]) -> None:
    page = {"count": 1, "next": None, "previous": None, "results": [experiment]}
    for path in (LIST, LIST.rstrip("/"), "/api/environments/@current/experiments/"):
        described.check(answer("GET", path, 200, page))
    described.check(answer("DELETE", f"{LIST}12/", 405, None))
    stats = dict.fromkeys(("launched_last_30d", "launched_previous_30d", "active_experiments"), 1)
    described.check(
        answer("GET", f"{LIST}stats/", 200, {**stats, "percent_change": 0.0, "completed_last_30d": 0})
    )
    assert described.seen["get /api/projects/{project_id}/experiments/: 200"] == 3
    assert described.seen["get /api/projects/{project_id}/experiments/stats/: 200"] == 1


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"id": "12"}, "id: "),
        ({"status": "resting"}, "status: "),
        ({"start_date": "yesterday"}, "start_date: "),
        ({"feature_flag": {}}, "feature_flag: "),
        ({"saved_metrics": [{}]}, "saved_metrics/0: "),
    ],
)
def test_bodies_off_their_schema(
    described: Described, experiment: dict[str, Any], change: dict[str, Any], what: str
) -> None:
    with pytest.raises(AssertionError, match=f"off its schema: {what}"):
        described.check(answer("GET", f"{LIST}12/", 200, experiment | change))


def test_missing_fields(described: Described, experiment: dict[str, Any]) -> None:
    del experiment["name"]
    with pytest.raises(AssertionError, match='"name" is a required property'):
        described.check(answer("POST", LIST, 201, experiment))


def test_errors_off_their_schema(described: Described) -> None:
    with pytest.raises(AssertionError, match="off its schema"):
        described.check(answer("POST", LIST, 400, {"detail": "no"}))


@pytest.mark.parametrize(
    ("status", "body", "headers", "what"),
    [
        (418, {}, {}, "418 is not in the document"),
        (200, {}, {"content-type": "text/plain"}, "200 is text/plain, not application/json"),
        (304, {}, {}, "304 has a body"),
    ],
)
def test_statuses_and_content_types(
    described: Described, status: int, body: Any, headers: dict[str, str], what: str
) -> None:
    with pytest.raises(AssertionError, match=what):
        described.check(answer("GET", f"{LIST}12/", status, body, **headers))


def test_every_operation_is_found(described: Described) -> None:
    for template, item in described.document["paths"].items():
        for method in item.keys() & {"get", "post", "put", "patch", "delete"}:
            path = template.replace("{", "").replace("}", "")
            before = dict(described.seen)
            if "default" in item[method]["responses"]:  # anything may come, of a type that is described
                with pytest.raises(AssertionError, match="599 is text/html"):
                    described.check(answer(method.upper(), path, 599, {}, **{"content-type": "text/html"}))
                continue
            with pytest.raises(AssertionError, match="599 is not in the document"):
                described.check(answer(method.upper(), path, 599, {}))
            assert described.seen == before


def test_the_client_of_the_suite_checks(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    monkeypatch.setattr(Described, "check", lambda _self, found: checked.append(str(found.url)))
    api.ok("GET", "/experiments/")
    assert checked == [f"http://hoglab.test/api/projects/{api.project_id}/experiments/"]
