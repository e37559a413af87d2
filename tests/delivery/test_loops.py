"""Functions that send events to their own project again and again are stopped (spec: hog-runtime 4.5)."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from tests.conftest import StartServer
from tests.delivery.conftest import wait_for

from hoglab.delivery.fetch import FetchRequest
from hoglab.delivery.loops import DEPTH_PROPERTY, MAX_DEPTH, REFUSAL, EndlessLoopError, marked
from hoglab.demo.api import Api

SITE = "https://hog.example"
TOKEN = "phc_own"
EVENT = {"event": "e", "distinct_id": "d", "properties": {"a": 1}}


def cause(mark: Any = None) -> bytes:
    properties = {} if mark is None else {DEPTH_PROPERTY: mark}
    return json.dumps({"event": {"uuid": "u", "properties": properties}}).encode()


def sent(url: str, body: Any, mark: Any = None) -> Any:
    text = body if isinstance(body, str) else json.dumps(body)
    request = FetchRequest(url, body=text)
    made = marked(request, site_url=SITE, token=TOKEN, function_id="f", causes=[cause(mark)])
    return None if made is request else json.loads(made.body or "")


def marks(body: Any) -> list[Any]:
    events = body if isinstance(body, list) else body.get("batch", [body])
    return [event["properties"].get(DEPTH_PROPERTY) for event in events]


@pytest.mark.parametrize("path", ["/capture", "/batch/", "/e", "/track/", "/i/v0/e/", "/e/?ip=1"])
@pytest.mark.parametrize(
    "body",
    [
        {"api_key": TOKEN, "batch": [EVENT, EVENT]},
        {"token": TOKEN, **EVENT},
        {**EVENT, "properties": {"token": TOKEN}},
        [{"api_key": TOKEN, **EVENT}],
        {"api_key": TOKEN, "event": "e"},
    ],
)
def test_events_for_the_own_project_are_marked(path: str, body: Any) -> None:
    assert set(map(str, marks(sent(SITE + path, body)))) == {str({"f": 1})}
    assert marks(sent(SITE + path, body, {"f": 4, "g": 9}))[0] == {"f": 5, "g": 9}


def test_marked_events_stay_as_they_were_otherwise() -> None:
    [event] = sent(f"{SITE}/batch", {"api_key": TOKEN, "batch": [EVENT]})["batch"]
    assert event == {**EVENT, "properties": {"a": 1, DEPTH_PROPERTY: {"f": 1}}}


@pytest.mark.parametrize(
    ("url", "body"),
    [
        ("https://other.example/batch", {"api_key": TOKEN, "batch": [EVENT]}),
        ("https://hog.example:8443/batch", {"api_key": TOKEN, "batch": [EVENT]}),
        (f"{SITE}/api/projects/", {"api_key": TOKEN, "batch": [EVENT]}),
        (f"{SITE}/batch", {"api_key": "phc_other", "batch": [{**EVENT, "event": TOKEN}]}),
        (f"{SITE}/batch", f"{TOKEN} is no JSON"),
        (f"{SITE}/batch", {"api_key": TOKEN, "batch": [1, None]}),
        (f"{SITE}/e", [1, TOKEN]),
        ("https://[", {"api_key": TOKEN, "batch": [EVENT]}),
    ],
)
def test_everything_else_goes_out_as_it_is(url: str, body: Any) -> None:
    assert sent(url, body, {"f": MAX_DEPTH}) is None


@pytest.mark.parametrize("mark", ["x", [1], {"f": "9"}, {"f": True}, {"f": None}])
def test_marks_that_make_no_sense_count_nothing(mark: Any) -> None:
    assert marks(sent(f"{SITE}/e", {"token": TOKEN, **EVENT}, mark)) == [{"f": 1}]


def test_the_depth_has_a_limit() -> None:
    body = {"token": TOKEN, **EVENT}
    assert marks(sent(f"{SITE}/e", body, {"f": MAX_DEPTH - 1})) == [{"f": MAX_DEPTH}]
    with pytest.raises(EndlessLoopError, match="Refusing to fetch a PostHog ingestion endpoint"):
        sent(f"{SITE}/e", body, {"f": MAX_DEPTH})
    assert marks(sent(f"{SITE}/e", body, {"g": MAX_DEPTH})) == [{"g": MAX_DEPTH, "f": 1}]


def test_a_function_that_starts_itself_is_stopped(start_server: StartServer) -> None:
    server = start_server(HOGLAB_FETCH_ALLOW_CIDRS="127.0.0.0/8")
    api = Api(server.url, server.api_key)
    body = "{'api_key': inputs.token, 'batch': [{'event': 'again', 'distinct_id': event.distinct_id}]}"
    function = api.create_hog_function(
        {
            "name": "Echo",
            "enabled": True,
            "hog": f"fetch(inputs.url, {{'body': {body}}})",
            "inputs_schema": [{"key": "url", "type": "string"}, {"key": "token", "type": "string"}],
            "inputs": {"url": {"value": f"{server.url}/batch/"}, "token": {"value": server.project_token}},
        }
    )
    path = f"{server.url}/api/projects/1/hog_functions/{function['id']}"
    with httpx.Client(headers={"Authorization": f"Bearer {server.api_key}"}, timeout=60) as client:
        first = {"api_key": server.project_token, "batch": [{"event": "first", "distinct_id": "ada"}]}
        assert client.post(f"{server.url}/batch/", json=first).status_code == 200

        def totals() -> dict[str, int]:
            found: dict[str, int] = client.get(f"{path}/metrics/totals/?breakdown_by=name").json()["totals"]
            return found

        wait_for(lambda: "failed" in totals())
        counts = totals()
        assert (counts["triggered"], counts["succeeded"], counts["failed"]) == (MAX_DEPTH + 1, MAX_DEPTH, 1)
        lines = client.get(f"{path}/logs/").json()["results"]
        assert [line["message"] for line in lines if line["level"] == "ERROR"] == [REFUSAL]
