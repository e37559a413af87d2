"""Test cases that functions carry with them are run on every save."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.contract.rules import rule
from tests.delivery.conftest import House
from tests.delivery.test_routes import EVENT, Api

from hoglab.accounts.bootstrap import FirstStart
from hoglab.delivery.trials.cases import TestCases
from hoglab.functions.configuration.builder import MAX_TESTS
from hoglab.functions.service import FunctionService

CODE = """
let answer := fetch(inputs.url, {'method': 'POST', 'headers': {'X-Token': inputs.token}, 'body': {'n': 1}})
if (answer.status >= 400) { throw Error(f'refused with {answer.status}') }
print('sent', event.event)
"""
CASE = {
    "name": "a page view is sent",
    "globals": {"event": EVENT},
    "expect": {
        "requests": [
            {"url": "https://x.io/in", "method": "POST", "headers": {"x-token": "s3cr3t"}, "body": {"n": 1}}
        ],
        "logs": ["sent, $pageview"],
    },
}
BODY: dict[str, Any] = {
    "name": "f",
    "hog": CODE,
    "inputs_schema": [
        {"key": "url", "type": "string"},
        {"key": "token", "type": "string", "secret": True},
    ],
    "inputs": {"url": {"value": "https://x.io/in"}, "token": {"value": "s3cr3t"}},
    "filters": {"events": [{"id": "$pageview", "type": "events"}]},
}


@pytest.fixture
def api(house: House, prepared: tuple[Any, FirstStart]) -> Iterator[Api]:
    key = prepared[1].api_key
    assert key is not None
    house.functions = FunctionService(
        house.database, house.box, house.delivery.states, check_tests=TestCases(house.delivery)
    )
    api = Api(house, key)
    yield api
    api.close()


def create(api: Api, *cases: dict[str, Any], **body: Any) -> Any:
    return api.call("POST", "/", {**BODY, "x_tests": list(cases), **body})


@rule("X1.1")
def test_cases_that_pass_are_kept(api: Api) -> None:
    refused = {
        "name": "an error of the service",
        "globals": {"event": EVENT},
        "responses": [{"status": 503}],
        "expect": {"status": "error"},
    }
    elsewhere = {
        "name": "other events start nothing",
        "globals": {"event": {**EVENT, "event": "x"}},
        "expect": {"status": "skipped", "requests": []},
    }
    made = create(api, CASE, refused, elsewhere)
    assert made.status_code == 201, made.text
    assert made.json()["x_tests"] == [CASE, refused, elsewhere]
    assert api.get(f"/{made.json()['id']}/")["x_tests"] == [CASE, refused, elsewhere]


@rule("X1.2")
@pytest.mark.parametrize(
    ("expect", "words"),
    [
        ({"status": "error"}, "the status is success, not error"),
        ({"requests": []}, "1 requests were made, not 0"),
        ({"requests": [{"url": "https://y.io"}]}, "the url of request 1 is another"),
        ({"requests": [{"method": "GET"}]}, "the method of request 1 is another"),
        ({"requests": [{"headers": {"X-Token": "t"}}]}, "the headers of request 1 is another"),
        ({"requests": [{"body": {"n": True}}]}, "the body of request 1 is another"),
        ({"result": 1}, "the result is another"),
        ({"logs": ["nowhere"]}, "nothing was logged that holds 'nowhere'"),
    ],
)
def test_a_case_that_fails_refuses_the_save(api: Api, expect: dict[str, Any], words: str) -> None:
    answer = create(api, CASE, {"name": "wrong", "globals": {"event": EVENT}, "expect": expect})
    assert answer.status_code == 400
    error = answer.json()
    assert (error["code"], error["attr"]) == ("test_failed", "x_tests__1")
    assert error["detail"] == f"Test case 'wrong' failed: {words}"
    assert error["extra"]["report"]["logs"]
    assert "s3cr3t" not in answer.text
    forced = create(api, {"name": "wrong", "globals": {"event": EVENT}, "expect": expect}, force=True)
    assert forced.status_code == 201


@rule("X1.2")
def test_every_later_save_runs_them(api: Api) -> None:
    path = f"/{create(api, CASE).json()['id']}/"
    broken = {"hog": CODE.replace("'n': 1", "'n': 2")}
    refused = api.call("PATCH", path, broken)
    assert (refused.status_code, refused.json()["attr"]) == (400, "x_tests__0")
    assert api.get(path)["hog"] == CODE.strip()
    assert api.call("PATCH", path, {"name": "x"}).status_code == 200
    assert api.call("PATCH", path, {**broken, "force": True}).status_code == 200
    assert api.call("PATCH", path, {"name": "y"}).status_code == 400
    back = api.call("POST", f"{path}revisions/1/rollback/", {})
    assert (back.status_code, back.json()["hog"]) == (200, CODE.strip())
    assert api.call("PATCH", path, {"x_tests": []}).json().get("x_tests") is None
    assert api.call("PATCH", path, broken).status_code == 200


@rule("X1.1")
def test_a_transformation_is_tested_by_its_result(api: Api) -> None:
    case = {"name": "t", "globals": {"event": EVENT}}
    code = "let changed := event\nchanged.properties.a := 1\nreturn changed"
    body = {"type": "transformation", "hog": code, "inputs_schema": [], "inputs": {}, "filters": {}}
    refused = create(api, {**case, "expect": {"result": None}}, **body)
    assert refused.json()["detail"] == "Test case 't' failed: the result is another"
    result = api.try_out({"configuration": body, "globals": {"event": EVENT}})["result"]
    assert result["properties"] == {"a": 1}
    assert create(api, {**case, "expect": {"result": result}}, **body).status_code == 201


@rule("X1.3")
@pytest.mark.parametrize(
    ("cases", "attr"),
    [
        ([{"name": "x"}], "x_tests__0__globals"),
        ([{"globals": {}}], "x_tests__0__name"),
        ([{"name": "x", "globals": {}, "expect": {"status": "x"}}], "x_tests__0__expect__status"),
        ([{"name": "x", "globals": {}}], "x_tests__0"),
        ([{"name": "x", "globals": {}}] * (MAX_TESTS + 1), "x_tests"),
        ({}, "x_tests"),
    ],
)
def test_what_is_no_test_case(api: Api, cases: Any, attr: str) -> None:
    answer = api.call("POST", "/", {**BODY, "x_tests": cases})
    assert (answer.status_code, answer.json()["attr"]) == (400, attr)


@rule("X1.3")
def test_types_that_cannot_be_tried(api: Api) -> None:
    answer = create(api, CASE, type="source_webhook")
    assert (answer.status_code, answer.json()["attr"]) == (400, "x_tests")
