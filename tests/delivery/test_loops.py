"""Functions that send events to their own project again and again are stopped (spec: hog-runtime 4.5)."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from tests.conftest import StartServer
from tests.waiting import PATIENCE_S, wait_for

from hoglab.capture import Capture, CaptureLimits, capture_routes
from hoglab.capture.routes import DiscardEndpoint
from hoglab.delivery.bodies.hosted import CHAIN_PROPERTY
from hoglab.delivery.execution.loops import (
    CAPTURE_PATHS,
    CHAIN_HEADER,
    DEPTH_PROPERTY,
    MAX_DEPTH,
    REFUSAL,
    WEBHOOK_REFUSAL,
    EndlessLoopError,
    chain_of,
    marked,
)
from hoglab.delivery.outbound.fetch import FetchRequest
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


def capturing_paths() -> list[str]:
    """Every path of the server that stores events."""
    routes = capture_routes(cast("Capture", SimpleNamespace(limits=CaptureLimits())))
    return sorted(path for path, endpoint in routes.items() if not isinstance(endpoint, DiscardEndpoint))


def test_every_path_that_takes_events_is_guarded() -> None:
    assert sorted(CAPTURE_PATHS) == capturing_paths()


@pytest.mark.parametrize("path", [*capturing_paths(), "/batch/", "/i/v1/analytics/events/", "/e/?ip=1"])
@pytest.mark.parametrize(
    "body",
    [
        {"api_key": TOKEN, "batch": [EVENT, EVENT]},
        {"token": TOKEN, **EVENT},
        {**EVENT, "properties": {"token": TOKEN}},
        [{"api_key": TOKEN, **EVENT}],
        {"api_key": TOKEN, "event": "e"},
        {"$token": f" {TOKEN} ", **EVENT},
        {"$token": TOKEN, "batch": [EVENT]},
        {"batch": [{"token": TOKEN, **EVENT}, {**EVENT, "properties": {"token": TOKEN}}]},
    ],
)
def test_events_for_the_own_project_are_marked(path: str, body: Any) -> None:
    assert set(map(str, marks(sent(SITE + path, body)))) == {str({"f": 1})}
    assert marks(sent(SITE + path, body, {"f": 4, "g": 9}))[0] == {"f": 5, "g": 9}


@pytest.mark.parametrize("path", capturing_paths())
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", f"Bearer {TOKEN}"),
        ("authorization", f"bearer  {TOKEN} "),
        ("AUTHORIZATION", f" Bearer {TOKEN}"),
    ],
)
def test_the_token_may_be_in_a_header(path: str, name: str, value: str) -> None:
    request = FetchRequest(SITE + path, headers={name: value}, body=json.dumps({"batch": [EVENT, EVENT]}))
    made = marked(request, site_url=SITE, token=TOKEN, function_id="f", causes=[cause({"f": 2})])
    assert marks(json.loads(made.body or "")) == [{"f": 3}] * 2
    assert dict(made.headers) == {name: value}
    with pytest.raises(EndlessLoopError):
        marked(request, site_url=SITE, token=TOKEN, function_id="f", causes=[cause({"f": MAX_DEPTH})])
    other = replace(request, headers={name: "Bearer phc_other"})
    assert marked(other, site_url=SITE, token=TOKEN, function_id="f", causes=[cause()]) is other


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


@pytest.mark.parametrize(
    ("length", "said"), [(None, "1"), (3, "4"), (9.0, "10"), (-5, "1"), ("x", "1"), (True, "1"), ([1], "1")]
)
def test_requests_to_webhooks_say_how_long_the_chain_is(length: Any, said: str) -> None:
    properties = {} if length is None else {CHAIN_PROPERTY: length}
    causes = [json.dumps({"event": {"properties": properties}}).encode(), b"no globals"]
    request = FetchRequest(f"{SITE}/public/webhooks/some", headers={"x-hoglab-chain": "0", "A": "b"})
    made = marked(request, site_url=SITE, token=TOKEN, function_id="f", causes=causes)
    assert made.headers == {"A": "b", CHAIN_HEADER: said}
    elsewhere = replace(request, url="https://other.example/public/webhooks/some")
    assert marked(elsewhere, site_url=SITE, token=TOKEN, function_id="f", causes=causes) is elsewhere


def test_a_chain_through_webhooks_has_a_longest_length() -> None:
    cause = json.dumps({"event": {"properties": {CHAIN_PROPERTY: MAX_DEPTH}}}).encode()
    with pytest.raises(EndlessLoopError, match="Refusing to fetch a webhook"):
        marked(
            FetchRequest(f"{SITE}/public/webhooks/x"),
            site_url=SITE,
            token=TOKEN,
            function_id="f",
            causes=[cause],
        )


def test_what_others_say_of_a_chain_is_read_strictly() -> None:
    said = [None, "", "-1", "x", "1e3", "9999", "\u0663", "007", "12"]
    assert [chain_of(text) for text in said] == [0, 0, 0, 0, 0, 0, 0, 7, 12]


@pytest.mark.parametrize("mark", ["x", [1], {"f": "9"}, {"f": True}, {"f": None}])
def test_marks_that_make_no_sense_count_nothing(mark: Any) -> None:
    assert marks(sent(f"{SITE}/e", {"token": TOKEN, **EVENT}, mark)) == [{"f": 1}]


def test_the_depth_has_a_limit() -> None:
    body = {"token": TOKEN, **EVENT}
    assert marks(sent(f"{SITE}/e", body, {"f": MAX_DEPTH - 1})) == [{"f": MAX_DEPTH}]
    with pytest.raises(EndlessLoopError, match="Refusing to fetch a PostHog ingestion endpoint"):
        sent(f"{SITE}/e", body, {"f": MAX_DEPTH})
    assert marks(sent(f"{SITE}/e", body, {"g": MAX_DEPTH})) == [{"g": MAX_DEPTH, "f": 1}]


@pytest.mark.parametrize("options", ["", ", {'headers': {'X-HOGLAB-CHAIN': '0'}}"])
def test_functions_that_start_each_other_through_a_webhook_are_stopped(
    start_server: StartServer, options: str
) -> None:
    server = start_server(HOGLAB_FETCH_ALLOW_CIDRS="127.0.0.0/8")
    api = Api(server.url, server.api_key)
    webhook = api.create_hog_function(
        {
            "type": "source_webhook",
            "name": "Hears",
            "enabled": True,
            "hog": "postHogCapture({'event': 'again', 'distinct_id': 'ada'})",
        }
    )
    caller = api.create_hog_function(
        {
            "name": "Calls",
            "enabled": True,
            "hog": f"fetch(inputs.url{options})",
            "inputs_schema": [{"key": "url", "type": "string"}],
            "inputs": {"url": {"value": f"{server.url}/public/webhooks/{webhook['id']}"}},
        }
    )
    with httpx.Client(headers={"Authorization": f"Bearer {server.api_key}"}, timeout=PATIENCE_S) as client:
        first = {"api_key": server.project_token, "batch": [{"event": "first", "distinct_id": "ada"}]}
        assert client.post(f"{server.url}/batch/", json=first).status_code == 200
        path = f"{server.url}/api/projects/1/hog_functions/{caller['id']}"

        def totals() -> dict[str, int]:
            found: dict[str, int] = client.get(f"{path}/metrics/totals/?breakdown_by=name").json()["totals"]
            return found

        # Each captured event is two functions further: the first one's request, and the webhook that heard it.
        wait_for(lambda: totals().get("failed"))
        counts = totals()
        assert (counts["succeeded"], counts["failed"]) == (MAX_DEPTH // 2, 1)
        lines = client.get(f"{path}/logs/").json()["results"]
        assert [line["message"] for line in lines if line["level"] == "ERROR"] == [WEBHOOK_REFUSAL]


V0 = "{'body': {'api_key': inputs.token, 'batch': [{'event': 'again', 'distinct_id': event.distinct_id}]}}"
V1 = """{
  'headers': {'Authorization': f'Bearer {inputs.token}', 'Content-Type': 'application/json', 'User-Agent': 'echo',
              'PostHog-Sdk-Info': 'echo/1', 'PostHog-Attempt': '1', 'PostHog-Request-Id': generateUUIDv4(),
              'PostHog-Request-Timestamp': '2026-01-01T00:00:00Z'},
  'body': {'batch': [{'event': 'again', 'distinct_id': event.distinct_id, 'uuid': generateUUIDv4(),
                      'timestamp': '2026-01-01T00:00:00Z'}]}
}"""


@pytest.mark.parametrize(("path", "options"), [("/batch/", V0), ("/i/v1/analytics/events", V1)])
def test_a_function_that_starts_itself_is_stopped(start_server: StartServer, path: str, options: str) -> None:
    server = start_server(HOGLAB_FETCH_ALLOW_CIDRS="127.0.0.0/8")
    api = Api(server.url, server.api_key)
    function = api.create_hog_function(
        {
            "name": "Echo",
            "enabled": True,
            "hog": f"fetch(inputs.url, {options})",
            "inputs_schema": [{"key": "url", "type": "string"}, {"key": "token", "type": "string"}],
            "inputs": {"url": {"value": f"{server.url}{path}"}, "token": {"value": server.project_token}},
        }
    )
    path = f"{server.url}/api/projects/1/hog_functions/{function['id']}"
    with httpx.Client(headers={"Authorization": f"Bearer {server.api_key}"}, timeout=PATIENCE_S) as client:
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
