"""Logs, metrics, test runs and states over HTTP (spec: hog-functions-api 12, 14, 16, 17)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import orjson
import pytest
from aiohttp import web
from tests.apps import app_of
from tests.contract.rules import rule
from tests.delivery.conftest import House, Receiver, stored

from hoglab.accounts.bootstrap import FirstStart
from hoglab.delivery.api.routes import router
from hoglab.functions.api import routes as function_routes
from hoglab.http.app import HoglabApp
from hoglab.http.management.routing import ResourceRouter
from hoglab.storage.invocations import AppMetric, LogEntry

EVENT = {
    "uuid": "0199a3d4-aaaa-7000-8000-000000000009",
    "event": "$pageview",
    "distinct_id": "d1",
    "timestamp": "2026-01-05T10:00:00Z",
    "properties": {},
}
DESTINATION = {
    "type": "destination",
    "name": "t",
    "hog": "let r := fetch(inputs.url, {'method': 'POST'});\nprint('status', r.status)",
    "inputs_schema": [{"key": "url", "type": "string", "required": True}],
    "inputs": {"url": {"value": "https://hooks.example.com/in"}},
}


class Api:
    def __init__(self, house: House, key: str, *more: ResourceRouter) -> None:
        self.house = house
        self.app: HoglabApp = app_of(
            house.accounts,
            *more,
            function_routes.router(house.functions),
            router(house.delivery, house.functions, house.database),
        )
        self._key = key
        self._runner = asyncio.Runner()

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8000") as client:
                headers = {"Authorization": f"Bearer {self._key}"}
                url = f"/api/projects/1/hog_functions{path}"
                content = None if body is None else orjson.dumps(body)
                headers["Content-Type"] = "application/json"
                return await client.request(method, url, headers=headers, content=content, **options)

        return self._runner.run(go())

    def get(self, path: str, **params: Any) -> Any:
        answer = self.call("GET", path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def try_out(self, body: dict[str, Any], function_id: str = "new") -> Any:
        answer = self.call("POST", f"/{function_id}/invocations/", body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, body: dict[str, Any], function_id: str = "new") -> Any:
        answer = self.call("POST", f"/{function_id}/invocations/", body)
        assert answer.status_code == 400, answer.text
        return answer.json()

    def close(self) -> None:
        self.app.close()
        self._runner.close()


@pytest.fixture
def api(house: House, prepared: tuple[Any, FirstStart]) -> Iterator[Api]:
    key = prepared[1].api_key
    assert key is not None
    api = Api(house, key)
    yield api
    api.close()


# --- test runs


@rule("F14.1", "F14.3")
def test_a_test_run_with_a_mocked_request(api: Api) -> None:
    answer = api.try_out({"configuration": DESTINATION, "globals": {"event": EVENT}})
    assert (answer["result"], answer["status"], answer["errors"]) == (None, "success", [])
    messages = [(line["level"], line["message"]) for line in answer["logs"]]
    assert messages[:3] == [
        ("info", "Async function 'fetch' was mocked with arguments:"),
        ("info", 'fetch(\'https://hooks.example.com/in\', {\n  "method": "POST"\n})'),
        ("info", "status, 200"),
    ]
    assert messages[3][0] == "debug"
    assert messages[3][1].startswith("Function completed in ")
    assert api.house.rows("log_entry", "message", "id") == []
    assert api.house.rows("app_metric", "metric_name", "hour") == []
    assert api.house.queue.counts.backlog() == 0


@rule("F14.3")
def test_a_test_run_may_send_its_request(api: Api, receiver: Receiver) -> None:
    configuration = {**DESTINATION, "inputs": {"url": {"value": f"{receiver.url}/x?a={{event.event}}"}}}
    body = {"configuration": configuration, "globals": {"event": EVENT}, "mock_async_functions": False}
    answer = api.try_out(body)
    assert answer["status"] == "success"
    assert answer["logs"][0]["message"] == "status, 200"
    assert [hit.path for hit in receiver.hits] == ["/x?a=$pageview"]


@rule("F10.6")
def test_a_test_run_of_a_stored_function_keeps_its_secrets_and_hides_them(api: Api) -> None:
    function = api.house.create("print(inputs.key, event.event)", secrets={"key": "s3cr3t"})
    configuration = {**function, "inputs": {"key": {"secret": True}}}
    answer = api.try_out({"configuration": configuration, "globals": {"event": EVENT}}, function["id"])
    assert answer["logs"][0]["message"] == "***REDACTED***, $pageview"


@rule("F14.4")
def test_a_test_run_that_the_filters_turn_away_is_skipped(api: Api) -> None:
    filters = {"events": [{"id": "purchase", "type": "events"}]}
    body = {"configuration": {**DESTINATION, "filters": filters}, "globals": {"event": EVENT}}
    answer = api.try_out(body)
    assert answer["status"] == "skipped"
    assert [line["message"] for line in answer["logs"]] == [
        "Mapping trigger not matching filters was ignored."
    ]


@rule("F14.6")
def test_a_test_run_from_an_event_row(api: Api) -> None:
    row = {
        "uuid": EVENT["uuid"],
        "event": "signup",
        "distinct_id": "d7",
        "timestamp": "2026-01-05 10:00:00.123000",
        "properties": '{"plan":"pro"}',
        "person_id": "0199a3d4-aaaa-7000-8000-000000000001",
        "person_properties": '{"email":"a@x.io"}',
    }
    code = "print(event.event, event.timestamp, event.properties.plan, person.name, project.url, event.url)"
    answer = api.try_out({"configuration": {**DESTINATION, "hog": code}, "clickhouse_event": row})
    project = "https://h.example/project/1"
    assert answer["logs"][0]["message"] == (
        f"signup, 2026-01-05T10:00:00.123Z, pro, a@x.io, {project}, "
        f"{project}/events/{EVENT['uuid']}/2026-01-05T10%3A00%3A00.123Z"
    )


@rule("F14.5")
def test_a_test_run_of_a_transformation_gives_the_event(api: Api) -> None:
    def run(code: str, **more: Any) -> Any:
        configuration = {"type": "transformation", "name": "t", "hog": code, **more}
        return api.try_out({"configuration": configuration, "globals": {"event": EVENT}})

    changed = run("let e := event e.properties.seen := true return e")
    assert changed["status"] == "success"
    assert changed["result"]["event"] == "$pageview"
    assert changed["result"]["uuid"] == EVENT["uuid"]
    assert changed["result"]["properties"] == {"seen": True}
    dropped = run("return null")
    assert (dropped["result"], dropped["status"], dropped["logs"]) == (None, "success", [])
    for without_value in ("let e := event", "if (event.event = 'other') { return event }"):
        told = run(without_value)
        assert (told["result"], told["status"]) == (None, "success")
        [line] = told["logs"]
        assert line["level"] == "warn"
        assert line["message"].startswith(
            "1 event was dropped, because the program came to its end without `return`."
        )
    [line] = run("let e := event e.timestamp := '2020-01-01T00:00:00Z' return e")["logs"]
    assert (line["level"], "another `timestamp`" in line["message"]) == ("warn", True)
    failed = run("throw Error('no')")
    assert (failed["result"], failed["status"]) == (None, "error")
    assert "Error('no')" in failed["errors"][0]
    filters = {"events": [{"id": "purchase", "type": "events"}]}
    assert run("return event", filters=filters)["status"] == "skipped"


@rule("F14.7")
def test_errors_of_a_run_are_its_answer(api: Api) -> None:
    answer = api.try_out(
        {"configuration": {**DESTINATION, "hog": "throw Error('x')"}, "globals": {"event": EVENT}}
    )
    assert (answer["status"], answer["errors"]) == ("error", ["Error('x')"])
    many = "let i := 0 while (i < 6) { fetch('https://a.example') i := i + 1 }"
    answer = api.try_out({"configuration": {**DESTINATION, "hog": many}, "globals": {"event": EVENT}})
    assert answer["errors"] == ["Exceeded maximum number of async steps: 5"]


@rule("F14.8", "F14.2")
def test_bad_test_runs_are_refused(api: Api) -> None:
    good = {"configuration": DESTINATION, "globals": {"event": EVENT}}
    missing = api.refused({"globals": {"event": EVENT}})
    assert missing == {
        "type": "validation_error",
        "code": "invalid_input",
        "detail": "Required unless use_draft is true.",
        "attr": "configuration",
    }
    assert api.refused({**good, "configuration": {**DESTINATION, "inputs": {}}}) == {
        "configuration": {"inputs": {"url": ["This field is required."]}}
    }
    assert api.refused({"configuration": DESTINATION}) == {"status": "error", "errors": ["Missing event"]}
    assert api.refused({**good, "invocation_id": "x"}) == {
        "status": "error",
        "errors": ["Invalid invocation ID"],
    }
    webhook = {**DESTINATION, "type": "source_webhook"}
    assert api.refused({**good, "configuration": webhook}) == {
        "status": "error",
        "errors": ["Invalid function type"],
    }


# --- logs


@rule("F16.2")
def test_logs_are_newest_first_and_can_be_narrowed(api: Api) -> None:
    house = api.house
    function = house.create()
    start = datetime(2026, 1, 5, 10, 1, 0, 1000, tzinfo=UTC)
    run, other = "0199a3d5-0001-7000-8000-000000000001", "0199a3d5-0001-7000-8000-000000000002"
    house.queue.write_logs(
        [
            LogEntry(1, function["id"], run, start, "info", "sending"),
            LogEntry(1, function["id"], run, start + timedelta(milliseconds=1), "error", "Failed 100%"),
            LogEntry(1, function["id"], other, start + timedelta(seconds=1), "debug", "done"),
        ]
    )
    path = f"/{function['id']}/logs/"
    answer = api.get(path, limit=2, level="INFO,error")
    assert answer == {
        "count": 2,
        "next": None,
        "previous": None,
        "results": [
            {
                "log_source_id": function["id"],
                "instance_id": run,
                "timestamp": "2026-01-05T10:01:00.002000Z",
                "level": "ERROR",
                "message": "Failed 100%",
            },
            {
                "log_source_id": function["id"],
                "instance_id": run,
                "timestamp": "2026-01-05T10:01:00.001000Z",
                "level": "INFO",
                "message": "sending",
            },
        ],
    }

    def messages(**query: Any) -> list[str]:
        return [line["message"] for line in api.get(path, **query)["results"]]

    assert messages() == ["done", "Failed 100%", "sending"]
    assert messages(search="FAILED 100%") == ["Failed 100%"]
    assert messages(search="_") == []
    assert messages(instance_id=other) == ["done"]
    assert messages(before="2026-01-05T10:01:00.002Z") == ["sending"]
    assert messages(after="2026-01-05T10:01:00.002Z") == ["done"]
    assert messages(limit=2, offset=1) == ["Failed 100%"]


@rule("F16.1")
@pytest.mark.parametrize(
    ("name", "value", "code"),
    [("limit", "0", "min_value"), ("limit", "501", "max_value"), ("after", "yesterday", "invalid_input")],
)
def test_bad_log_queries_are_refused(api: Api, name: str, value: str, code: str) -> None:
    function = api.house.create()
    answer = api.call("GET", f"/{function['id']}/logs/", params={name: value})
    assert answer.status_code == 400
    assert (answer.json()["attr"], answer.json()["code"]) == (name, code)


# --- metrics


@rule("F17.2", "F17.3")
def test_metrics_over_time_and_in_sum(api: Api) -> None:
    house = api.house
    function = house.create()
    now = datetime.now(UTC)
    rows = [("success", "succeeded", 4, 0), ("success", "succeeded", 12, 1), ("failure", "failed", 1, 1)]
    house.queue.write_metrics(
        [
            AppMetric(1, function["id"], kind, name, count, now - timedelta(days=days))
            for kind, name, count, days in rows
        ]
    )
    days = [(now - timedelta(days=back)).strftime("%Y-%m-%d") for back in (2, 1, 0)]
    path = f"/{function['id']}/metrics/"
    assert api.get(path, after="-2d", breakdown_by="name", interval="day") == {
        "labels": days,
        "series": [{"name": "failed", "values": [0, 1, 0]}, {"name": "succeeded", "values": [0, 12, 4]}],
    }
    assert api.get(f"{path}totals/", breakdown_by="name") == {"totals": {"failed": 1, "succeeded": 16}}
    assert api.get(f"{path}totals/") == {"totals": {"failure": 1, "success": 16}}
    assert api.get(f"{path}totals/", name="failed") == {"totals": {"failure": 1}}
    assert api.get(f"{path}totals/", kind="success", after="-3h") == {"totals": {"success": 4}}
    hours = api.get(path, after="-3h", interval="hour")
    assert len(hours["labels"]) == 4
    assert hours["labels"][-1] == now.strftime("%Y-%m-%dT%H:00")
    assert hours["series"] == [{"name": "success", "values": [0, 0, 0, 4]}]
    weeks = api.get(path, interval="week", after="-1m")
    assert sum(weeks["series"][1]["values"]) == 16
    assert all(datetime.fromisoformat(label).weekday() == 0 for label in weeks["labels"])


@rule("F20.9")
def test_a_draft_can_be_tried_before_it_is_published(api: Api) -> None:
    function = api.house.create("print('first')", enabled=False)
    api.house.change(function, hog="print('second')")
    body = {"use_draft": True, "globals": {"event": EVENT}}
    assert api.try_out(body, function["id"])["logs"][0]["message"] == "second"
    assert api.call("POST", f"/{function['id']}/revisions/1/restore/", {}).status_code == 200
    assert api.try_out(body, function["id"])["logs"][0]["message"] == "first"
    sent = {"configuration": {"hog": "print('sent')"}, **body}
    assert api.try_out(sent, function["id"])["logs"][0]["message"] == "sent"


def test_a_function_without_metrics_has_none(api: Api) -> None:
    function = api.house.create()
    assert api.get(f"/{function['id']}/metrics/totals/") == {"totals": {}}
    answer = api.get(f"/{function['id']}/metrics/")
    assert answer["series"] == []
    assert len(answer["labels"]) == 8


@rule("F17.3")
@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("interval", "minute", "invalid_choice"),
        ("breakdown_by", "colour", "invalid_choice"),
        ("after", "soon", "invalid_input"),
        ("after", "-999999y", "invalid_input"),
        ("before", "x", "invalid_input"),
    ],
)
def test_bad_metric_queries_are_refused(api: Api, name: str, value: str, code: str) -> None:
    function = api.house.create()
    answer = api.call("GET", f"/{function['id']}/metrics/", params={name: value})
    assert answer.status_code == 400
    assert (answer.json()["attr"], answer.json()["code"]) == (name, code)


@pytest.mark.parametrize("tail", ["logs", "metrics", "metrics/totals", "status"])
def test_unknown_functions_are_not_found(api: Api, tail: str) -> None:
    function = api.house.create()
    api.house.change(function, deleted=True)
    for function_id in (function["id"], "0199a3d4-aaaa-7000-8000-000000000009", "x"):
        assert api.call("GET", f"/{function_id}/{tail}/").status_code == 404


# --- states


@rule("F12.3")
def test_the_state_of_a_function_can_be_set_by_hand(api: Api, receiver: Receiver) -> None:
    function = api.house.create("fetch(inputs.url)", values={"url": receiver.url})
    path = f"/{function['id']}/status/"
    assert api.get(path) == {"state": 1, "tokens": 10_000}
    assert api.call("PATCH", path, {"state": 12}).json() == {"state": 12, "tokens": 10_000}
    api.house.run(stored())
    assert receiver.hits == []
    assert api.house.metrics(function) == {"disabled_permanently": 1}
    refused = api.call("PATCH", path, {"state": 5})
    assert (refused.status_code, refused.json()) == (400, {"error": "Invalid state"})
    unknown = api.call("PATCH", "/0199a3d4-aaaa-7000-8000-000000000009/status/", {"state": 1})
    assert (unknown.status_code, unknown.json()) == (404, {"error": "Hog function not found"})
    assert api.call("GET", f"/{function['id']}/").json()["status"] == {"state": 12, "tokens": 10_000}


# --- broadcast


def add_persons(house: House, *emails: str) -> None:
    with house.database.write() as tx:
        for number, email in enumerate(emails, 1):
            tx.connection.exec_driver_sql(
                "INSERT INTO person (id, project_id, uuid, properties, is_identified, created_at, version) "
                "VALUES (?, 1, ?, ?, 1, 0, 0)",
                (number, f"0190a3d4-0000-7000-8000-{number:012d}", orjson.dumps({"email": email}).decode()),
            )
            for extra in ("a", "b"):
                tx.connection.exec_driver_sql(
                    "INSERT INTO person_distinct_id (project_id, distinct_id, person_id) VALUES (1, ?, ?)",
                    (f"d{number}{extra}", number),
                )


@rule("F15.2")
def test_a_broadcast_runs_once_for_every_person_that_the_filters_match(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hoglab.delivery.replay.broadcast.PAGE", 2)
    add_persons(api.house, "a@x.io", "b@y.io", "c@x.io", "d@x.io", "e@x.io")
    only = {"key": "email", "type": "person", "operator": "icontains", "value": "x.io"}
    function = api.house.create(
        "print(event.event, event.distinct_id, person.name, person.created_at, inputs.a)",
        values={"a": "{person.properties.email}"},
        filters={"events": [{"id": "never", "type": "events"}], "properties": [only]},
    )
    answer = api.call("POST", f"/{function['id']}/broadcast/", {})
    assert (answer.status_code, answer.json()) == (200, {"success": True})
    api.house.run()
    assert sorted(text for level, text in api.house.logs(function) if level == "info") == [
        f"$broadcast, d{number}a, {email}, 1970-01-01T00:00:00.000Z, {email}"
        for number, email in ((1, "a@x.io"), (3, "c@x.io"), (4, "d@x.io"), (5, "e@x.io"))
    ]
    assert api.house.metrics(function) == {"triggered": 4, "succeeded": 4}


@rule("F15.1")
def test_what_cannot_be_broadcast_is_refused(api: Api) -> None:
    off = api.house.create(enabled=False)
    answer = api.call("POST", f"/{off['id']}/broadcast/", {})
    assert (answer.status_code, answer.json()) == (400, {"error": "Cannot broadcast: function is disabled"})
    transformation = api.house.create("return event", type="transformation")
    answer = api.call("POST", f"/{transformation['id']}/broadcast/", {})
    assert answer.json() == {"error": "Broadcast is not supported for this function type"}
    assert api.house.queue.counts.backlog() == 0


# --- running again


@rule("F20.2")
def test_failed_invocations_are_run_again_with_the_present_configuration(
    api: Api, receiver: Receiver
) -> None:
    house = api.house
    receiver.answer = lambda request, _number: web.Response(status=400 if request.path == "/old" else 200)
    function = house.create(
        "fetch(inputs.url, {'body': event.properties.n}) print(person.name, groups)",
        values={"url": f"{receiver.url}/old"},
    )
    broken = house.create(values={"a": "{jsonParse(event.properties.n)}"})
    house.run(stored(properties={"n": "no json"}))
    before = {result["invocation_id"] for result in house.results()}
    house.change(function, inputs={"url": {"value": f"{receiver.url}/new"}})
    path = f"/{function['id']}/rerun/"
    again = api.call("POST", path, {"filter": {"error_kind": ["timeout"]}})
    assert (again.status_code, again.json()["queued_count"]) == (200, 0)
    again = api.call("POST", path, {"filter": {"status": ["failed"], "error_kind": ["http_4xx"]}})
    assert (again.json()["queued_count"], again.json()["skipped_count"]) == (1, 0)
    house.wait_idle()
    lines = api.call("GET", f"/{function['id']}/logs/?instance_id={again.json()['rerun_job_id']}").json()[
        "results"
    ]
    wanted = 'Re-run queued. Filter: {"status":["failed"],"error_kind":["http_4xx"]}'
    assert wanted in [line["message"] for line in lines]
    assert [(hit.path, hit.body) for hit in receiver.hits] == [("/old", b"no json"), ("/new", b"no json")]
    results = {result["function_id"]: result for result in house.results()}
    assert {result["invocation_id"] for result in house.results()} == before
    mended = results[function["id"]]
    assert (mended["status"], mended["attempts"], mended["is_retry"]) == ("succeeded", 2, 1)
    assert house.metrics(function) == {"triggered": 2, "fetch": 2, "failed": 1, "succeeded": 1}

    house.change(broken, inputs={"a": {"value": "{event.properties.n}"}})
    assert api.call("POST", f"/{broken['id']}/rerun/", {}).json()["queued_count"] == 1
    house.wait_idle()
    assert {result["status"] for result in house.results()} == {"succeeded"}


@rule("F20.2")
def test_bad_reruns_are_refused(api: Api) -> None:
    function = api.house.create()
    path = f"/{function['id']}/rerun/"
    window = {"window_start": "2026-01-02T00:00:00Z", "window_end": "2026-01-01T00:00:00Z"}
    answer = api.call("POST", path, {"filter": window})
    assert (answer.status_code, answer.json()["detail"]) == (
        400,
        "'window_end' must be after 'window_start'.",
    )
    window["window_end"] = "2026-06-01T00:00:00Z"
    assert api.call("POST", path, {"filter": window}).status_code == 400
    assert api.call("POST", path, {"filter": {"max_count": 0}}).json()["code"] == "min_value"
    assert api.call("POST", path, {"filter": {"status": [1]}}).status_code == 400
    unknown = api.call("POST", path, {"filter": {"since": "2026-01-01T00:00:00Z"}})
    assert (unknown.status_code, unknown.json()["detail"]) == (
        400,
        "'since' is not known. Nothing was run again.",
    )
    assert unknown.json()["attr"] == "filter"
    assert api.call("POST", path, {"filter": {"after": "x"}}).json()["attr"] == "filter__window_start"
    shown = {"after": "2026-01-02T00:00:00Z", "before": "2026-01-01T00:00:00Z"}
    assert "must be after" in api.call("POST", path, {"filter": shown}).json()["detail"]
    api.house.change(function, enabled=False)
    detail = "This function is disabled. Enable it to re-run invocations."
    assert api.call("POST", path, {}).json() == {"queued_count": 0, "skipped_count": 0, "detail": detail}
    transformation = api.house.create("return event", type="transformation")
    answer = api.call("POST", f"/{transformation['id']}/rerun/", {})
    assert answer.json()["detail"] == "Re-runs aren't supported for 'transformation' functions."


def explained(api: Api, body: dict[str, Any], function: str = "new") -> Any:
    answer = api.call("POST", f"/{function}/explain/", body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@rule("X2.1")
def test_why_an_event_starts_nothing(api: Api) -> None:
    filters = {
        "events": [{"id": "$pageview", "type": "events"}],
        "properties": [{"key": "plan", "type": "event", "operator": "exact", "value": "pro"}],
    }
    body = {"configuration": {**DESTINATION, "filters": filters}, "globals": {"event": EVENT}}
    answer = explained(api, body)
    assert (answer["matches"], answer["mappings"]) == (False, None)
    failing = [term for term in answer["filters"]["term"]["terms"] if term["holds"] is False]
    assert [(term["text"], term["sees"]) for term in failing] == [
        ('properties[0]: event plan exact "pro"', {"properties.plan": None})
    ]
    paid = {**EVENT, "properties": {"plan": "pro"}}
    assert explained(api, {**body, "globals": {"event": paid}})["matches"] is True


@rule("X2.1")
def test_why_a_mapping_starts_nothing(api: Api) -> None:
    views = {"events": [{"id": "$pageview", "type": "events"}]}
    mappings = [
        {"name": "Views", "disabled": True, "filters": views},
        {"name": "Others", "filters": {"events": [{"id": "x", "type": "events"}]}},
    ]
    body = {"configuration": {**DESTINATION, "mappings": mappings}, "globals": {"event": EVENT}}
    answer = explained(api, body)
    assert (answer["matches"], answer["filters"]["matches"]) == (False, True)
    assert [(one["name"], one["filters"]["matches"]) for one in answer["mappings"]] == [
        ("Views", True),
        ("Others", False),
    ]


@rule("X2.1")
def test_explaining_what_cannot_be_explained(api: Api) -> None:
    filters = {"properties": [{"key": "nope(1)", "type": "hogql"}]}
    answer = explained(
        api, {"configuration": {**DESTINATION, "filters": filters}, "globals": {"event": EVENT}}
    )
    assert answer["filters"]["error"]
    assert answer["filters"]["term"] is None
    refused = api.call("POST", "/new/explain/", {"configuration": DESTINATION, "globals": {}})
    assert (refused.status_code, refused.json()["errors"]) == (400, ["Missing event"])
